"""The package's log on a terminal: for programs. Library code only logs, and never decides who reads it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm


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
    handler.setFormatter(logging.Formatter("%(message)s"))
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before
