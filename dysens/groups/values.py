"""Tensors as numbers to compare bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle

from dysens.inputs import leaves, map_leaves


def written(leaf: Any) -> bool:
    """Whether somebody has written into a tensor."""
    return isinstance(leaf, paddle.Tensor) and leaf.inplace_version > 0


def copied(tree: Any) -> Any:
    """The same dicts, lists and tuples with copies of their tensors."""
    return map_leaves(lambda leaf: leaf.clone() if isinstance(leaf, paddle.Tensor) else leaf, tree)


def numbers(tensor: paddle.Tensor) -> np.ndarray:
    """The values of a tensor; NumPy has no bfloat16, so low precision becomes float32, which is exact."""
    if tensor.dtype in (paddle.bfloat16, paddle.float16):
        tensor = tensor.astype("float32")
    return tensor.numpy()


def first_numbers(tree: Any) -> np.ndarray:
    """The values of the first tensor in dicts, lists and tuples."""
    return next(numbers(leaf) for leaf in leaves(tree) if isinstance(leaf, paddle.Tensor))


def bits(array: np.ndarray) -> np.ndarray:
    """The array as integers, so that comparing is exact and NaN equals itself."""
    return array.view(f"i{array.dtype.itemsize}") if array.dtype.kind == "f" else array


def differ(a: Any, b: Any) -> bool:
    """Whether two arrays differ in a bit; of other values only whether one is an array and one is not."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape != b.shape or a.dtype != b.dtype or bool((bits(a) != bits(b)).any())
    return isinstance(a, np.ndarray) != isinstance(b, np.ndarray)


def without_axis(shape: Any, axis: int) -> list[int]:
    """A shape less its channel axis."""
    sides = [int(side) for side in shape]
    del sides[axis]
    return sides
