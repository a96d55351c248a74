"""What paddledet 2.6.0 needs to train on Paddle 3.

Its label assigners add an int64 index to one of the labels' type, and its readers give labels as int32: Paddle 2 took the
sum, Paddle 3 refuses to promote integers. The assigners accept int64 labels, so they are handed those. PaddleDetection's
development branch has the same cure inside; there the wrapper changes nothing.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import paddle

LABELS = "gt_labels"


def mend_assigners(assigners: ModuleType) -> None:
    """Wraps the ``forward`` of every assigner class that is handed labels; called once, when ppdet is imported."""
    if int(paddle.__version__.split(".")[0]) < 3:
        return
    assigner: Any
    for _, assigner in inspect.getmembers(assigners, inspect.isclass):
        forward = assigner.__dict__.get("forward")
        if forward is not None and LABELS in inspect.signature(forward).parameters:
            assigner.forward = _with_int64_labels(forward)


def _with_int64_labels(forward: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(forward)

    @functools.wraps(forward)
    def mended(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        labels = bound.arguments[LABELS]
        if isinstance(labels, paddle.Tensor) and labels.dtype == paddle.int32:
            bound.arguments[LABELS] = labels.astype("int64")
        return forward(*bound.args, **bound.kwargs)

    return mended
