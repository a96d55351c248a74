"""Reads a journal as it grows: what was read once is not read again."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from typing import BinaryIO

from dysens.errors import InputError, JournalError
from dysens.ratios import ratio_key
from dysens.results._points import Header, Point
from dysens.results._records import Claim, Record, Release, decode

logger = logging.getLogger(__name__)

MAX_LINE_BYTES = 16 * 2**20
"""A longer line is no record; it is passed over without being held in memory."""

Key = tuple[str, float]
"""What a point is known by: its layer path (its parameter name if there is no path) and its ratio."""


class JournalReader:
    """What a journal file says so far.

    Lines that are no records are counted in ``problems`` and skipped. A last line without its newline may
    still be under way in another process, so it counts only in `settle`.

    Attributes:
        header: The newest header, or None.
        points: The full points, by key; of two for one key the later counts.
        partials: Points that saw only part of the data, by key.
        claims: Claims whose point hasn't come yet, by key.
        problems: Line number to what is wrong with that line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()
        self._rewind()

    def _forget(self) -> None:
        self.header: Header | None = None
        self.points: dict[Key, Point] = {}
        self.partials: dict[Key, Point] = {}
        self.claims: dict[Key, Claim] = {}

    def _rewind(self) -> None:
        self.problems: dict[int, str] = {}
        self._reported: set[int] = set()
        self._identity: tuple[int, int] | None = None
        self._offset = 0
        self._lines = 0

    @property
    def is_empty(self) -> bool:
        """Whether no record was found."""
        return self.header is None and not (self.points or self.partials or self.claims)

    def key(self, param: str, path: str, ratio: float) -> Key:
        """How the file knows a point: by path, since automatic names shift from process to process."""
        if not path and self.header is not None:
            path = self.header.paths.get(param, "")
        return (path or param, ratio_key(ratio))

    def refresh(self) -> None:
        """Reads the whole lines that came since the last time; what a removed file said is still known."""
        try:
            self._notice_replacement(self.path.stat())
        except FileNotFoundError:
            self._rewind()
            return
        with self.path.open("rb") as handle:
            handle.seek(self._offset)
            while self._read_line(handle):
                pass

    def settle(self) -> None:
        """Reads what there is, and a last line without newline as well: nobody is writing it any more."""
        self.refresh()
        if self._identity is None:
            return
        with self.path.open("rb") as handle:
            handle.seek(self._offset)
            tail = handle.read(MAX_LINE_BYTES)
        if tail.strip():
            self._take(tail, self._lines + 1)

    def report(self) -> None:
        """Logs a warning for every skipped line that wasn't reported before."""
        for line in sorted(set(self.problems) - self._reported):
            logger.warning("%s: line %d is skipped: %s", self.path, line, self.problems[line])
            self._reported.add(line)

    def _notice_replacement(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise JournalError(f"{self.path} is not a regular file, so it can't be a journal.")
        identity = (status.st_dev, status.st_ino)
        if self._identity is not None and (identity != self._identity or status.st_size < self._offset):
            logger.warning("%s was replaced or cut short by someone else; it is read again.", self.path)
            self._forget()
            self._rewind()
        self._identity = identity

    def _read_line(self, handle: BinaryIO) -> bool:
        line = handle.readline(MAX_LINE_BYTES)
        length, chunk = len(line), line
        while chunk and not chunk.endswith(b"\n") and len(chunk) == MAX_LINE_BYTES:
            chunk = handle.readline(MAX_LINE_BYTES)
            length += len(chunk)
        if not chunk.endswith(b"\n"):
            return False
        self._offset += length
        self._lines += 1
        if length > len(line):
            self.problems[self._lines] = f"it is longer than {MAX_LINE_BYTES} bytes"
        elif line.strip():
            self._take(line, self._lines)
        return True

    def _take(self, line: bytes, number: int) -> None:
        try:
            record = decode(line)
        except InputError as error:
            self.problems[number] = str(error)
        except JournalError as error:
            raise JournalError(f"{self.path}, line {number}: {error}") from error
        else:
            self._apply(record)

    def _apply(self, record: Record) -> None:
        if isinstance(record, Header):
            self.header = record
        elif isinstance(record, Point):
            key = self.key(record.param, record.path, record.ratio)
            (self.points if record.full else self.partials)[key] = record
            self.claims.pop(key, None)
        elif isinstance(record, Claim):
            self.claims[self.key(record.param, record.path, record.ratio)] = record
        elif isinstance(record, Release):
            self.claims = {key: claim for key, claim in self.claims.items() if claim.owner != record.owner}
