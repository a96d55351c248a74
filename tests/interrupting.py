"""Press Ctrl-C, or kill the process, at a chosen line of dysens: at a place in the code, not at a moment in time.

Ctrl-C is a real SIGINT, so that whoever holds signals back gets the chance to.
"""

from __future__ import annotations

import linecache
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import dysens

PACKAGE = str(Path(dysens.__file__).parent)
Place = tuple[str, int]  # file and line


@contextmanager
def interrupts_raise() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt in here, also where the tests were started with SIGINT ignored, as nohup does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


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
        with interrupts_raise():
            _traced(action, press)
    except KeyboardInterrupt:
        return True
    return False


def kill_at(action: Callable[[], Any], count: int) -> None:
    """Run the action and kill this process, without a chance to clean up, as the n-th line of dysens runs in it."""
    left = count

    def kill(place: Place) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    _traced(action, kill)


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
