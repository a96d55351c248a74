"""Press Ctrl-C at a chosen line of dysens: a real SIGINT, so that whoever holds signals back gets the chance to."""

from __future__ import annotations

import linecache
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import dysens

PACKAGE = str(Path(dysens.__file__).parent)
Place = tuple[str, int]  # file and line


def places_of(action: Callable[[], Any]) -> Counter[Place]:
    """How often each line of dysens runs in this action."""
    seen: Counter[Place] = Counter()
    _traced(action, lambda place: seen.update([place]))
    return seen


def interrupted(action: Callable[[], Any], where: Place, visit: int = 1) -> bool:
    """Run the action and press Ctrl-C as this line runs for the n-th time; whether KeyboardInterrupt came out."""
    left = visit

    def press(place: Place) -> None:
        nonlocal left
        if place == where:
            left -= 1
            if left == 0:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)

    try:
        _traced(action, press)
    except KeyboardInterrupt:
        return True
    return False


def _traced(action: Callable[[], Any], at_line: Callable[[Place], None]) -> None:
    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        return inside() if frame.f_code.co_filename.startswith(PACKAGE) else None

    def inside() -> Any:
        opened: set[int] = set()

        def watch(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "line":
                file, line = frame.f_code.co_filename, frame.f_lineno
                is_with = linecache.getline(file, line).lstrip().startswith("with ")
                # A `with` line shows up again when its block is left. Python delivers no signal there, before
                # __exit__ has begun; a tracer could raise one, so it must not.
                if not (is_with and line in opened):
                    at_line((file, line))
                if is_with:
                    opened.add(line)
            return watch

        return watch

    previous = sys.gettrace()
    sys.settrace(entered)
    try:
        action()
    finally:
        sys.settrace(previous)
