"""The one place that imports ppdet: with a sentence where it is missing, and with what it needs on Paddle 3."""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import paddle

from dysens.adapters._installing import install_command
from dysens.errors import MissingExtraError

logger = logging.getLogger(__name__)

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


def import_ppdet(module: str) -> ModuleType:
    """Imports ``ppdet.<module>``.

    Raises:
        MissingExtraError: ppdet, or something that it needs, is not installed.
    """
    _import_once()
    return import_module(f"ppdet.{module}")


@functools.cache
def _import_once() -> None:
    """ppdet prints what it cannot use (trackers, VisualDL) while it is imported; that goes to the log instead."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Importing the package registers all of its classes.
            import_module("ppdet")
            initialized = import_module("ppdet.utils.logger").logger_initialized
            mend_ppdet(import_module("ppdet.modeling.assigners"), import_module("ppdet.modeling.ops"))
    except ImportError as error:
        raise MissingExtraError(
            f"PaddleDetection cannot be imported ({error}). Install it with: {install_command('det')} (or put a "
            "PaddleDetection checkout on PYTHONPATH instead of paddledet)."
        ) from error
    if printed.getvalue():
        logger.debug("Importing ppdet printed: %s", printed.getvalue())
    # ppdet's loggers bound the stream that stood for stdout during the import.
    for name in initialized:
        for handler in logging.getLogger(name).handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is printed:
                handler.setStream(sys.stdout)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps ppdet's and pycocotools' progress lines off stdout; warnings still come through."""
    loggers = [logging.getLogger(name) for name in import_ppdet("utils.logger").logger_initialized]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(max(each.level, logging.WARNING))
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        for each, level in zip(loggers, levels):
            each.setLevel(level)
