"""What paddledet 2.6.0 needs to train and to be exported on Paddle 3.

Its label assigners add an int64 index to one of the labels' type, and its readers give labels as int32: Paddle 2 took the
sum, Paddle 3 refuses to promote integers. The assigners accept int64 labels, so they are handed those. PaddleDetection's
development branch has the same cure inside; there the wrapper changes nothing.

Its non-maximum suppression adds an operator to the kind of program that Paddle 2 traces. The programs of Paddle 3 take the same
operator by a call, so that the detector can be compiled: for a sweep, and for export.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import paddle

LABELS = "gt_labels"
# In the order of the operator.
_NMS_ARGUMENTS = (
    "bboxes",
    "scores",
    "rois_num",
    "score_threshold",
    "nms_top_k",
    "keep_top_k",
    "nms_threshold",
    "normalized",
    "nms_eta",
    "background_label",
)


def mend_ppdet(assigners: ModuleType, operators: ModuleType) -> None:
    """Changes what has to be changed on Paddle 3; called once, when ppdet is imported.

    Args:
        assigners: ``ppdet.modeling.assigners``.
        operators: ``ppdet.modeling.ops``.
    """
    if int(paddle.__version__.split(".")[0]) >= 3:
        _mend_assigners(assigners)
        operators.multiclass_nms = _traceable(operators.multiclass_nms)  # type: ignore[attr-defined]


def _traceable(multiclass_nms: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(multiclass_nms)

    @functools.wraps(multiclass_nms)
    def mended(*args: Any, **kwargs: Any) -> Any:
        if paddle.in_dynamic_mode():
            return multiclass_nms(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        rows, index, counts = paddle._C_ops.multiclass_nms3(*(given[name] for name in _NMS_ARGUMENTS))
        return rows, counts, index if given["return_index"] else None

    return mended


def _mend_assigners(assigners: ModuleType) -> None:
    """Wraps the ``forward`` of every assigner class that is handed labels."""
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
