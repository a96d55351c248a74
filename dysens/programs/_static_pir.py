"""Cutting a Program of Paddle 3 (PIR) in place: it has no copy that the user's own values belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import paddle

from dysens.errors import InputError
from dysens.model import run_through
from dysens.programs import _widths as widths
from dysens.programs._graph import Graph, Op, Values
from dysens.programs._layer import ProgramLayer
from dysens.programs._load import in_dynamic_mode
from dysens.programs._static_forward import in_static_mode
from dysens.programs._static_gradients import follow_gradients, stated_shapes, typed
from dysens.programs._static_plan import ProgramPlan, Shape
from dysens.pruning import PrunePlan, cut

Sides = dict[str, Shape]


def pir_holders(program: Any) -> dict[str, Any]:
    """The operations that hold parameters and optimizer state, by the names of those."""
    holders = {}
    for op in program.global_block().ops:
        if op.name() == "builtin.parameter":
            holders[op.attrs()["parameter_name"]] = op
        elif op.name() == "pd_op.data" and op.result(0).persistable:
            holders[op.attrs()["name"]] = op
    return holders


def pir_shapes(program: Any) -> dict[str, Shape]:
    """The shape of every parameter, and of the optimizer's state, by name."""
    return {name: tuple(op.result(0).shape) for name, op in pir_holders(program).items()}


def pir_followers(program: Any, plan: ProgramPlan) -> dict[str, str]:
    """What has the shape of a parameter because it belongs to it (itself and the optimizer's state): by name, whose."""
    holders = pir_holders(program)
    names = {op.result(0).hash(): name for name, op in holders.items()}
    shapes = pir_shapes(program)
    follows = {name: name for name in plan.cuts if name in shapes}
    for op in program.global_block().ops:
        slots = op.get_input_names() if op.name().startswith("pd_op.") else []
        if "param" not in slots or "grad" not in slots:
            continue
        held = [names.get(value.hash(), "") if value.initialized() else "" for value in op.operands_source()]
        owner = held[slots.index("param")]
        if owner in plan.cuts:
            follows.update({name: owner for name in held if name and shapes[name] == plan.whole[owner]})
    for name, shape in shapes.items():
        owners = [o for o in plan.cuts if name.startswith((f"{o}_", f"{o}.")) and shape == plan.whole[o]]
        if owners and name not in follows and holders[name].name() == "pd_op.data":
            follows[name] = max(owners, key=len)
    return follows


def cut_pir_program(
    program: Any,
    plan: ProgramPlan,
    follows: Mapping[str, str],
    model: ProgramLayer | None,
    live: PrunePlan | None,
) -> None:
    """Bring a program to the new widths, or leave it as it is where that fails.

    Its operations take the shapes of what is in the scope when they run; groups, types and numbers that are widths are
    written down.

    Args:
        program: For training or testing.
        plan: What goes.
        follows: What belongs to a parameter, see `pir_followers`.
        model: The live layer that was made of this program, not cut; it is used up. Without one, the program must not have
            numbers that are widths.
        live: The plan for that.
    """
    undo: list[Callable[[], None]] = []
    try:
        for step in _steps(program, plan, follows, model, live):
            undo.append(step)
    except BaseException:
        run_through(lambda: [step() for step in reversed(undo)])
        raise


def _steps(
    program: Any,
    plan: ProgramPlan,
    follows: Mapping[str, str],
    model: ProgramLayer | None,
    live: PrunePlan | None,
) -> Iterator[Callable[[], None]]:
    """Makes the changes one by one, and says how to undo each."""
    ops = list(program.global_block().ops)
    before = stated_shapes(ops)
    if model is not None and live is not None:
        whole, now = _sides(model, live)
        _fill_in(ops, model._graph, whole, now)
        yield from _constants(ops, model._graph, whole, now)
        yield from _types(ops, model._graph, whole, now)
    holders = pir_holders(program)
    for name, owner in follows.items():
        yield from _reshaped(holders[name], plan.left[owner])
    for op in ops:
        if "groups" not in op.attrs():
            continue
        for value in op.operands_source():
            maker = value.get_defining_op() if value.initialized() else None
            if maker is not None and maker.name() == "builtin.parameter":
                groups = plan.groups.get(maker.attrs()["parameter_name"])
                if groups is not None:
                    whole_groups = op.attrs()["groups"]
                    op.set_int_attr("groups", groups)
                    yield partial(op.set_int_attr, "groups", whole_groups)
    if model is not None and live is not None:
        yield from follow_gradients(ops, before, _settled(ops, model._graph, now))


def _fill_in(ops: Sequence[Any], graph: Graph, whole: Sides, now: Sides) -> None:
    """Add what a layer computes inside, such as a product before its bias: it has the shape of what is made of it."""
    stated = {
        op.outputs[slot][0]: list(value.shape)
        for op in graph.ops
        if op.type.startswith("pd_op.")
        for slot, value in zip(ops[op.index].get_output_names(), ops[op.index].results())
        if op.outputs.get(slot) and value.initialized() and value.is_dense_tensor_type()
    }
    readers = graph.readers()
    for key in reversed([key for key in stated if key not in now]):
        for reader in readers.get(key, ()):
            for out in (each for keys in reader.outputs.values() for each in keys if each in now):
                if stated.get(out) == stated[key]:
                    whole[key], now[key] = whole[out], now[out]


