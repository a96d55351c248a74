"""What a user sees while something takes long: one progress bar, and the package's log on a terminal."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm.auto import tqdm

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)  # a long job without a terminal says where it is; see dysens/__init__.py

# How often a line is logged where no bar can be drawn.
_SECONDS_BETWEEN_LINES = 60.0

# Seconds after which work of unknown length is first reported, and between later reports, while a command shows the log. Called
# from Python, where Paddle 3 shows such lines in a format of its own, it is reported once a minute, as a bar is.
_FIRST_WORD, _NEXT_WORD = 2.0, 10.0


class Progress:
    """Counts points: as a bar on a terminal or in a notebook, else as one log line a minute.

    Args:
        total: How many points there are, as far as is known.
        what: What is being done, in a word.
        shown: False to show nothing at all.
        done: How many points were there before; the remaining time is not guessed from them.
        unit: What is counted, in a word.
    """

    def __init__(self, total: float, what: str, shown: bool, done: float = 0, unit: str = "point") -> None:
        self._total = total
        self._unit = unit
        self._what = what
        self._shown = shown
        self._before = self._done = done
        self._begun = self._spoke = time.monotonic()
        self._where = ""
        self._last = ""
        drawn = shown and (sys.stderr.isatty() or in_notebook())
        self._bar = (
            tqdm(
                total=total,
                initial=done,
                desc=what,
                unit=unit,
                leave=True,
                dynamic_ncols=True,
                bar_format=_bar_format(total),
            )
            if drawn
            else None
        )

    def at(self, where: str) -> None:
        """Show what is being worked on now."""
        self._where = where
        self._tell()

    def last(self, loss: float) -> None:
        """Set the loss of the last point; it is shown with the next update."""
        self._last = f"last loss {loss:.4f}"

    def reach(self, done: float, total: float | None = None) -> None:
        """So many points are done in all, of so many, if that is known better now."""
        advanced, self._done = done - self._done, done
        if total is not None:
            self._total = total
            if self._bar is not None:
                self._bar.total = total
        if self._bar is not None and advanced:
            self._bar.update(advanced)
        self._tell()

    def finish(self) -> None:
        """There is less to do than was thought: what is done is all."""
        self._total = self._done
        if self._bar is not None:
            self._bar.total = self._done
            self._bar.refresh()

    def _tell(self) -> None:
        # The loss first: names are long, and a bar is cut off at the edge of the terminal.
        note = ", ".join(part for part in (self._last, self._where) if part)
        if self._bar is not None:
            self._bar.set_postfix_str(note)
        elif self._shown and time.monotonic() - self._spoke >= _SECONDS_BETWEEN_LINES:
            self._spoke = time.monotonic()
            logger.info(
                "%s: %s of %s%s %ss, %s left%s",
                self._what,
                _number(self._done),
                "about " * (not isinstance(self._total, int)),
                _number(self._total),
                self._unit,
                self._left(),
                note and f", {note}",
            )

    def _left(self) -> str:
        """The remaining time in words."""
        measured = self._done - self._before
        if measured <= 0:
            return "unknown time"
        seconds = (time.monotonic() - self._begun) / measured * (self._total - self._done)
        return str(tqdm.format_interval(seconds))

    def close(self) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.1f}"


def _bar_format(total: float) -> str | None:
    """How a bar shows numbers that are not whole; None for tqdm's own way."""
    if isinstance(total, int):
        return None
    numbers = "{n:.1f} of about {total:.1f} {unit}s"
    return "{desc}: {percentage:3.0f}%|{bar}| " + numbers + " [{elapsed}<{remaining}{postfix}]"


@contextmanager
def progress(
    total: float, what: str, shown: bool = True, done: float = 0, unit: str = "point"
) -> Iterator[Progress]:
    """A progress display; see `Progress`."""
    display = Progress(total, what, shown, done, unit)
    try:
        yield display
    finally:
        display.close()


class _Work:
    """Work of unknown length, counted in steps."""

    def __init__(self, what: str, unit: str) -> None:
        shown = any(isinstance(each, _BesideTheBar) for each in logging.getLogger("dysens").handlers)
        first, self._pause = (_FIRST_WORD, _NEXT_WORD) if shown else (_SECONDS_BETWEEN_LINES,) * 2
        self._what, self._unit = what, unit
        self._begun = time.monotonic()
        self._next = self._begun + first
        self._steps = 0

    def step(self) -> None:
        """One more is done; say so if it is time."""
        self._steps += 1
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._pause
            logger.info("%s: %d %s in %.0f s so far", self._what, self._steps, self._unit, now - self._begun)


_at_work: list[_Work] = []


@contextmanager
def at_work(what: str, unit: str = "forwards") -> Iterator[None]:
    """Report now and then that work goes on: soon and often under a command; it calls `step_done` at every step.

    Args:
        what: What is being done, in words.
        unit: What is counted, as there are many.
    """
    _at_work.append(_Work(what, unit))
    try:
        yield
    finally:
        _at_work.pop()


def step_done() -> None:
    """Count one step of the work that `at_work` reports; does nothing outside it."""
    if _at_work:
        _at_work[-1].step()


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this code. A loaded ipykernel is no evidence: other packages load it too."""
    loaded = sys.modules.get("IPython")
    return loaded is not None and hasattr(loaded.get_ipython(), "kernel")


class _BesideTheBar(logging.Handler):
    """Writes to standard error, above a progress bar if one is drawn there."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message."""
        tqdm.write(self.format(record), file=sys.stderr)


@contextmanager
def shown_log(level: int = logging.INFO) -> Iterator[None]:
    """Show what dysens logs on standard error, from a level on.

    Args:
        level: The lowest level that is shown.
    """
    logger = logging.getLogger("dysens")
    handler = _BesideTheBar()
    handler.setLevel(level)  # the logger of this module has a level of its own
    handler.setFormatter(logging.Formatter("%(message)s"))
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])  # an assignment would leave what children remember of the old level
        logger.propagate = before[1]
