"""OpenVINO: how it gets a traced model, and how it runs it."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from types import MappingProxyType
from typing import Any

import numpy as np

from dysens.compiled._batches import ThreadPlan
from dysens.compiled._calls import UnservableError
from dysens.compiled._export import Traced
from dysens.compiled._openvino_operation import Converted, Node, Operation, element_type
from dysens.compiled._openvino_operators import OPERATORS
from dysens.compiled._openvino_part import name_steps, part_of
from dysens.compiled._runtime import Loaded, Runtime, contiguous
from dysens.model import give_memory_back


class OpenVino(Runtime):
    """OpenVINO, in float32; Python's lock is free while it runs."""

    name = "openvino"
    title = "OpenVINO"
    side_by_side = True

    @property
    def installed(self) -> bool:
        """Whether its package is there."""
        return importlib.util.find_spec("openvino") is not None

    def load(self, traced: Traced, folder: Path, plan: ThreadPlan) -> Loaded:
        """Read a program of Paddle 2 from a file, and translate one of Paddle 3."""
        import openvino

        if not hasattr(
            traced.program, "desc"
        ):  # which those of Paddle 2 have, also on Paddle 3 where a flag asks for them
            network = translated(
                traced.program, traced.weights(), traced.inputs, traced.returned, traced.steps
            )
            return _InferRequests(network, plan)
        _refuse_old(traced.program)
        if not list(folder.glob("model.*")):
            traced.save(folder / "model")
        network = openvino.Core().read_model(str(folder / "model.pdmodel"))
        outputs = {
            name: output
            for node in network.get_ops()
            for output in node.outputs()
            for name in output.get_names()
        }
        name_steps({i: outputs[value.name] for i, value in traced.steps.items() if value.name in outputs})
        return _InferRequests(network, plan)


# Each size gets a network compiled for it, which runs a tenth faster; this many are kept, and one for all other sizes.
_MOST_SIZES = 4


class _InferRequests(Loaded):
    """A network of OpenVINO, compiled for the sizes that come."""

    def __init__(self, network: Any, plan: ThreadPlan) -> None:
        import openvino

        self._core = openvino.Core()
        self._network = network
        self._plan = plan
        self._names = [each.get_any_name() for each in network.inputs]
        self._idle: dict[tuple[tuple[int, ...], ...] | None, SimpleQueue[Any]] = {}
        self._making = Lock()
        self.outputs = len(network.outputs)
        self.part_seconds = 0.0

    def run(self, feeds: Mapping[str, Any]) -> list[np.ndarray]:
        arrays = {name: contiguous(feeds[name]) for name in self._names}
        idle = self._requests(self._shapes(arrays))
        request = idle.get()
        try:
            found = request.infer(arrays, share_inputs=True)
            return [np.array(found[output]) for output in request.model_outputs]
        finally:
            idle.put(request)

    def keep_only(self, kept: Sequence[Mapping[str, Any]]) -> None:
        shapes = {self._shapes(feeds) for feeds in kept}
        with self._making:
            self._idle = {key: requests for key, requests in self._idle.items() if key in shapes}
        give_memory_back()

    def _shapes(self, feeds: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(feeds[name].shape) for name in self._names)

    def part(self, given: Collection[int], wanted: Collection[int], masks: Collection[str]) -> Loaded:
        return _InferRequests(part_of(self._network, given, list(wanted), masks), self._plan)

    def _requests(self, shapes: tuple[tuple[int, ...], ...]) -> SimpleQueue[Any]:
        with self._making:
            key = shapes if shapes in self._idle or len(self._idle) < _MOST_SIZES else None
            if key not in self._idle:
                self._idle[key] = self._compiled(key)
            return self._idle[key]

    def _compiled(self, shapes: tuple[tuple[int, ...], ...] | None) -> SimpleQueue[Any]:
        start = time.perf_counter()
        network = self._network
        if shapes is not None and network.is_dynamic():
            network = network.clone()
            network.reshape(dict(zip(self._names, shapes)))
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "NUM_STREAMS": str(self._plan.lanes),
            "INFERENCE_NUM_THREADS": str(self._plan.lanes * self._plan.threads),
            # Several processes on one machine would all be tied to the same cores.
            "ENABLE_CPU_PINNING": False,
        }
        compiled = self._core.compile_model(network, "CPU", settings)
        requests: SimpleQueue[Any] = SimpleQueue()
        for _ in range(self._plan.lanes):
            requests.put(compiled.create_infer_request())
        self.part_seconds = time.perf_counter() - start
        give_memory_back()
        return requests


# Operators of Paddle 2 that OpenVINO gets, for the reasons that hold for those of Paddle 3.
_OLD_OPERATORS = frozenset(
    """feed fetch conv2d depthwise_conv2d conv2d_transpose depthwise_conv2d_transpose batch_norm layer_norm pool2d matmul_v2
    elementwise_add elementwise_sub elementwise_mul elementwise_div scale clip relu relu6 leaky_relu sigmoid tanh swish silu
    exp sqrt abs elu gelu hard_swish hard_sigmoid softmax dropout nearest_interp_v2 bilinear_interp_v2 reduce_mean reduce_sum
    reshape2 flatten_contiguous_range transpose2 squeeze2 unsqueeze2 concat stack split slice expand_v2 shape cast assign
    fill_constant""".split()  # noqa: SIM905
)
_OLD_TYPES = ("float32", "int32", "int64", "bool")


