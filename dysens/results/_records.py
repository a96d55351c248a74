"""The lines of a journal: strict JSON objects told apart by kind, who holds a claim, and a reader that follows a growing file."""

from __future__ import annotations

import json
import logging
import math
import os
import platform
import stat
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, Union

import psutil  # type: ignore[import-untyped]

from dysens.costs import Costs
from dysens.errors import InputError, JournalError
from dysens.ratios import checked_number, ratio_key
from dysens.results._points import FORMAT, Header, Point, checked_text

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Claim:
    """A process claims a point, so that no other computes it."""

    param: str
    path: str
    ratio: float
    owner: Owner
    time: float


@dataclass(frozen=True)
class Release:
    """A process gives up every claim that it holds."""

    owner: Owner


_HEADER_FIELDS = ("model", "weights", "criterion", "evaluator", "baseline", "higher_is_better", "paths")
# Journals of earlier versions lack them.
_KNOWN_LATER = ("versions", "runtime", "samples")

Record = Union[Header, Point, Claim, Release]


def to_json(value: Any) -> str:
    """Strict JSON: no NaN, no infinity, readable beyond ASCII."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


def from_json(text: str) -> Any:
    """The value of a strict JSON text; anything else is an `InputError`, however it is broken."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise InputError("it is nested too deeply") from error
    except ValueError as error:
        raise InputError(f"it is not JSON: {error}") from error


def _refuse_constant(token: str) -> NoReturn:
    raise ValueError(f"{token} is not a JSON number")


def encode(record: Record) -> bytes:
    """One line, with its newline."""
    if isinstance(record, Header):
        fields: dict[str, Any] = {"kind": "header", "format": FORMAT, **_header_fields(record)}
    elif isinstance(record, Point):
        fields = {"kind": "point", **point_fields(record)}
    elif isinstance(record, Claim):
        where = {"param": record.param, "path": record.path, "ratio": record.ratio}
        fields = {"kind": "claim", **where, **asdict(record.owner), "time": record.time}
    else:
        fields = {"kind": "release", **asdict(record.owner)}
    return (to_json(fields) + "\n").encode("utf-8")


def decode(line: bytes) -> Record:
    """The record that a line holds.

    Raises:
        InputError: It holds none; the message is a clause that says why.
        JournalError: It is the header of a newer format.
    """
    try:
        fields = from_json(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError("it is not UTF-8 text") from error
    if not isinstance(fields, dict):
        raise InputError("it is not a JSON object")
    kind = fields.get("kind")
    if not isinstance(kind, str) or kind not in _DECODERS:
        raise InputError(f"it is of no known kind ({kind!r:.40})")
    try:
        return _DECODERS[kind](fields)
    except KeyError as error:
        raise InputError(f"the {kind} lacks {error}") from error


def point_fields(point: Point) -> dict[str, Any]:
    """The point as plain JSON values: an infinite loss becomes null."""
    fields = {**asdict(point), "loss": point.loss if math.isfinite(point.loss) else None}
    if point.evidence is None:
        del fields["evidence"]
    return fields


def point_from(fields: Mapping[str, Any]) -> Point:
    """The point that `point_fields` wrote; checks every value."""
    loss = fields["loss"]
    return Point(
        param=fields["param"],
        path=fields["path"],
        ratio=fields["ratio"],
        metric=fields["metric"],
        loss=math.inf if loss is None else loss,
        seconds=fields["seconds"],
        share=fields.get("share", 1.0),
        evidence=fields.get("evidence"),
    )


def _header_fields(header: Header) -> dict[str, Any]:
    fields = {name: getattr(header, name) for name in _HEADER_FIELDS}
    fields.update({name: value for name in _KNOWN_LATER if (value := getattr(header, name))})
    return fields if header.costs is None else {**fields, "costs": header.costs.to_json()}


def costs_from(fields: Mapping[str, Any]) -> Costs | None:
    """The costs among these fields; None, with a warning, if they cannot be read: what was measured counts without them."""
    if fields.get("costs") is None:
        return None
    try:
        return Costs.from_json(fields["costs"])
    except InputError as error:
        logger.warning("FLOPs and parameters are unknown: %s.", error)
        return None


def _header_from(fields: Mapping[str, Any]) -> Header:
    version = fields["format"]
    if isinstance(version, int) and version > FORMAT:
        raise JournalError(
            f"The journal has format {version}, and this dysens reads up to {FORMAT}: install a newer dysens."
        )
    if version != FORMAT:
        raise InputError(f"{version!r:.40} is not a journal format")
    known = {name: fields[name] for name in _HEADER_FIELDS}
    later = {name: fields[name] for name in _KNOWN_LATER if name in fields}
    return Header(**known, costs=costs_from(fields), **later)


def _claim_from(fields: Mapping[str, Any]) -> Claim:
    return Claim(
        checked_text("The parameter of a claim", fields["param"]),
        checked_text("The path of a claim", fields["path"]),
        ratio_key(checked_number("The ratio of a claim", fields["ratio"])),
        _owner_from(fields),
        checked_number("The time of a claim", fields["time"]),
    )


def _release_from(fields: Mapping[str, Any]) -> Release:
    return Release(_owner_from(fields))


def _owner_from(fields: Mapping[str, Any]) -> Owner:
    pid = fields["pid"]
    if isinstance(pid, bool) or not isinstance(pid, int):
        raise InputError(f"A process id must be a whole number, not {pid!r:.40}.")
    host = checked_text("The host of a claim", fields["host"])
    return Owner(host, pid, checked_number("The start time of a process", fields["started"]))


_DECODERS: Mapping[str, Callable[[Mapping[str, Any]], Record]] = {
    "header": _header_from,
    "point": point_from,
    "claim": _claim_from,
    "release": _release_from,
}


START_TOLERANCE = 2.0
"""Seconds by which a process's start time may be read differently: it is derived from the boot time, which a
clock correction moves a little. A recycled process id is far further off."""


@dataclass(frozen=True)
class Owner:
    """One process on one machine.

    The start time tells a process from a later one that was given the same id.
    """

    host: str
    pid: int
    started: float

    @classmethod
    def current(cls) -> Owner:
        """This process."""
        return cls(platform.node(), os.getpid(), psutil.Process().create_time())

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine, so that `is_alive` can answer."""
        return self.host == platform.node()

    def is_alive(self) -> bool:
        """Whether the process still runs; a killed child that its parent hasn't collected yet does not."""
        try:
            process = psutil.Process(self.pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            return bool(abs(process.create_time() - self.started) <= START_TOLERANCE)
        except (psutil.NoSuchProcess, ValueError, OverflowError):
            return False
        except psutil.AccessDenied:
            return True


MAX_LINE_BYTES = 16 * 2**20
"""A longer line is no record; it is passed over without being held in memory."""

Key = tuple[str, float]
"""What a point is known by: its layer path (its parameter name if there is no path) and its ratio."""


class JournalReader:
    """The content of a journal file so far.

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
        """The key of a point in the file: its path, since automatic names differ between processes."""
        if not path and self.header is not None:
            path = self.header.paths.get(param, "")
        return (path or param, ratio_key(ratio))

    def refresh(self) -> None:
        """Read the complete lines that were added since the last time; the content of a removed file is kept."""
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
        """Read everything, including a last line without newline: no process is writing it any more."""
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
            raise JournalError(f"{self.path} is not a regular file, so it cannot be a journal.")
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
