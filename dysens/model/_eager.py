"""A forward that can be watched: plain eager execution, in a precision that the device can compute."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import paddle
from paddle import nn
from paddle.jit.dy2static.program_translator import ProgramTranslator

from dysens.model._inputs import View, map_leaves
from dysens.model._state import DROPOUT_FUNCTIONS, all_tensors, has_storage, preserved, swap_storage

logger = logging.getLogger(__name__)

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
            "the weights are %s, which a CPU cannot compute with; float32 copies are used", low[0].dtype
        )
        with preserved(model):
            for tensor in low:
                swap_storage(tensor, tensor.detach().astype("float32"))
            yield [replace(view, arguments=map_leaves(_in_full, view.arguments)) for view in views]


def _in_full(leaf: Any) -> Any:
    return leaf.astype("float32") if isinstance(leaf, paddle.Tensor) and leaf.dtype in _LOW else leaf


@contextmanager
def in_double_precision(model: paddle.nn.Layer) -> Iterator[None]:
    """For a while, let a model hold its numbers in double precision, to tell rounding from a real difference."""
    with preserved(model):
        for tensor in all_tensors(model):
            if tensor.dtype == paddle.float32 and has_storage(tensor):
                swap_storage(tensor, tensor.detach().astype("float64"))
        yield


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
