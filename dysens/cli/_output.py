"""Where a command's words go: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from typing import Any, TextIO


class Output:
    """What a command says.

    Args:
        results: Gets results and nothing else.
        as_json: Results are JSON.
        quiet: Only results, warnings and errors are shown.
    """

    def __init__(self, results: TextIO, as_json: bool = False, quiet: bool = False) -> None:
        self._results = results
        self.as_json = as_json
        self.quiet = quiet

    @property
    def width(self) -> int | None:
        """Columns of the terminal that shows the results; None if it is a file or another program."""
        return shutil.get_terminal_size().columns if self._results.isatty() else None

    def result(self, text: str, data: Any) -> None:
        """What was asked for: as text, or as data with ``--json``."""
        self._results.write((json_text(data) if self.as_json else text) + "\n")
        self._results.flush()

    def printing(self) -> AbstractContextManager[TextIO]:
        """For what prints its results itself."""
        return redirect_stdout(self._results)

    def say(self, text: str) -> None:
        """What a person wants to know besides."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)


def json_text(data: Any) -> str:
    """Strict JSON; what is no finite number is null."""
    return json.dumps(_strict(data), allow_nan=False, ensure_ascii=False, indent=1)


def _strict(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {str(key): _strict(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_strict(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return data


@contextmanager
def results_apart() -> Iterator[TextIO]:
    """Standard output for results alone: what anybody else prints, in Python or in C++, goes to standard error."""
    results = sys.stdout
    if not _is_descriptor(results, 1):
        with redirect_stdout(sys.stderr):
            yield results
        return
    results.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        # A terminal that knows only ASCII gets escapes for names beyond it, rather than nothing.
        with os.fdopen(os.dup(kept), "w", encoding=results.encoding, errors="backslashreplace") as apart:
            yield apart
    finally:
        results.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _is_descriptor(stream: TextIO, number: int) -> bool:
    try:
        return stream.fileno() == number
    except (AttributeError, OSError, ValueError):  # it is no file: a test's or a notebook's
        return False
