"""Paddle exports and compiles without its remarks for people who write networks."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quietly() -> Iterator[None]:
    """Hush Python warnings, the log of Paddle's converter, and what its C++ code prints to standard output."""
    converter = logging.getLogger("dy2static")
    level = converter.level
    converter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), _output_to_errors():
            warnings.simplefilter("ignore")
            yield
    finally:
        converter.setLevel(level)


@contextmanager
def _output_to_errors() -> Iterator[None]:
    """What C++ code prints goes to standard error, so that a program's own output stays clean."""
    if sys.stdout is not None:
        sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # there is no standard output
        yield
        return
    try:
        os.dup2(2, 1)
        yield
    finally:
        if os.name == "posix":
            ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
