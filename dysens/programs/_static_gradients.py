"""The shapes that a PIR program states behind its forward: gradients, and what an optimizer makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import paddle

from dysens.programs._static_plan import Shape

Stated = dict[int, Shape]
"""Shapes by the hash of the value."""


def stated_shapes(ops: Sequence[Any]) -> Stated:
    """The shape of every tensor that operations give."""
    return {value.hash(): tuple(value.shape) for op in ops for value in op.results() if _is_tensor(value)}


def typed(value: Any, shape: Sequence[int]) -> Iterator[Callable[[], None]]:
    """State another shape of a value; says how to undo it."""
    before = value.type()
    value.set_type(paddle.base.libpaddle.pir.create_shaped_type(before, list(shape)))
    yield lambda: value.set_type(before)


def follow_gradients(ops: Sequence[Any], before: Stated, settled: set[int]) -> Iterator[Callable[[], None]]:
    """Let the shapes of gradients follow those of what they are gradients of.

    A gradient has the shape of its value, and an optimizer's output that of its input. Where neither says it, an operation whose
    result had the shape of what it reads keeps that; what is left is stated as unknown (-1), never wrong.

    Args:
        ops: All operations of the program, with parameters, forward and optimizer state at their new shapes.
        before: What they stated before.
        settled: Values whose shapes are right, by their hash.
    """
    for op in ops:
        if not op.name().startswith(("pd_op.", "builtin.split")):
            continue
        read = _read(op)
        if not any(before.get(v.hash()) != tuple(v.shape) for values in read.values() for v in values):
            continue
        for place, (slot, value) in enumerate(zip(_result_names(op), op.results())):
            if not _is_tensor(value) or not value.shape or value.hash() in settled:
                continue
            if before[value.hash()] != tuple(value.shape):
                continue
            new = _shape(op, slot, place, before[value.hash()], read, before)
            if new != tuple(value.shape):
                yield from typed(value, new)


def _shape(
    op: Any, slot: str, place: int, was: Shape, read: Mapping[str, Sequence[Any]], before: Mapping[int, Shape]
) -> Shape:
    if op.name() == "builtin.split":
        of = _list_behind(op.operand_source(0))
        return tuple(of[place].shape) if place < len(of) else (-1,) * len(was)
    for ending in ("_grad", "_out"):
        own = read.get(slot.removesuffix(ending), []) if slot.endswith(ending) else []
        if len(own) == 1 and before.get(own[0].hash()) == was:
            return tuple(own[0].shape)
    alike = {tuple(v.shape) for values in read.values() for v in values if before.get(v.hash()) == was}
    if len(alike) == 1:
        return alike.pop()
    return tuple(-1 for _ in was)


def _list_behind(value: Any) -> list[Any]:
    """The tensors whose gradients a list holds: what the operation that made it took as a list."""
    maker = value.get_defining_op()
    for operand in maker.operands_source():
        inner = operand.get_defining_op() if operand.initialized() else None
        if inner is not None and inner.name() == "builtin.combine":
            return list(inner.operands_source())
    return []


def _read(op: Any) -> dict[str, list[Any]]:
    """The tensors that an operation reads, by slot; a list counts as its parts."""
    names = op.get_input_names() if op.name().startswith("pd_op.") else [""] * len(op.operands_source())
    found: dict[str, list[Any]] = {}
    for name, value in zip(names, op.operands_source()):
        if not value.initialized():
            continue
        if _is_tensor(value):
            found.setdefault(name, []).append(value)
        else:
            maker = value.get_defining_op()
            parts = maker.operands_source() if maker is not None and maker.name() == "builtin.combine" else []
            found.setdefault(name, []).extend(part for part in parts if _is_tensor(part))
            if op.name() == "builtin.split":
                found[name] += [part for part in _list_behind(value) if _is_tensor(part)]
    return found


def _result_names(op: Any) -> list[str]:
    return op.get_output_names() if op.name().startswith("pd_op.") else [""] * len(op.results())


def _is_tensor(value: Any) -> bool:
    return bool(value.initialized() and value.is_dense_tensor_type())
