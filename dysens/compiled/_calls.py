"""Calls taken apart: the tensors of nested arguments or outputs, and the shape of what held them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from dysens.model import map_leaves

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
    """The arguments of one call of a live layer."""
    return packed((arguments, dict(keywords)), _is_eager)


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
    a, b = (np.asarray(t.astype("float64").numpy()) for t in (ours, theirs))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    gaps = np.abs(np.where(same, 0.0, a - b))
    largest = np.max(np.abs(b), initial=0.0, where=np.isfinite(b))
    worst = float(np.max(gaps) / (largest + 1e-12))
    return worst if np.isfinite(worst) else float("inf")
