"""The one place that imports ppdet: with a sentence where it is missing, and without the noise it makes."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

from dysens.adapters.det.paddle3_compat import mend_ppdet
from dysens.adapters.installing import install_command
from dysens.errors import MissingExtraError

logger = logging.getLogger(__name__)


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
