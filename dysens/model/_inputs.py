"""Example inputs: from what a user hands in (shapes, tensors, dicts) to the arguments of a forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from dysens.errors import InputError

# Smaller than the first, feature maps of networks with five strides of two would vanish.
_SMALL, _MEDIUM = 64, 128


@dataclass(frozen=True)
class View:
    """One way to run the model: the positional arguments of its forward, and the mode."""

    arguments: tuple[Any, ...]
    training: bool = False

    @property
    def name(self) -> str:
        """The view in words, for messages."""
        return "training forward" if self.training else "forward"

    def smaller(self) -> Iterator[View]:
        """The same view with smaller pictures, smallest first; nothing if there is no large picture in it."""
        sides = [tuple(t.shape[2:]) for t in leaves(self.arguments) if _is_picture(t)]
        tried = set()
        # Recognition networks fix the height: then only the width can shrink.
        for limit in (
            lambda h, w: (min(h, _SMALL), min(w, _SMALL)),
            lambda h, w: (min(h, _MEDIUM), min(w, _MEDIUM)),
            lambda h, w: (h, min(w, _SMALL)),
        ):
            wanted = tuple(limit(*side) for side in sides)
            if wanted not in tried and any(np.prod(w) * 2 <= np.prod(s) for w, s in zip(wanted, sides)):
                tried.add(wanted)
                yield View(_resized(self.arguments, limit), self.training)


def _is_picture(tensor: Any) -> bool:
    return isinstance(tensor, paddle.Tensor) and tensor.ndim == 4 and tensor.is_floating_point()


def _resized(tree: Any, limit: Callable[[int, int], tuple[int, int]]) -> Any:
    def shrink(tensor: Any) -> Any:
        if not _is_picture(tensor):
            return tensor
        height, width = limit(*tensor.shape[2:])
        return tensor[:, :, :height, :width].clone()

    return map_leaves(shrink, tree)


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply ``function`` to everything in nested dicts, lists and tuples, and keep their shape."""
    if isinstance(tree, dict):
        return type(tree)((key, map_leaves(function, value)) for key, value in tree.items())
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_leaves(function, value) for value in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_leaves(function, value) for value in tree)
    return function(tree)


def leaves(tree: Any) -> list[Any]:
    """Everything in nested dicts, lists and tuples, in order."""
    found: list[Any] = []
    map_leaves(found.append, tree)
    return found


def view_of(inputs: Any, dtype: str = "float32", training: bool = False) -> View:
    """Read what a user gives as ``input_shape`` (or ``train_inputs``).

    Args:
        inputs: A shape ``[1, 3, 32, 32]``; several shapes ``[[1, 3, 32, 32], [1, 4]]``, one per positional argument; a tensor
            or array; a dict or list, which is one argument; a tuple of positional arguments. Shapes may stand for tensors
            anywhere in dicts and tuples.
        dtype: What tensors made from shapes hold.
        training: Whether the model is called in training mode.
    """
    random = np.random.default_rng(0)

    def read(value: Any) -> Any:
        if _is_shape(value):
            if any(int(side) <= 0 for side in value):
                raise InputError(
                    f"input_shape {list(value)} has a side that is not positive; give a real size."
                )
            return paddle.to_tensor(
                random.standard_normal([int(side) for side in value]).astype("float32")
            ).astype(dtype)
        if isinstance(value, np.ndarray):
            return paddle.to_tensor(value)
        if isinstance(value, dict):
            return {key: read(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(read(item) for item in value)
        return value

    if _is_shape(inputs):
        arguments: tuple[Any, ...] = (read(list(inputs)),)
    elif isinstance(inputs, list) and inputs and all(_is_shape(item) for item in inputs):
        arguments = tuple(read(item) for item in inputs)
    elif isinstance(inputs, tuple):
        arguments = read(inputs)
    else:
        arguments = (read(inputs),)
    if not any(isinstance(leaf, paddle.Tensor) for leaf in leaves(arguments)):
        raise InputError(
            f"input_shape {inputs!r} holds no shape and no tensor; give a shape such as [1, 3, 224, 224], "
            "or the example arguments of the model's forward."
        )
    return View(arguments, training)


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) > 0
        and all(isinstance(side, (int, np.integer)) and not isinstance(side, bool) for side in value)
    )
