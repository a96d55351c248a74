"""Example inputs (from shapes, tensors or dicts to the arguments of a forward pass), and a forward that can be watched."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.jit.dy2static.program_translator import ProgramTranslator

from dysens.errors import InputError
from dysens.model._state import DROPOUT_FUNCTIONS, all_tensors, has_storage, preserved, swap_storage

logger = logging.getLogger(__name__)


# Smaller than the first, feature maps of networks with five strides of two would vanish.
_SMALL, _MEDIUM = 64, 128


@dataclass(frozen=True)
class View:
    """One way to run the model: the positional arguments of its forward, and the mode.

    Attributes:
        arguments: The positional arguments.
        training: Whether the model is in training mode.
        implied: Whether nobody asked for it: a training forward that happens to run with the inputs of the other one. A cut
            has to leave it running; what it returns (features for a loss, say) may be cut.
        note: What is special about the arguments, for messages.
    """

    arguments: tuple[Any, ...]
    training: bool = False
    implied: bool = False
    note: str = ""

    @property
    def name(self) -> str:
        """The view in words, for messages."""
        kind = "training forward" if self.training else "forward"
        return f"{kind} {self.note}" if self.note else kind

    def varied(self) -> Iterator[View]:
        """The same view with several other inputs at once, in a larger batch, and then one by one."""
        variants = list(_variants(self.arguments))
        yield replace(self, arguments=_stacked(variants), note="on other inputs")
        yield from (replace(self, arguments=each, note="on other inputs") for each in variants)

    def shifted(self, by: float) -> View:
        """The same view with all that is in pictures larger, or smaller, by so many times its standard deviation."""
        moved = _changed(self.arguments, lambda values, _, width: values + by * width)
        return replace(self, arguments=moved, note=self.note or "on other inputs") if by else self

    def resized(self, ratios: Iterable[tuple[int, int]]) -> Iterator[View]:
        """The same view with pictures of another height, by ratios of the given one: (3, 2) is half as high again."""
        for ratio in ratios:
            sides = {t.shape[2] for t in leaves(self.arguments) if _is_picture(t)}
            if sides and all(side % ratio[1] == 0 for side in sides):
                taller = map_leaves(partial(_of_height, ratio=ratio), self.arguments)
                size = next(list(t.shape[2:]) for t in leaves(taller) if _is_picture(t))
                yield replace(self, arguments=taller, note=f"at a size of {size[0]}x{size[1]}")

    def fresh(self) -> tuple[Any, ...]:
        """Copies of the arguments: a forward may write into its inputs, and they are the user's."""
        return fresh(self.arguments)

    def smaller(self, least: int = _SMALL) -> Iterator[View]:
        """The same view with smaller pictures, smallest first; nothing if there is no large picture in it.

        Args:
            least: No side that is longer becomes shorter than this.
        """
        sides = [tuple(t.shape[2:]) for t in leaves(self.arguments) if _is_picture(t)]
        tried = set()
        # Recognition networks fix the height: then only the width can shrink.
        for limit in (
            lambda h, w: (min(h, least), min(w, least)),
            lambda h, w: (min(h, max(least, _MEDIUM)), min(w, max(least, _MEDIUM))),
            lambda h, w: (h, min(w, least)),
        ):
            wanted = tuple(limit(*side) for side in sides)
            if wanted not in tried and any(np.prod(w) * 2 <= np.prod(s) for w, s in zip(wanted, sides)):
                tried.add(wanted)
                yield replace(self, arguments=_resized(self.arguments, limit))


