"""Ctrl-C at a bad moment: what cleans up runs to its end, and only then the interrupt is raised.

A ``finally`` is not enough: the interrupt may come inside it. So, while a clean-up is due, dysens stands before the user's
handler of SIGINT and looks where the program is: inside a clean-up the interrupt waits, anywhere else it passes on at once.

Paddle 3 asks Python for the call stack of every operation that it traces, and does not look whether it got one: an interrupt
inside that question, or on the way into it, would end the process with a segmentation fault. So it waits there, too, and
while Paddle makes a program of a forward it waits until that is made.
"""

from __future__ import annotations

import inspect
import signal
import threading
from collections.abc import Callable, Iterator
from traceback import FrameSummary, extract_stack
from types import CodeType, FrameType
from typing import Any, TypeVar

from paddle.jit.dy2static.program_translator import ConcreteProgram

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _tracing() -> Iterator[CodeType]:
    """The code in which Paddle makes programs, and that which it asks for the call stack."""
    yield extract_stack.__code__
    yield FrameSummary.line.fget.__code__  # type: ignore[attr-defined]
    for name in ("from_func_spec", "pir_from_func_spec"):
        if hasattr(ConcreteProgram, name):
            yield inspect.unwrap(getattr(ConcreteProgram, name)).__code__


class Watch:
    """Stands before the user's handler of SIGINT. There is one, as there is one SIGINT: `WATCH`."""

    def __init__(self) -> None:
        self._users: Callable[..., Any] = signal.default_int_handler
        self._clean_ups: set[CodeType] = {*_tracing()}
        self._waiting: list[tuple[int, FrameType | None]] = []

    def clean_up(self, function: _Function) -> _Function:
        """Mark a function that Ctrl-C must not break off."""
        self._clean_ups.add(function.__code__)
        return function

    def begin(self) -> bool:
        """Step before the user's handler; whether this call did it, and so has to give it back."""
        handler = signal.getsignal(signal.SIGINT)
        # Only the main thread gets interrupts. Who ignores them, or dies of them, has no handler to stand before.
        if not _in_main_thread() or not callable(handler) or handler == self._handle:
            return False
        self._users = handler
        signal.signal(signal.SIGINT, self._handle)
        return True

    @property
    def waiting(self) -> bool:
        """Whether an interrupt waits for its turn."""
        return bool(self._waiting) and _in_main_thread()

    def end(self, began: bool) -> None:
        """Step aside, if `begin` stepped in, and let the user's handler have what waited."""
        if began and signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, self._users)
        if self.waiting:
            event = self._waiting[0]
            self._waiting.clear()
            self._users(*event)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._is_cleaning_up(frame):
            self._waiting.append((number, frame))
        else:
            self._users(number, frame)

    def _is_cleaning_up(self, frame: FrameType | None) -> bool:
        while frame is not None:
            if frame.f_code in self._clean_ups:
                return True
            frame = frame.f_back
        return False


WATCH = Watch()


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def run_through(function: Callable[[], object]) -> None:
    """Call a function that Ctrl-C must not break off; an interrupt is raised when it is through."""
    began = WATCH.begin()
    try:
        _unbroken(function)
    finally:
        WATCH.end(began)


@WATCH.clean_up
def _unbroken(function: Callable[[], object]) -> None:
    function()
