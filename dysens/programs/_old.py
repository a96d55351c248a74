"""Programs of Paddle 2: ``.pdmodel``, or a `paddle.static.Program`; on Paddle 3 with ``FLAGS_enable_pir_api=0``.

An operation is replayed by the eager function of its type, which takes inputs by slot and attributes by name, or is appended
to the program that is being traced.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import paddle
from paddle.base import framework
from paddle.base.layer_helper import LayerHelper

from dysens.errors import InputError
from dysens.programs import _widths as widths
from dysens.programs._graph import Feed, Graph, Op, Values, refuse
from dysens.programs._pir import dtype_name

Slots = dict[str, list[Any]]

# What a program says about an operation besides what it computes.
_BOOKKEEPING = ("op_role", "op_role_var", "op_namescope", "op_callstack", "op_device", "with_quant_attr")
_NEW_NAMES = {
    "elementwise_add": "add",
    "matmul_v2": "matmul",
    "lookup_table_v2": "embedding",
    "sync_batch_norm": "batch_norm",
    "reshape2": "reshape",
    "expand_v2": "expand",
    "fill_constant": "full",
}
# Inputs that stand for an attribute whose value is computed, where the name does not say which.
_STAND_FOR = {"expand_shapes_tensor": "shape", "Shape": "shape", "K": "k"}


def read_old(program: Any, fetched: Sequence[Any] = ()) -> Graph:
    """A `paddle.static.Program` of the old kind as plain data; keys are the names of its variables.

    Args:
        program: The program; only its global block may hold operations.
        fetched: Its outputs, as variables or names; by default what it fetches itself. Only what these are computed from is
            read.

    Raises:
        InputError: It cannot be replayed.
    """
    block = program.global_block()
    wanted = [each if isinstance(each, str) else each.name for each in fetched]
    graph = _Reader(block).graph(wanted)
    for op in graph.ops:
        has_blocks = any(block.ops[op.index].has_attr(name) for name in ("sub_block", "blocks"))
        refuse(op, has_blocks, op.type in _eager_forms()[0], paddle.__version__)
    return graph


class _Reader:
    """Gives variables their keys: one that is written again gets a new one."""

    def __init__(self, block: Any) -> None:
        self._block = block
        self._now: dict[str, str] = {}
        self._times: dict[str, int] = {}
        self._parameters: dict[str, str] = {}
        self._feeds: dict[str, Feed] = {}
        self._shapes = {name: _shape(variable) for name, variable in block.vars.items()}

    def graph(self, wanted: list[str]) -> Graph:
        ops: list[Op] = []
        fed: dict[int, str] = {}  # operations that feed stand in any order
        fetched: dict[int, tuple[str, str]] = {}
        for index, op in enumerate(self._block.ops):
            if op.type == "feed":
                fed[op.attr("col")] = op.output("Out")[0]
                self._written(op.output("Out")[0])
            elif op.type == "fetch":
                name = op.input("X")[0]
                fetched[op.attr("col")] = (self._read(name), name)
            else:
                ops += self._flattened(self._op(index, op))
        feeds = {name: self._feed(name) for _, name in sorted(fed.items())}
        found = [(self._read(name), name) for name in wanted] or [each for _, each in sorted(fetched.items())]
        shapes = {key: shape for key, shape in self._shapes.items() if shape is not None}
        return Graph(
            ops,
            self._parameters,
            {**feeds, **self._feeds},
            [key for key, _ in found],
            [name for _, name in found],
            shapes,
            replay_old,
        ).needed()

    def _read(self, name: str) -> str:
        if name not in self._now and self._block.has_var(name):
            variable = self._block.var(name)
            if variable.persistable:
                self._parameters[name] = name
                self._now[name] = name
            elif getattr(variable, "is_data", False) or variable.desc.need_check_feed():
                self._feeds[name] = self._feed(name)
                self._now[name] = name
        return self._now.get(name, name)

    def _written(self, name: str) -> str:
        times = self._times[name] = self._times.get(name, 0) + 1
        key = name if times == 1 and name not in self._now else f"{name}#{times + 1}"
        self._now[name] = key
        self._shapes.setdefault(key, self._shapes.get(name))
        return key

    def _feed(self, name: str) -> Feed:
        variable = self._block.var(name)
        return Feed(name, tuple(variable.shape), dtype_name(variable.dtype))

    def _op(self, index: int, op: Any) -> Op:
        inputs = {
            slot: [self._read(name) for name in op.input(slot)] for slot in op.input_names if op.input(slot)
        }
        first = next((inputs[slot][0] for slot in ("X", "Input") if inputs.get(slot)), "")
        names = {slot: list(op.output(slot)) for slot in op.output_names if op.output(slot)}
        outputs: dict[str, list[str]] = {}
        dtypes: dict[str, Any] = {}
        for slot, written in names.items():
            outputs[slot] = [self._written(name) for name in written]
            for key, name in zip(outputs[slot], written):
                if self._block.has_var(name) and self._shapes.get(name) is not None:
                    dtypes[key] = self._block.var(name).dtype
        attributes = {key: value for key, value in op.all_attrs().items() if key not in _BOOKKEEPING}
        return Op(
            _NEW_NAMES.get(op.type, op.type),
            op.type,
            index,
            inputs,
            outputs,
            attributes,
            dtypes,
            self._shapes.get(first),
        )

    def _flattened(self, op: Op) -> list[Op]:
        """The ``mul`` of a fully connected layer, which takes a picture for a vector, as two steps: flatten, multiply."""
        x, axis = op.input("x"), op.attributes.get("x_num_col_dims", 0)
        whole = self._shapes.get(x or "")
        if op.type != "mul" or x is None or whole is None or len(whole) - axis < 2:
            return [op]
        key = f"{x}#flat_{op.index}"
        rest = whole[axis:]
        self._shapes[key] = (*whole[:axis], math.prod(rest) if min(rest) >= 0 else -1)
        flat = Op(
            "flatten",
            "flatten_contiguous_range",
            op.index,
            {"X": [x]},
            {"Out": [key], "XShape": [f"{key}#shape"]},
            {"start_axis": axis, "stop_axis": -1},
            {key: op.dtypes.get(op.output("out") or "")},
            whole,
        )
        return [flat, replace(op, inputs={**op.inputs, "X": [key]}, input_shape=self._shapes[key])]


def _shape(variable: Any) -> tuple[int, ...] | None:
    """The shape of what is a tensor."""
    kinds = framework.core.VarDesc.VarType
    return tuple(variable.shape) if variable.type in (kinds.LOD_TENSOR, kinds.SELECTED_ROWS) else None


@lru_cache(None)
def _eager_forms() -> tuple[dict[str, list[str]], dict[str, list[str]], dict[str, list[str]]]:
    """The arguments of every eager operation, their types (tensor, list, int), and what it returns."""
    ops = paddle._legacy_C_ops
    return ops.get_core_ops_args_info(), ops.get_core_ops_args_type_info(), ops.get_core_ops_returns_info()


def replay_old(op: Op, values: Values) -> None:
    """Compute what an operation gives, eagerly or into the program of the old kind that is being traced."""
    inputs = {slot: [values[key] for key in keys] for slot, keys in op.inputs.items()}
    op, inputs = _at_these_widths(op, inputs)
    if op.type == "expand_as_v2" and inputs.get("Y"):  # what is written down is the shape that it had
        op = op.with_attributes(target_shape=list(inputs["Y"][0].shape))
    if not paddle.in_dynamic_mode():
        _append(op, inputs, values)
        return
    if not set(op.inputs) <= set(_eager_forms()[0][op.type]):
        op, inputs = _with_numbers(op, inputs)
    for slot, made in _eager(op, inputs).items():
        values.update(zip(op.outputs.get(slot, ()), made))


def _append(op: Op, inputs: Slots, values: Values) -> None:
    block = LayerHelper(op.type).main_program.current_block()
    outputs = {
        slot: [block.create_var(dtype=op.dtypes.get(key, paddle.float32), persistable=False) for key in keys]
        for slot, keys in op.outputs.items()
    }
    for slot in framework.OpProtoHolder.instance().get_op_proto(op.type).outputs:
        # An exported program lacks outputs that only gradients need, and Paddle insists on them.
        if slot.name not in outputs and not slot.dispensable:
            outputs[slot.name] = [block.create_var(dtype=paddle.float32, persistable=False)]
    # It writes to the attributes that it is given.
    block.append_op(type=op.type, inputs=inputs, outputs=outputs, attrs=dict(op.attributes))
    for slot, keys in op.outputs.items():
        values.update(zip(keys, outputs[slot]))


def _at_these_widths(op: Op, inputs: Slots) -> tuple[Op, Slots]:
    """The operation with numbers that are widths as they have to be at the widths that are there now."""
    x = next((inputs[slot][0] for slot in ("X", "Input") if inputs.get(slot)), None)
    whole = op.input_shape
    if whole is None or x is None or not widths.changed(whole, x.shape):
        return op, inputs
    now, had = list(x.shape), op.attributes
    if op.name in ("reshape", "expand"):
        follow = widths.reshaped if op.name == "reshape" else widths.expanded
        shape = follow(had["shape"], whole, now)
        slot = "ShapeTensor" if op.name == "reshape" else "expand_shapes_tensor"
        if inputs.get(slot):
            parts = [
                paddle.full([1], new, dtype_name(part.dtype)) if new > 0 else part
                for new, part in zip(shape, inputs[slot])
            ]
            inputs = {**inputs, slot: parts}
        return op.with_attributes(shape=shape), inputs
    if op.name == "slice":
        bounds = {
            name: [widths.scaled(n, whole[a], now[a]) for n, a in zip(had[name], had["axes"])]
            for name in ("starts", "ends")
        }
        return op.with_attributes(**bounds), inputs
    if op.name == "split":
        axis = had["axis"]
        return op.with_attributes(
            sections=[widths.scaled(n, whole[axis], now[axis]) for n in had["sections"]]
        ), inputs
    return op, inputs


def _eager(op: Op, inputs: Slots) -> Slots:
    names, kinds, returns = (table[op.type] for table in _eager_forms())
    arguments: list[Any] = []
    for name, kind in zip(names, kinds):
        given = inputs.get(name)
        if kind == "int" and name.endswith("Num"):
            arguments.append(len(op.outputs.get(name[:-3], ())))
        elif given is None and name in op.outputs:
            empty = [framework._create_tensor(dtype=op.dtypes.get(key)) for key in op.outputs[name]]
            arguments.append(empty if kind == "list" else empty[0])
        elif given is None:
            arguments.append(None)
        else:
            arguments.append(given if kind == "list" else given[0])
    attributes = [part for item in op.attributes.items() for part in item]
    returned = getattr(paddle._legacy_C_ops, op.type)(*arguments, *attributes)
    parts = returned if isinstance(returned, tuple) else [returned]
    return {name: part if isinstance(part, list) else [part] for name, part in zip(returns, parts)}


def _with_numbers(op: Op, inputs: Slots) -> tuple[Op, Slots]:
    """The eager form takes fewer inputs: those that stand for an attribute become that attribute."""
    taken = _eager_forms()[0][op.type]
    kept, changed = dict(inputs), dict[str, Any]()
    if op.type == "expand_as_v2":
        kept.pop("Y")  # its shape is an attribute by now
    for slot in [slot for slot in kept if slot not in taken]:
        numbers = [int(n) for tensor in kept.pop(slot) for n in tensor.numpy().reshape(-1)]
        plain = slot.replace("TensorList", "").replace("Tensor", "").replace("_tensor", "").lower()
        name = _STAND_FOR.get(slot, plain)
        if slot in ("OutSize", "SizeTensor"):
            changed.update(zip(("out_d", "out_h", "out_w")[-len(numbers) :], numbers), scale=[])
        elif name in op.attributes:
            changed[name] = numbers if isinstance(op.attributes[name], list) else numbers[0]
        else:
            raise InputError(
                f'{op.place} reads "{slot}", for which Paddle {paddle.__version__} has no eager form.'
            )
    return op.with_attributes(**changed), kept


def load_old(path: Path) -> Any:
    """The program of an inference model, ``.pdmodel``."""
    with framework._dygraph_guard(None):  # an operator of a program cannot be made in dynamic mode
        return framework.Program.parse_from_string(path.read_bytes())