def _of_height(leaf: Any, ratio: tuple[int, int]) -> Any:
    if not _is_picture(leaf):
        return leaf
    rows = np.arange(leaf.shape[2] * ratio[0] // ratio[1]) % leaf.shape[2]
    return paddle.gather(leaf, paddle.to_tensor(rows), axis=2)


def _changed(
    arguments: tuple[Any, ...], change: Callable[[np.ndarray, float, float], np.ndarray]
) -> tuple[Any, ...]:
    """Other values, from the old ones with their mean and width, where pictures are.

    Where there are none, all numbers with at least two axes count as one.
    """
    pictures = any(_is_picture(leaf) for leaf in leaves(arguments))

    def one(leaf: Any) -> Any:
        if not (isinstance(leaf, paddle.Tensor) and leaf.is_floating_point() and leaf.ndim >= 2):
            return leaf
        if pictures and not _is_picture(leaf):
            return leaf  # the size or scale of a picture, which has to stay true
        values = leaf.astype("float32").numpy()
        middle, width = float(values.mean()), float(values.std())
        new = change(values, middle, width or abs(middle) or 1.0)
        return paddle.to_tensor(new.astype("float32")).astype(leaf.dtype)

    changed = map_leaves(one, arguments)
    assert isinstance(changed, tuple)
    return changed


def _variants(arguments: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Other inputs of the same shapes."""
    random = np.random.default_rng(0)
    yield _changed(arguments, lambda values, middle, _: (2 * middle - values)[..., ::-1])
    yield _changed(
        arguments, lambda values, middle, width: middle + 2 * width * random.standard_normal(values.shape)
    )
    yield _changed(
        # Each channel nearly even, and each at another level: what is pooled then differs most.
        arguments,
        lambda values, middle, width: (
            middle
            + 1.5 * width * random.standard_normal([*values.shape[:2], *[1] * (values.ndim - 2)])
            + 0.3 * (values - middle)
        ),
    )


def _stacked(variants: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Several sets of arguments as one batch."""
    each = [leaves(variant) for variant in variants]
    joined = iter(
        [
            paddle.concat(list(column))
            if isinstance(column[0], paddle.Tensor) and column[0].ndim
            else column[0]
            for column in zip(*each)
        ]
    )
    batch = map_leaves(lambda _: next(joined), variants[0])
    assert isinstance(batch, tuple)
    return batch


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
        changed = {key: map_leaves(function, value) for key, value in tree.items()}
        return changed if type(tree) is dict else _of_type(tree, changed)
    if isinstance(tree, (list, tuple)):
        items = [map_leaves(function, value) for value in tree]
        if type(tree) is list:
            return items
        if hasattr(tree, "_fields"):
            return type(tree)(*items)
        return tuple(items) if type(tree) is tuple else _of_type(tree, items)
    return function(tree)


def _of_type(tree: Any, contents: Any) -> Any:
    """Contents in a container of the tree's own type.

    Some types cannot be made from any contents: ``paddle.Size``, what Paddle 3.3 gives as the shape of a tensor, takes whole
    numbers only. It is copied where nothing in it changed, and becomes a plain list where it no longer holds a size.
    """
    if isinstance(tree, dict):
        filled = copy(tree)
        filled.update(contents)
        return filled
    if len(tree) == len(contents) and all(old is new for old, new in zip(tree, contents)):
        return copy(tree)
    try:
        return type(tree)(contents)
    except TypeError:
        return contents if isinstance(tree, list) else tuple(contents)


def fresh(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same arguments with copies of their tensors, dicts and lists."""
    copies = map_leaves(lambda leaf: leaf.clone() if isinstance(leaf, paddle.Tensor) else leaf, arguments)
    assert isinstance(copies, tuple)
    return copies


def leaves(tree: Any) -> list[Any]:
    """Everything in nested dicts, lists and tuples, in order."""
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in leaves(value)]
    if isinstance(tree, (list, tuple)):
        return [leaf for value in tree for leaf in leaves(value)]
    return [tree]


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
                    f"The input_shape {list(value)} has a side that is not positive; give a real size."
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
            f"The input_shape {inputs!r} holds no shape and no tensor; give a shape such as [1, 3, 224, 224], "
            "or the example arguments of the model's forward."
        )
    return View(arguments, training)


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) > 0
        and all(isinstance(side, (int, np.integer)) and not isinstance(side, bool) for side in value)
    )


_LOW = (paddle.float16, paddle.bfloat16)


@contextmanager
def eagerly(model: paddle.nn.Layer, views: Sequence[View]) -> Iterator[list[View]]:
    """Run a model layer by layer: `paddle.jit.to_static` is off, and on a CPU half precision becomes float32.

    Args:
        model: The live layer; it is left as found.
        views: How it is run.

    Yields:
        The views to use inside.
    """
    low = [tensor for tensor in all_tensors(model) if tensor.dtype in _LOW]
    with _no_static_graphs():
        if not low or not paddle.get_device().startswith("cpu"):
            yield list(views)
            return
        logger.info(
            "The weights are %s, which a CPU cannot compute with; float32 copies are used", low[0].dtype
        )
        with preserved(model):
            for tensor in low:
                swap_storage(tensor, tensor.detach().astype("float32"))
            yield [replace(view, arguments=map_leaves(_in_full, view.arguments)) for view in views]


def _in_full(leaf: Any) -> Any:
    return leaf.astype("float32") if isinstance(leaf, paddle.Tensor) and leaf.dtype in _LOW else leaf


@contextmanager
def in_double_precision(model: paddle.nn.Layer) -> Iterator[None]:
    """Hold a model's numbers in double precision within this context, to tell rounding from a real difference.

    What its forward makes without naming a kind (`paddle.zeros(shape)`) is in double precision, too.
    """
    kind = paddle.get_default_dtype()
    with preserved(model):
        for tensor in all_tensors(model):
            if tensor.dtype == paddle.float32 and has_storage(tensor):
                swap_storage(tensor, tensor.detach().astype("float64"))
        try:
            if kind == "float32":
                paddle.set_default_dtype("float64")
            yield
        finally:
            paddle.set_default_dtype(kind)


def doubled(arguments: Any) -> Any:
    """The same arguments in double precision."""
    return map_leaves(_as_double, arguments)


def _as_double(leaf: Any) -> Any:
    return (
        leaf.astype("float64") if isinstance(leaf, paddle.Tensor) and leaf.dtype == paddle.float32 else leaf
    )


@contextmanager
def _no_static_graphs() -> Iterator[None]:
    """A compiled forward would not call the layers inside, so there would be nothing to watch."""
    translator = ProgramTranslator()
    before = translator.enable_to_static
    translator.enable_to_static = False
    try:
        yield
    finally:
        translator.enable_to_static = before


@contextmanager
def without_dropout() -> Iterator[None]:
    """Dropout passes everything on: forwards of a whole and a cut model draw different numbers, and could not be compared."""
    before = {name: getattr(nn.functional, name) for name in DROPOUT_FUNCTIONS}
    try:
        for name in before:
            setattr(nn.functional, name, lambda x, *_, **__: x)
        yield
    finally:
        for name, function in before.items():
            setattr(nn.functional, name, function)
