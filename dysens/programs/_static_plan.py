"""The plan that a live layer gave, by the names that its parameters have in a program; and what it makes of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import paddle

from dysens.errors import InputError
from dysens.model import run_through, tensors_by_path
from dysens.programs._layer import ProgramLayer
from dysens.programs._static_forward import Array, scope_array
from dysens.pruning import PrunePlan, TensorCut

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ProgramPlan:
    """What goes from a program and its scope.

    Attributes:
        cuts: What goes from every parameter, by name.
        groups: New numbers of groups of grouped convolutions, by the name of their weight.
        whole: The shapes that the parameters have before.
        left: The shapes that they have then.
    """

    cuts: Mapping[str, tuple[TensorCut, ...]]
    groups: Mapping[str, int]
    whole: Mapping[str, Shape]
    left: Mapping[str, Shape]

    def without(self, name: str, values: Array) -> Array:
        """What stays of a parameter, or of something that belongs to it and has its shape."""
        return cut_array(values, self.cuts[name])

    def zeroed(self, name: str, values: Array) -> Array:
        """The same with zeros for what goes."""
        result = np.array(values)
        for item in self.cuts[name]:
            keep = np.ones(item.size, bool)
            keep[list(item.removed)] = False
            if item.blocks == 1:
                np.moveaxis(result, item.axis, 0)[~keep] = 0
            else:
                rows = np.repeat(keep.reshape(item.blocks, -1), len(result) // item.blocks, axis=0)
                result[~rows] = 0
        return result

    def fits(self, shapes: Mapping[str, Shape | None], cut: bool) -> bool:
        """Whether these are the shapes of all that it cuts, before it or after it."""
        wanted = self.left if cut else self.whole
        return all(shapes.get(name) == shape for name, shape in wanted.items())


def cut_array(values: Array, cuts: Sequence[TensorCut]) -> Array:
    """What stays of an array."""
    # The second axis of a grouped weight is cut within blocks of the first, so it comes before the first is shortened.
    for item in sorted(cuts, key=lambda c: -c.blocks):
        if item.blocks == 1:
            values = np.take(values, item.kept, item.axis)
        else:
            width = item.size // item.blocks
            parts = np.split(values, item.blocks, 0)
            kept = [item.kept[item.kept // width == block] % width for block in range(item.blocks)]
            values = np.concatenate([np.take(part, k, 1) for part, k in zip(parts, kept)], 0)
    return np.ascontiguousarray(values)


def program_plan(model: ProgramLayer, plan: PrunePlan, shapes: Mapping[str, Shape]) -> ProgramPlan:
    """A plan for the live layer as a plan for the program that it was read from.

    Args:
        model: The layer, not cut.
        plan: What goes from it.
        shapes: Of the program's parameters, by name.
    """
    tensors = tensors_by_path(model)
    cuts: dict[str, dict[int, TensorCut]] = {}
    for item in plan.cuts:
        tensor = tensors[item.tensor]
        axis = _axis(item, tuple(tensor.shape), shapes[tensor.name], tensor.name)
        cuts.setdefault(tensor.name, {}).setdefault(axis, replace(item, axis=axis))
    found = {name: tuple(items.values()) for name, items in cuts.items()}
    groups = {
        tensors[f"{path}.weight"].name: values["_groups"]
        for path, values in plan.attributes.items()
        if "_groups" in values and f"{path}.weight" in tensors
    }
    whole = {name: tuple(shapes[name]) for name in found}
    left = {name: cut_array(np.empty(shape, bool), found[name]).shape for name, shape in whole.items()}
    return ProgramPlan(found, groups, whole, left)


def _axis(item: TensorCut, here: Shape, there: Shape, name: str) -> int:
    """Where the layer's axis is in the program: a bias may be laid out as ``[1, 8, 1, 1]`` there."""
    if here == tuple(there):
        return item.axis
    same = [axis for axis, side in enumerate(there) if side == item.size]
    if len(here) != 1 or len(same) != 1:
        raise InputError(
            f'"{name}" has the shape {list(there)} in the program and {list(here)} in the layer that was made of it; it cannot '
            "be pruned there."
        )
    return same[0]


def write_scope(scope: Any, values: Mapping[str, Array], place: Any = None) -> dict[str, Array]:
    """Give variables of a scope new values, all of them or none.

    Args:
        scope: Where they are.
        values: The new values by name; each name is there already.
        place: Where to put them; by default where each of them is.

    Returns:
        The values before.
    """
    before: dict[str, Array] = {}
    try:
        for name, new in values.items():
            old = scope_array(scope, name)
            if old is not None:
                before[name] = old
            _set(scope, name, new, place)
    except BaseException:
        run_through(lambda: _put_back(scope, before))
        raise
    return before


def _put_back(scope: Any, values: Mapping[str, Array]) -> None:
    for name, array in values.items():
        _set(scope, name, array, None)


def _set(scope: Any, name: str, values: Array, place: Any) -> None:
    tensor = scope.find_var(name).get_tensor()
    if place is None:
        here = tensor._place()
        place = paddle.CUDAPlace(here.gpu_device_id()) if here.is_gpu_place() else paddle.CPUPlace()
    try:
        tensor.set(values, place)
    except TypeError as error:
        raise InputError(
            f"Values cannot be put at {place!r:.80}; place has to be paddle.CPUPlace() or the like."
        ) from error
