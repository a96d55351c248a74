"""The journal of a sweep: append-only JSON lines that several processes may write and no crash can spoil.

Every point is on disk before `Journal.append` returns. A line that a crash tore or an editor garbled is
reported with its number and skipped. See docs/file-formats.md for the lines themselves.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from filelock import FileLock

from dysens.atomic import append_bytes, probe, write_whole
from dysens.errors import JournalError
from dysens.flags import flag, given
from dysens.results._points import Header, Point, under_names
from dysens.results._records import Claim, JournalReader, Key, Owner, Record, Release, encode

logger = logging.getLogger(__name__)

LOCK_SECONDS = 60.0
"""Appending takes milliseconds; whoever holds the lock for this long is stopped or stuck."""

FOREIGN_CLAIM_SECONDS = 3600.0
"""A claim made on another machine counts for this long: whether its process lives cannot be seen from here."""

CLOCK_TOLERANCE = 300.0
"""How far the clock of another machine may be ahead of ours. A claim from further in the future says nothing about its age."""


class Journal:
    """A journal that is open for reading and appending. Use `Journal.open`.

    Example:
        >>> import tempfile, os
        >>> header = Header("TinyNet", "c0ffee", "fpgm", "accuracy", baseline=0.9)
        >>> with Journal.open(os.path.join(tempfile.mkdtemp(), "sens.jsonl"), header) as journal:
        ...     journal.claim("conv2d_0.w_0", 0.3)
        ...     journal.append(Point("conv2d_0.w_0", "stem.0.weight", 0.3, metric=0.8, loss=0.11))
        ...     [point.loss for point in journal.points()]
        True
        [0.11]
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.header = header
        self._reader = JournalReader(path)
        self._lock = FileLock(f"{path}.lock", timeout=LOCK_SECONDS)
        self._unwritten: list[Point] = []
        self._known: dict[Key, Point] = {}
        self._known_partials: dict[Key, Point] = {}
        self._first_seen: dict[Claim, float] = {}  # by our own clock
        self._reported: set[Claim] = set()
        self._refuge: Path | None = None
        self._started = False

    @classmethod
    def open(cls, path: str | os.PathLike[str], header: Header, force: bool = False) -> Journal:
        """Creates the journal, or continues the one that is there.

        Args:
            path: The file; its folder is made if need be. A lock file of the same name plus ".lock" stays
                beside it.
            header: What is being measured now.
            force: Continue even if the file's header says something else; ``header`` then supersedes it.

        Raises:
            JournalError: The file cannot be written, is no journal, or was made for something else.
        """
        journal = cls(Path(path), header)
        check_place(journal.path)
        try:
            with journal._lock:
                journal._start(force)
        except OSError as error:
            raise _unwritable(journal.path, error) from error
        return journal

    def _start(self, force: bool) -> None:
        self._reader.settle()
        self._known.update(self._reader.points)
        self._known_partials.update(self._reader.partials)
        found = self._reader.header
        if self._reader.is_empty:
            self._refuse_foreign_file()
        self._reader.report()
        differences = found.differences(self.header) if found is not None else []
        if found is None and not self._reader.is_empty:
            differences = ["its header cannot be read, so it is not known what its points were measured on"]
        if differences and not force:
            raise JournalError(
                f"The journal {self.path} does not belong to this sweep: {'; '.join(differences)}. "
                f"Name another file ({flag('sen_file')}), or continue this one all the same with {given('force', True)}."
            )
        if differences:
            logger.warning("%s is continued by force although %s.", self.path, "; ".join(differences))
        if found is None or differences:
            self._write([self.header])
        elif (found.costs is None and self.header.costs is not None) or (
            self.header.runtime not in ("", found.runtime)
        ):
            # A journal of before costs were known learns them, and who runs the forward now; its baseline stays all the same.
            self.header = replace(
                self.header, baseline=found.baseline, costs=self.header.costs or found.costs
            )
            self._write([self.header])
        else:
            # The baseline of the file stays, so that old and new losses have one base; the names are today's.
            self.header = replace(found, paths=self.header.paths)
        self._started = True

    def supersede(self, header: Header) -> None:
        """Continue under another header, for all points from now on.

        Args:
            header: Takes the place of the one that the journal was opened with.
        """
        with self._lock:
            self._started = False  # until it is written, the file's header is not ours
            self.header = header
            self._write([header])
            self._started = True

    def _refuse_foreign_file(self) -> None:
        """Raise JournalError for a file that is neither empty, nor a journal, nor a header that a crash cut short."""
        if not self.path.exists():
            return
        with self.path.open("rb") as handle:
            start = handle.read(4096)
        if start.strip() and not (encode(self.header).startswith(start[:16]) and b"\n" not in start):
            raise JournalError(
                f"{self.path} exists and is not a journal of dysens. It was left as it is; use another file."
            )

    def points(self) -> list[Point]:
        """The full points, with today's parameter names, in parameter order and by ratio."""
        self._refresh()
        full = [*self._known.values(), *(point for point in self._unwritten if point.full)]
        return under_names(full, self.header.paths)

    def partial_points(self) -> list[Point]:
        """The points that saw only part of the data, where no full point has come since."""
        self._refresh()
        partials = [point for key, point in self._known_partials.items() if key not in self._known]
        partials.extend(point for point in self._unwritten if not point.full)
        return under_names(partials, self.header.paths)

    def _refresh(self) -> None:
        try:
            self._look()
        except (OSError, JournalError) as error:
            logger.warning("%s cannot be read any more (%s); what was read before counts.", self.path, error)
        self._reader.report()

    def _look(self) -> None:
        """Read what is new. What was read once stays known, whatever becomes of the file."""
        self._reader.refresh()
        if not self._others():
            self._known.update(self._reader.points)
            self._known_partials.update(self._reader.partials)

    def append(self, point: Point) -> None:
        """Adds a point; when this returns it is on disk.

        If the disk is full or the file can no longer be written, the point is kept in memory and in a file in
        the temporary folder, a warning says where, and every later call tries again.
        """
        try:
            with self._lock:
                self._write([*self._unwritten, point])
        except (OSError, JournalError) as error:
            self._unwritten.append(point)
            self._take_refuge(error)
        else:
            self._leave_refuge()

    def claim(self, param: str, ratio: float, owner: Owner | None = None) -> bool:
        """Reserves a point for one process.

        Args:
            param: Name of the group.
            ratio: Its ratio.
            owner: Who will compute it; this process if not given.

        Returns:
            True if the owner may compute it. False if it is there already, or another living process is at
            it. A dead process's claim is taken over.
        """
        owner = owner or Owner.current()
        place = self.header.paths.get(param, "")
        try:
            with self._lock:
                self._look()
                key = self._reader.key(param, place, ratio)
                if key in self._known or any(self._is(p, param, key[1]) for p in self._unwritten if p.full):
                    return False
                holder = self._reader.claims.get(key)
                if holder is not None and holder.owner == owner:
                    return True
                if holder is not None and self._is_held(holder):
                    return False
                self._write([Claim(param, place, key[1], owner, time.time())], sync=False)
        except (OSError, JournalError) as error:
            if self._refuge is None:  # afterwards the points' own warning says it
                logger.warning(
                    "%s: the claim on %s at %s cannot be written (%s).", self.path, param, ratio, error
                )
        return True

    @staticmethod
    def _is(point: Point, param: str, ratio: float) -> bool:
        return point.param == param and point.ratio == ratio

    def release(self, owner: Owner | None = None) -> None:
        """Gives up the owner's open claims, so that others needn't wait for its process to end."""
        owner = owner or Owner.current()
        try:
            with self._lock:
                self._reader.refresh()
                if any(claim.owner == owner for claim in self._reader.claims.values()):
                    self._write([Release(owner)], sync=False)
        except (OSError, JournalError) as error:
            logger.warning("%s: the claims cannot be released (%s).", self.path, error)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        if isinstance(error, Exception):
            self._refresh()
            where = self.path if self._refuge is None else f"{self.path} and {self._refuge}"
            logger.warning(
                "Stopped by %s. What was measured so far (%d full points) is saved in %s: run the same again with this file, "
                "and it goes on from there.",
                type(error).__name__,
                len(self._known),
                where,
            )

    def _is_held(self, claim: Claim) -> bool:
        if claim.owner.is_local:
            return claim.owner.is_alive()
        age = time.time() - claim.time
        seen_for = time.monotonic() - self._first_seen.setdefault(claim, time.monotonic())
        if age < -CLOCK_TOLERANCE:
            if claim not in self._reported:
                self._reported.add(claim)
                logger.warning(
                    "%s: the clock of %s is ahead of ours, so its claim on %s at %g is not waited for; the point may be "
                    "measured twice.",
                    self.path,
                    claim.owner.host,
                    claim.param,
                    claim.ratio,
                )
            return False
        return max(age, seen_for) < FOREIGN_CLAIM_SECONDS

    def _write(self, records: Iterable[Record], sync: bool = True) -> None:
        """Append under the lock; a file that was removed or cut short is written again with all known points."""
        lost: list[Record] = []
        if self._started:
            emptied = not (self.path.exists() and self.path.stat().st_size)
            if not emptied:
                self._look()
                if self._others():
                    raise JournalError(f"Another journal has taken its place: {'; '.join(self._others())}")
            partials = {key: p for key, p in self._known_partials.items() if key not in self._known}
            gone = [p for key, p in self._known.items() if emptied or key not in self._reader.points]
            gone += [p for key, p in partials.items() if emptied or key not in self._reader.partials]
            if emptied or gone or self._reader.header is None:
                logger.warning(
                    "%s was removed or cut short while in use; %d points are written again.",
                    self.path,
                    len(gone),
                )
                lost = [self.header, *gone]
        append_bytes(self.path, b"".join(map(encode, [*lost, *records])), sync)
        self._look()

    def _others(self) -> list[str]:
        """Why the file is another journal than the one that was opened; nothing if it is not."""
        found = self._reader.header
        return found.differences(self.header) if self._started and found is not None else []

    def _take_refuge(self, error: Exception) -> None:
        """Writes what the journal cannot take to the temporary folder, as a journal of its own."""
        reason = getattr(error, "strerror", None) or str(error)
        if self._refuge is None:
            name = f"dysens-{self.path.stem}-{os.getpid()}-{time.time_ns()}.jsonl"
            self._refuge = Path(tempfile.gettempdir(), name)
        try:
            write_whole(self._refuge, encode(self.header) + b"".join(map(encode, self._unwritten)))
        except JournalError as second:
            where = f"in memory only ({second})"
        else:
            where = f"in memory and in {self._refuge}"
        count = len(self._unwritten)
        if count & (count - 1) == 0:  # 1, 2, 4, 8: a long run needs no line for every point
            logger.warning(
                "%s cannot be written (%s): %d point(s) are kept %s.", self.path, reason, count, where
            )

    def _leave_refuge(self) -> None:
        if self._unwritten:
            logger.warning("%s can be written again: all points are in it now.", self.path)
            self._unwritten.clear()
        if self._refuge is not None:
            self._refuge.unlink(missing_ok=True)
            self._refuge = None


def check_place(path: Path) -> None:
    """Make the folder of a journal; raise JournalError if nothing can be written there.

    Raises:
        JournalError: There is no permission, no room, or something else in the way.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        probe(path)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> JournalError:
    return JournalError(
        f"The journal {path} cannot be written: {error.strerror or error}. Nothing was started; "
        "choose a folder that is writable and has room."
    )
