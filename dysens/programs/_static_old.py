"""Cutting a Program of Paddle 2's kind: a new program at the new widths, with backward and optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dysens.errors import InputError
from dysens.programs import _widths as widths
from dysens.programs._static_plan import ProgramPlan, Shape

Shapes = Mapping[str, Shape]


def old_shapes(program: Any) -> dict[str, Shape]:
    """The shape of every tensor of a program, by name."""
    kinds = (7, 8)  # dense tensors, and those of which only some rows are there
    return {name: tuple(v.shape) for name, v in program.global_block().vars.items() if int(v.type) in kinds}


def old_followers(program: Any, plan: ProgramPlan) -> dict[str, str]:
    """What has the shape of a parameter because it belongs to it (itself, gradients, optimizer state): by name, whose."""
    block = program.global_block()
    shapes = old_shapes(program)
    parameters = {parameter.name for parameter in block.all_parameters()}
    follows = {name: name for name in plan.cuts if name in shapes}
    for op in block.ops:
        owner = op.input("Param")[0] if "Param" in op.input_names and op.input("Param") else ""
        if owner in plan.cuts:
            follows.update(
                {name: owner for name in op.input_arg_names if shapes.get(name) == plan.whole[owner]}
            )
    for name, shape in shapes.items():
        if name in follows or name in parameters:
            continue
        owners = [
            owner
            for owner in plan.cuts
            if name.startswith((f"{owner}@GRAD", f"{owner}_", f"{owner}.")) and shape == plan.whole[owner]
        ]
        if owners and ("@GRAD" in name or block.var(name).persistable):
            follows[name] = max(owners, key=len)
    return follows


def cut_old_program(program: Any, plan: ProgramPlan, follows: Mapping[str, str]) -> Any:
    """A copy of a program at the new widths; the program and its scope are left alone.

    Args:
        program: For training or testing.
        plan: What goes.
        follows: What belongs to a parameter, see `old_followers`.

    Raises:
        InputError: An operation cannot have the new widths.
    """
    copy = program.clone()
    block = copy.global_block()
    whole = old_shapes(program)
    changed = set()
    for name, owner in follows.items():
        block.var(name).desc.set_shape(list(plan.left[owner]))
        changed.add(name)
    for op in block.ops:
        weight = op.input("Filter")[0] if "Filter" in op.input_names and op.input("Filter") else ""
        if weight in plan.groups:
            op._set_attr("groups", plan.groups[weight])
        if not changed.intersection(op.input_arg_names):
            continue
        _follow_widths(op, block, whole)
        try:
            op.desc.infer_shape(block.desc)
        except Exception as error:
            told = str(error).strip().splitlines()
            raise InputError(
                f'The program cannot be pruned: "{op.type}", which writes "{op.output_arg_names[0]}", does not take the new '
                f"widths ({told[-1].strip() if told else type(error).__name__})."
            ) from error
        changed.update(
            name for name in op.output_arg_names if name in whole and _shape(block, name) != whole[name]
        )
    return copy


def _shape(block: Any, name: str) -> Shape:
    return tuple(block.desc.find_var(name.encode()).shape())


def _follow_widths(op: Any, block: Any, whole: Shapes) -> None:
    """Numbers that are widths are those of what the operation reads now."""
    kind = op.type[:-5] if op.type.endswith("_grad") else op.type
    slot = next((s for s in ("X", "Input") if s in op.input_names and op.input(s)), None)
    if slot is None or kind not in ("reshape2", "reshape", "slice", "split", "expand_v2", "expand_as_v2"):
        return
    before, now = whole.get(op.input(slot)[0]), _shape(block, op.input(slot)[0])
    if before is None or not widths.changed(before, now):
        return
    if kind in ("reshape2", "reshape") and op.attr("shape"):
        op._set_attr("shape", widths.reshaped(op.attr("shape"), before, now))
    elif kind == "slice":
        for name in ("starts", "ends"):
            bounds = zip(op.attr(name), op.attr("axes"))
            op._set_attr(name, [widths.scaled(n, before[a], now[a]) for n, a in bounds])
    elif kind == "split" and op.attr("sections"):
        axis = op.attr("axis")
        op._set_attr("sections", [widths.scaled(n, before[axis], now[axis]) for n in op.attr("sections")])
    elif kind == "expand_v2" and op.attr("shape"):
        op._set_attr("shape", widths.expanded(op.attr("shape"), before, now))
    elif kind == "expand_as_v2" and op.attr("target_shape"):
        op._set_attr("target_shape", widths.expanded(op.attr("target_shape"), before, now))
