"""One progress bar for everything that takes long."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm.auto import tqdm

log = logging.getLogger("dysens")

# How often a line is logged where no bar can be drawn.
_SECONDS_BETWEEN_LINES = 60.0


class Progress:
    """Counts steps: as a bar on a terminal or in a notebook, else as one log line a minute."""

    def __init__(self, total: int, what: str, shown: bool) -> None:
        self._total = total
        self._what = what
        self._done = 0
        self._spoke = time.monotonic()
        self._shown = shown
        drawn = shown and (sys.stderr.isatty() or "ipykernel" in sys.modules)
        self._bar = tqdm(total=total, desc=what, leave=True, dynamic_ncols=True) if drawn else None

    def step(self, note: str = "") -> None:
        """One more is done; ``note`` says what was last."""
        self._done += 1
        if self._bar is not None:
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update()
        elif self._shown and time.monotonic() - self._spoke >= _SECONDS_BETWEEN_LINES:
            self._spoke = time.monotonic()
            log.info("%s: %d of %d, %s", self._what, self._done, self._total, note)

    def close(self) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()


@contextmanager
def progress(total: int, what: str, shown: bool = True) -> Iterator[Progress]:
    """A progress display for ``total`` steps."""
    display = Progress(total, what, shown)
    try:
        yield display
    finally:
        display.close()