def _settled(ops: Sequence[Any], graph: Graph, now: Sides) -> set[int]:
    """The values whose shapes are known from a forward, changed or not."""
    found = set()
    for op in graph.ops:
        held = ops[op.index]
        if op.type.startswith("pd_op."):
            found |= {
                value.hash()
                for slot, value in zip(held.get_output_names(), held.results())
                if now.get(op.outputs.get(slot, [""])[0]) is not None
            }
    return found


def _reshaped(op: Any, shape: Sequence[int]) -> Iterator[Callable[[], None]]:
    before = list(op.result(0).shape)
    yield from typed(op.result(0), shape)
    if op.name() == "pd_op.data":
        op.set_int_array_attr("shape", list(shape))
        yield lambda: op.set_int_array_attr("shape", before)


def _sides(model: ProgramLayer, live: PrunePlan) -> tuple[Sides, Sides]:
    """The shapes of all values, on the same inputs, before the cut and after it."""
    found: list[Sides] = []
    graph = model._graph
    with in_dynamic_mode(), paddle.no_grad():
        inputs = [paddle.to_tensor(each) for each in model.example_inputs()]
        for again in (False, True):
            if again:
                cut(model, live, gradients=False)
            seen: list[Values] = []

            def replay(op: Op, values: Values, seen: list[Values] = seen) -> None:
                seen[:] = [values]
                graph.replay(op, values)

            model._graph = replace(graph, replay=replay)
            model(*inputs)
            values = seen[0] if seen else {}
            found.append({key: tuple(v.shape) for key, v in values.items() if isinstance(v, paddle.Tensor)})
    model._graph = graph
    return found[0], found[1]


def _types(ops: Sequence[Any], graph: Graph, whole: Sides, now: Sides) -> Iterator[Callable[[], None]]:
    """The shapes that the program states for what its forward computes."""
    for op in graph.ops:
        if not op.type.startswith("pd_op."):
            continue
        held = ops[op.index]
        for slot, value in zip(held.get_output_names(), held.results()):
            key = op.outputs.get(slot, [""])[0]
            if now.get(key) is None or whole.get(key) is None or now[key] == whole[key]:
                continue
            if value.initialized() and value.is_dense_tensor_type() and len(value.shape) == len(now[key]):
                sides = [n if s == w else s for s, w, n in zip(value.shape, whole[key], now[key])]
                yield from typed(value, sides)


def _constants(ops: Sequence[Any], graph: Graph, whole: Sides, now: Sides) -> Iterator[Callable[[], None]]:
    """Numbers that are widths, in the operations that hold them."""
    wanted: dict[int, tuple[Any, list[int]]] = {}
    for op in graph.ops:
        first = op.reads()[0] if op.reads() else ""
        before, after = op.input_shape, now.get(first)
        if before is None or after is None or not widths.changed(before, after) or whole.get(first) == after:
            continue
        for slot in {
            "reshape": ("shape",),
            "expand": ("shape",),
            "slice": ("starts", "ends"),
            "split": ("sections",),
        }.get(op.name, ()):
            held = _held(ops[op.index], slot)
            if held is None:
                continue
            numbers = [int(n) for n in held.attrs()["value"]]
            new = _following(op, ops, numbers, before, after)
            if wanted.setdefault(held.id(), (held, new))[1] != new:
                raise InputError(
                    f"The program cannot be pruned: {op.place} shares its numbers with another operation."
                )
    for held, new in wanted.values():
        if new != [int(n) for n in held.attrs()["value"]]:
            yield from _replaced(held, new)


def _replaced(held: Any, numbers: Sequence[int]) -> Iterator[Callable[[], None]]:
    """Another constant in the place of one, which cannot be changed itself."""
    old = held.result(0)
    block = held.get_parent_block()
    with in_static_mode(), paddle.static.program_guard(held.get_parent_block().program):
        paddle.base.libpaddle.pir.set_insertion_point(held)
        new = paddle._C_ops.full_int_array(list(numbers), old.dtype, paddle.CPUPlace())
    old.replace_all_uses_with(new)
    made = new.get_defining_op()

    def undo() -> None:
        new.replace_all_uses_with(old)
        block.remove_op(made)

    yield undo


def _held(op: Any, slot: str) -> Any | None:
    """The constant that an operation reads in a slot."""
    names = op.get_input_names()
    maker = op.operand_source(names.index(slot)).get_defining_op() if slot in names else None
    return maker if maker is not None and maker.name() == "pd_op.full_int_array" else None


def _following(op: Op, ops: Sequence[Any], numbers: list[int], before: Shape, after: Shape) -> list[int]:
    if op.name == "reshape":
        return widths.reshaped(numbers, before, after)
    if op.name == "expand":
        return widths.expanded(numbers, before, after)
    if op.name == "slice":
        return [widths.scaled(n, before[a], after[a]) for n, a in zip(numbers, op.attributes["axes"])]
    held = ops[op.index]
    axis = int(held.operand_source(held.get_input_names().index("axis")).get_defining_op().attrs()["value"])
    return [widths.scaled(n, before[axis], after[axis]) for n in numbers]
