"""Calls taken apart: the tensors of nested arguments or outputs, the shape of what held them, and the masks that go along."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from dysens.groups import ChannelGroup, Role
from dysens.model import map_leaves, tensors_by_path
from dysens.pruning import PrunePlan, TensorCut

# What may stand beside tensors. (A number that a forward makes from a size that varies comes out as -1 when it is traced, so
# comparing with the live forward finds it.)
_PLAIN = (type(None), bool, str, int, float)


class UnservableError(Exception):
    """Why a compiled copy cannot stand in for the live forward, as a clause."""


@dataclass(frozen=True)
class _Slot:
    """Stands where tensor number ``index`` was."""

    index: int


@dataclass(frozen=True)
class Packed:
    """Nested values without their tensors.

    Attributes:
        tree: The nesting, with a `_Slot` for every tensor.
        tensors: The tensors, each object once.
    """

    tree: Any
    tensors: tuple[Any, ...]

    def unpacked(self, tensors: Sequence[Any]) -> Any:
        """The nesting around other tensors."""
        return map_leaves(lambda leaf: tensors[leaf.index] if isinstance(leaf, _Slot) else leaf, self.tree)


def packed(tree: Any, is_tensor: Callable[[Any], bool], plain: tuple[type, ...] = _PLAIN) -> Packed:
    """Take the tensors out of nested dicts, lists and tuples.

    Args:
        tree: The nested values.
        is_tensor: Tells a tensor from what is to stay.
        plain: The types that may stay.

    Raises:
        UnservableError: Something is neither.
    """
    tensors: dict[int, Any] = {}
    order: dict[int, int] = {}

    def take(leaf: Any) -> Any:
        if is_tensor(leaf):
            tensors[id(leaf)] = leaf
            return _Slot(order.setdefault(id(leaf), len(order)))
        if not isinstance(leaf, plain):
            raise UnservableError(f"there is a {type(leaf).__name__} beside the tensors")
        return leaf

    tree = map_leaves(take, tree)
    return Packed(tree, tuple(tensors.values()))


def packed_call(arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Packed:
    """The arguments of one call of a live layer.

    Raises:
        UnservableError: A forward may depend on more of them than a copy is given.
    """
    call = packed((arguments, dict(keywords)), _is_eager)
    for tensor in call.tensors:
        own = getattr(tensor, "__dict__", None)
        if own and not isinstance(tensor, paddle.base.framework.EagerParamBase):
            raise UnservableError(f'an input has attributes of its own ("{next(iter(own))}")')
    return call


def _is_eager(leaf: Any) -> bool:
    return isinstance(leaf, paddle.Tensor)


def rows_of(call: Packed) -> int | None:
    """How many samples a call has; None if its tensors do not agree on that."""
    leading = {tensor.shape[0] if len(tensor.shape) else None for tensor in call.tensors}
    return leading.pop() if len(leading) == 1 else None


def signature_of(call: Packed) -> str:
    """What a forward without memory may depend on, besides the values of tensors."""
    return f"{call.tree} {[(str(tensor.dtype), *tensor.shape) for tensor in call.tensors]}"


def kind_of(call: Packed) -> str:
    """Calls of one kind differ in nothing but the sizes of their tensors."""
    return f"{call.tree} {[(str(tensor.dtype), len(tensor.shape)) for tensor in call.tensors]}"


# Outputs are compared in double precision, a piece at a time: those of a text recogniser would take a hundred MiB.
_COMPARED_AT_ONCE = 2**18


def largest_difference(ours: Any, theirs: Any) -> float:
    """How far two nested outputs lie apart, relative to the largest value of each tensor; infinite if built differently."""
    one, other = packed(ours, _is_eager, (object,)), packed(theirs, _is_eager, (object,))
    if repr(one.tree) != repr(other.tree) or len(one.tensors) != len(other.tensors):
        return float("inf")
    return max((_difference(a, b) for a, b in zip(one.tensors, other.tensors)), default=0.0)


def _difference(ours: paddle.Tensor, theirs: paddle.Tensor) -> float:
    if list(ours.shape) != list(theirs.shape) or ours.dtype != theirs.dtype:
        return float("inf")
    if ours.size == 0:
        return 0.0
    gap = largest = 0.0
    one, other = ours.reshape([-1]), theirs.reshape([-1])
    for start in range(0, one.shape[0], _COMPARED_AT_ONCE):
        a, b = (t[start : start + _COMPARED_AT_ONCE].astype("float64").numpy() for t in (one, other))
        largest = max(largest, float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b))))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        if not same.all():
            gaps = np.abs(np.where(same, 0.0, a - b))
            gap = max(gap, np.inf if np.isnan(gaps).any() else float(gaps.max()))
    worst = gap / (largest + 1e-12)
    return worst if np.isfinite(worst) else float("inf")


@dataclass(frozen=True, eq=False)
class Consumer:
    """A layer whose input channels can be switched off.

    Attributes:
        path: Where it is in the model.
        layer: The live layer.
        shape: Of a mask that multiplies its input: all ones but for the axis of the channels.
    """

    path: str
    layer: paddle.nn.Layer
    shape: tuple[int, ...]


class Consumers:
    """All layers that consume channels of some groups.

    Zeroing the weights of a consuming layer along its input channels equals zeroing its input there. A weight that several
    layers share is zeroed for all of them, so each of them is masked.

    Args:
        model: The live layer.
        roles: Its layers with weights.
        groups: Whose channels will be masked.

    Attributes:
        recurrent: A layer that reads channels of a group inside itself, where no mask of an input reaches them; None if there
            is none.
    """

    def __init__(
        self, model: paddle.nn.Layer, roles: Mapping[str, Role], groups: Sequence[ChannelGroup]
    ) -> None:
        self._tensors = {path: id(tensor) for path, tensor in tensors_by_path(model).items()}
        masked = {
            (self._tensors[piece.tensor], piece.axis)
            for group in groups
            for port in group.units
            if port.side == "in"
            for piece in port.slices
        }
        inside = (port.layer for group in groups for port in group.units if port.reads_inside)
        self.recurrent = next(inside, None)
        self.all: list[Consumer] = []
        self._fed: dict[tuple[int, int], list[int]] = {}
        for role in roles.values():
            if role.kind == "passing" or role.inputs is None:
                continue
            slots = {(self._tensors[piece.tensor], piece.axis) for piece in role.inputs.slices} & masked
            for slot in slots:
                self._fed.setdefault(slot, []).append(len(self.all))
            if slots:
                self.all.append(Consumer(role.path, role.layer, _mask_shape(role)))

    def masks(self, plan: PrunePlan | None) -> dict[str, np.ndarray]:
        """One mask per consumer, by path: 0 where the plan's masks zero its weights, else 1."""
        masks = [np.ones(consumer.shape, "float32") for consumer in self.all]
        for item in plan.masks if plan is not None else ():
            for index in self._fed.get((self._tensors[item.tensor], item.axis), ()):
                masks[index].reshape(-1)[list(item.removed)] = 0.0
        return {consumer.path: mask for consumer, mask in zip(self.all, masks)}

    def paths_fed(self, mask: TensorCut) -> set[str]:
        """The consumers whose input a mask switches off."""
        return {self.all[index].path for index in self._fed[self._tensors[mask.tensor], mask.axis]}


def _mask_shape(role: Role) -> tuple[int, ...]:
    assert role.inputs is not None
    if role.input_axis == -1:
        return (role.inputs.size,)
    # Channels on axis 1 are those of a convolution, and its weight has the rank of its input.
    return (1, role.inputs.size, *[1] * (role.layer.weight.ndim - 2))