def _refuse_old(program: Any) -> None:
    """Raise UnservableError for a program of Paddle 2 with something else than the operators and types above."""
    block = program.global_block()
    for operation in block.ops:
        if operation.type not in _OLD_OPERATORS:
            raise UnservableError(f"the operator {operation.type} is none of those that OpenVINO gets here")
        read, written = (
            [_kind(block, n) for n in names]
            for names in (
                operation.input_arg_names,
                operation.output("Out") if "Out" in operation.output_names else operation.output_arg_names,
            )
        )
        odd = next((kind for kind in (*read, *written) if kind not in _OLD_TYPES), None)
        if odd is not None:
            raise UnservableError(
                f"OpenVINO would compute with another precision: {operation.type} has {odd}"
            )
        if operation.type == "cast" and "float32" in read and written != ["float32"]:
            raise UnservableError("OpenVINO does not get floats that become whole numbers")
    for variable in block.vars.values():
        if getattr(variable, "is_data", False) and _kind(block, variable.name) != "float32":
            raise UnservableError("OpenVINO gets float32 inputs only")


def _kind(block: Any, name: str) -> str:
    return str(block.var(name).dtype).rpartition(".")[2].lower()


def translated(
    program: Any,
    parameters: Mapping[str, np.ndarray],
    inputs: Iterable[Any],
    outputs: Sequence[Any],
    steps: Mapping[int, Any] = MappingProxyType({}),
) -> Any:
    """A program of Paddle 3 as a network of OpenVINO, which reads the programs of Paddle 2 only.

    Args:
        program: A PIR program.
        parameters: The values of its parameters, by name.
        inputs: Its values that are fed, which have names.
        outputs: Its values to compute.
        steps: Values on the way, with which parts of it may begin.

    Raises:
        UnservableError: An operator is not one of those that are translated.
    """
    import openvino

    translation = _Translation(program, parameters)
    network = openvino.Model(*translation.network(list(inputs), list(outputs)))
    name_steps(translation.among(steps))
    return network


class _Translation:
    """Translates what some values are computed from."""

    def __init__(self, program: Any, parameters: Mapping[str, np.ndarray]) -> None:
        from openvino import opset13

        self.ops = opset13
        self._parameters = parameters
        self._nodes: dict[int, Converted] = {}
        self._program = program

    def network(self, inputs: list[Any], outputs: list[Any]) -> tuple[list[Node], list[Node], str]:
        fed = []
        for value in inputs:
            if element_type(value, value.name) is not np.float32:
                raise UnservableError("OpenVINO gets float32 inputs only")
            node = self.ops.parameter(list(value.shape), np.float32, name=value.name)
            node.output(0).get_tensor().set_names({value.name})
            fed.append(node)
            self._nodes[value.hash()] = node.output(0)
        for operation in self._needed(outputs):
            self._translate(operation)
        # An output that is an input, or is returned twice, needs a node of its own.
        results = [self.ops.result(self._nodes[value.hash()]) for value in outputs]
        return results, fed, "dysens"

    def among(self, values: Mapping[int, Any]) -> dict[int, Node]:
        """Those values that were needed, translated."""
        return {key: self._nodes[v.hash()] for key, v in values.items() if v.hash() in self._nodes}

    def _needed(self, outputs: list[Any]) -> list[Any]:
        wanted = {value.hash() for value in outputs}
        found = []
        for operation in reversed(self._program.global_block().ops):
            writes = {value.hash() for value in operation.results()}
            if writes & wanted and not writes <= self._nodes.keys():
                found.append(operation)
                wanted.update(v.hash() for v in operation.operands_source() if v.initialized())
        return found[::-1]

    def _translate(self, operation: Any) -> None:
        name = operation.name()
        if list(operation.blocks()):
            raise UnservableError(f"OpenVINO gets no operator with a body of its own ({name})")
        if name == "builtin.parameter":
            self._nodes[operation.result(0).hash()] = self._parameter(operation)
            return
        convert = OPERATORS.get(name)
        if convert is None:
            raise UnservableError(f"the operator {name} is none of those that OpenVINO gets here")
        found = convert(Operation(operation, self._nodes, self.ops))
        results = operation.results()
        self._nodes[results[0].hash()] = found
        if name == "builtin.split":
            self._nodes.update((value.hash(), node) for value, node in zip(results, found))

    def _parameter(self, operation: Any) -> Node:
        values = self._parameters[operation.attrs()["parameter_name"]]
        if values.dtype != np.float32:
            raise UnservableError(f"OpenVINO gets float32 weights only, and one is {values.dtype}")
        return self.ops.constant(values).output(0)
