"""From a live model to an exported program: the steps of its forward, and masks or outputs of earlier steps as inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle.jit.dy2static.program_translator import ProgramTranslator
from paddle.nn.layer.rnn import RNNBase, RNNCellBase
from paddle.static import InputSpec

from dysens.compiled._calls import Consumer, Packed, UnservableError, packed

# What happens after a step: number of the step, layer, outputs; it may return other outputs.
AfterStep = Callable[[int, paddle.nn.Layer, Any], Any]


def step_layers(model: paddle.nn.Layer) -> list[paddle.nn.Layer]:
    """The layers whose calls are steps: those without layers of their own, and recurrent ones as a whole."""
    found: dict[int, paddle.nn.Layer] = {}
    inside: set[int] = set()
    for layer in model.sublayers():
        if id(layer) in inside:
            continue
        if isinstance(layer, (RNNBase, RNNCellBase)):
            inside.update(id(child) for child in layer.sublayers())
            found[id(layer)] = layer
        elif not layer._sub_layers:
            found[id(layer)] = layer
    return list(found.values())


class StepCounter:
    """Numbers the steps of a forward pass. Inside `preserved`: it leaves hooks on the layers.

    Args:
        model: The live layer.
        after: Called after each step.
    """

    def __init__(self, model: paddle.nn.Layer, after: AfterStep) -> None:
        self._after = after
        self._next = 0
        for layer in step_layers(model):
            layer.register_forward_post_hook(self._count)

    def restart(self) -> None:
        """The next step is the first again."""
        self._next = 0

    def _count(self, layer: paddle.nn.Layer, inputs: Any, outputs: Any) -> Any:
        number = self._next
        self._next += 1
        return self._after(number, layer, outputs)


SYMBOLIC = (paddle.static.Variable, paddle.pir.Value)
"""What stands for a tensor while a program is traced."""


@contextmanager
def finite_rows() -> Iterator[None]:
    """Inside, Python can go through the rows of a symbolic tensor, and comes to an end.

    Paddle gives such tensors no end: ``list(x)`` or ``zip(x, y)`` in a forward would be traced for ever.
    """

    def rows(value: Any) -> Iterator[Any]:
        count = value.shape[0] if len(value.shape) else -1
        if count < 0:
            raise TypeError("it goes through the rows of a tensor, and their number is not known beforehand")
        return (value[row] for row in range(count))

    for kind in SYMBOLIC:
        kind.__iter__ = rows
    try:
        yield
    finally:
        for kind in SYMBOLIC:
            del kind.__iter__


def needed(program: Any, outputs: Iterable[Any], given: Iterable[Any]) -> list[Any]:
    """Those of the ``given`` values that the outputs are computed from, if nothing before them counts.

    Args:
        program: What was traced.
        outputs: Values to compute.
        given: Values that are known beforehand.
    """
    outputs = list(outputs)
    key, reads, writes = _reader(outputs)
    known = {key(value): value for value in given}
    wanted = {key(value) for value in outputs}
    for operation in reversed(program.global_block().ops):
        if any(key(value) in wanted and key(value) not in known for value in writes(operation)):
            wanted.update(key(value) for value in reads(operation))
    return [value for name, value in known.items() if name in wanted]


def used_inputs(static: paddle.nn.Layer) -> set[str]:
    """The names of those inputs that the outputs are computed from: Paddle exports no program with any other.

    Args:
        static: What ``to_static`` returned; its input specs have names.
    """
    program = static.forward.concrete_program  # what `to_static` put there
    outputs, inputs = (
        [value for value in paddle.utils.flatten(values) if isinstance(value, SYMBOLIC)]
        for values in (program.outputs, program.inputs)
    )
    return {value.name for value in needed(program.main_program, outputs, inputs)}


def forget_failed_trace(program: Any) -> None:
    """Let Paddle forget the weights that it noted for a program whose tracing failed.

    It notes them under the program's address and drops them only after success. The next program may get the same address,
    and would be built from values that no longer exist: the process ends there.
    """
    if isinstance(program, paddle.base.framework.Program):
        ProgramTranslator.get_instance()._params_recorder.pop(program)
        return
    from paddle.jit.dy2static.parameter_recorder import _global_inplace_map, _global_parameter_recorder

    _global_parameter_recorder.pop(program)
    _global_inplace_map.pop(program)


def _reader(outputs: Iterable[Any]) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    if any(isinstance(value, paddle.static.Variable) for value in outputs):
        return (
            lambda value: value if isinstance(value, str) else value.name,
            lambda operation: operation.input_arg_names,
            lambda operation: operation.output_arg_names,
        )
    from paddle.autograd.backward_utils import get_real_op_inputs, get_real_op_outputs

    return lambda value: value.hash(), get_real_op_inputs, get_real_op_outputs


@dataclass(frozen=True)
class ExportSpec:
    """What to export.

    Attributes:
        call: An example of the calls to serve.
        freedom: Which axes of the inputs may vary from call to call: "any size" (also height and width of images), "any
            batch size" (only the first axis), or none with "fixed size".
        convert: Let Paddle convert the source of the network's forward, so that Python's ``if`` and ``for`` may depend on
            tensors and on axes that vary. It takes much longer than just running it.
        rewrite: Write interpolation in a way that the predictor of Paddle 3.3 can run.
        consumers: The layers that take a mask.
        given: Steps whose outputs are inputs of the export, with their shape and type.
        wanted: Steps whose outputs are returned, instead of what the model returns.
        cuts: Steps for which to find out what `Traced.live` tells.
    """

    call: Packed
    freedom: str
    convert: bool = False
    rewrite: bool = False
    consumers: Sequence[Consumer] = ()
    given: Mapping[int, InputSpec] = field(default_factory=dict)
    wanted: Sequence[int] = ()
    cuts: Sequence[int] = ()

    def specs(self) -> dict[str, InputSpec]:
        """All inputs by name."""
        inputs = [_spec(t, f"input_{i}", self.freedom) for i, t in enumerate(self.call.tensors)]
        masks = [InputSpec(list(c.shape), "float32", f"mask_{i}") for i, c in enumerate(self.consumers)]
        given = [InputSpec(spec.shape, spec.dtype, f"step_{i}") for i, spec in self.given.items()]
        return {spec.name: spec for spec in (*inputs, *masks, *given)}


def _spec(tensor: paddle.Tensor, name: str, freedom: str) -> InputSpec:
    shape = list(tensor.shape)
    if freedom != "fixed size" and shape:
        shape[0] = -1
    if freedom == "any size" and len(shape) == 4:
        shape[2:] = [-1, -1]
    return InputSpec(shape, tensor.dtype, name)


class Traced(paddle.nn.Layer):
    """The model as a function of named tensors. Make it inside `preserved`: it leaves hooks on the layers.

    Args:
        model: The live layer, with its own forward and unmasked weights.
        export_spec: What to export.

    Attributes:
        outputs: What is returned, with a place for each of the program's outputs.
        program: What was traced.
        live: For each of the export_spec's cuts, the earlier steps whose outputs everything from that step on is computed from.
    """

    def __init__(self, model: paddle.nn.Layer, export_spec: ExportSpec) -> None:
        super().__init__()
        self.model = model
        self.outputs = Packed(None, ())
        self.live: dict[int, dict[int, InputSpec]] = {}
        self.program: Any = None
        self._export_spec = export_spec
        self._inputs: dict[str, Any] = {}
        self._program: Any = None
        self._done: dict[int, Any] = {}
        self._counter = StepCounter(model, self._after_step)
        for index, consumer in enumerate(export_spec.consumers):
            consumer.layer.register_forward_pre_hook(self._mask(f"mask_{index}"))
        self.eval()

    def trace(self) -> None:
        """Trace the model, before anything else is asked for.

        Raises:
            UnservableError: The model returns something that a program cannot.
            Exception: Whatever Paddle raises when it cannot trace the network.
        """
        specs = self._export_spec.specs()
        program = self._trace(specs)
        used = {value.name for value in needed(program, self._returned, self._inputs.values())}
        if len(used) < len(specs):
            # Paddle exports no program with an input that it does not need, such as labels in eval mode.
            program = self._trace({name: spec for name, spec in specs.items() if name in used})
        for cut in self._export_spec.cuts:
            self.live[cut] = self._live(program, cut)
        self.program = program

    def save(self, prefix: Path) -> None:
        """Write the program and its weights to files that begin with ``prefix``."""
        with finite_rows():
            paddle.jit.save(self, str(prefix))

    @property
    def inputs(self) -> list[Any]:
        """The program's values that are fed; each has a name."""
        return list(self._inputs.values())

    @property
    def steps(self) -> dict[int, Any]:
        """The program's values that are outputs of steps with which an export may begin."""
        return {step: self._done[step] for step in {step for steps in self.live.values() for step in steps}}

    @property
    def returned(self) -> list[Any]:
        """The program's values that are its outputs."""
        return list(self._returned)

    def weights(self) -> dict[str, np.ndarray]:
        """What a program of Paddle 3 holds as parameters, by their names in it."""
        tensors, _ = self.forward.concrete_program.parameters  # type: ignore[attr-defined]  # what `_trace` put there
        return {tensor.name: tensor.numpy() for tensor in tensors}

    def _trace(self, specs: Mapping[str, InputSpec]) -> Any:
        own = type(self).forward.__get__(self)
        function = paddle.jit.to_static(own, input_spec=[dict(specs)], full_graph=True)
        setattr(self, "forward", function)  # noqa: B010  where `paddle.jit.save` looks for it
        try:
            with finite_rows():
                return function.concrete_program.main_program
        except BaseException:
            if self._program is not None:
                forget_failed_trace(self._program)
            raise
        finally:
            self._program = None

    def _live(self, program: Any, cut: int) -> dict[int, InputSpec]:
        earlier = {step: value for step, value in self._done.items() if step < cut}
        names = needed(program, self._returned, earlier.values())
        return {
            step: InputSpec(list(v.shape), v.dtype)
            for step, v in earlier.items()
            if any(v is n for n in names)
        }

    def forward(self, inputs: dict[str, Any]) -> list[Any]:
        """Paddle converts the source of this function, and of what it calls, except where told not to."""
        run, arguments, keywords = self._enter(inputs)
        returned = run(*arguments, **keywords)
        return self._leave(returned)

    @paddle.jit.not_to_static
    def _as_it_is(self, *arguments: Any, **keywords: Any) -> Any:
        return self.model.forward(*arguments, **keywords)

    @paddle.jit.not_to_static
    def _enter(self, inputs: dict[str, Any]) -> Any:
        self._inputs = dict(inputs)
        self._program = paddle.static.default_main_program()
        self._done = {}
        self._counter.restart()
        tensors = [
            inputs[f"input_{i}"] if f"input_{i}" in inputs else paddle.zeros(tensor.shape, tensor.dtype)
            for i, tensor in enumerate(self._export_spec.call.tensors)
        ]
        run = self.model.forward if self._export_spec.convert else self._as_it_is
        return run, *self._export_spec.call.unpacked(tensors)

    @paddle.jit.not_to_static
    def _leave(self, returned: Any) -> list[Any]:
        if self._export_spec.wanted:
            returned = [self._done[step] for step in self._export_spec.wanted]
        self.outputs = packed(returned, lambda leaf: isinstance(leaf, SYMBOLIC))
        if not self.outputs.tensors:
            raise UnservableError("its forward returns no tensor")
        self._returned = list(self.outputs.tensors)
        return self._returned

    def _after_step(self, step: int, layer: paddle.nn.Layer, outputs: Any) -> Any:
        given = self._inputs.get(f"step_{step}")
        if given is not None:
            outputs = given
        if isinstance(outputs, SYMBOLIC):
            self._done[step] = outputs
        return outputs

    def _mask(self, name: str) -> Callable[..., Any]:
        def mask_input(layer: paddle.nn.Layer, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
            mask = self._inputs.get(name)
            if mask is None:
                return None
            if inputs[0].dtype != mask.dtype:
                mask = mask.astype(inputs[0].dtype)
            return (inputs[0] * mask, *inputs[1:])

        return mask_input
