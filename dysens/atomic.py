"""Writing files so that a reader sees the old ones or the new ones, whatever happens in between.

One file is written beside its place and renamed. Several that belong together (weights and their plan) are all written
beside theirs; the last of them, the *record*, is renamed once the others are on disk, and that is the moment that counts:
from then on the new files are complete, and whoever comes next, writer or reader, moves what has not been moved yet.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from glob import escape
from pathlib import Path
from uuid import uuid4

from dysens.errors import JournalError

Writer = Callable[[Path], object]
"""Writes a file at the path that it is given."""

_STAGED = ".saving"


def write_file(path: Path, write: Writer) -> None:
    """Replace a file when the new one is whole and on disk.

    Args:
        path: Its place; the folder must be there.
        write: Writes the file at another path in the same folder.

    Raises:
        OSError: The disk is full, or the like; what was there is untouched.
    """
    # Not mkstemp: what it makes only its owner may read, and a result is there to be shared.
    beside = path.with_name(f"{path.name}.{uuid4().hex}.tmp")
    try:
        write(beside)
        sync(beside)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_together(target: Path, files: Mapping[str, Writer], record: str) -> None:
    """Replace several files as one step.

    Args:
        target: Their common path without endings; the folder must be there.
        files: By ending, what writes them, in this order; the record comes last.
        record: The ending of the one that counts; readers call `finish` before they read it.

    Raises:
        OSError: The disk is full, or the like; what was there is untouched.
    """
    finish(target, record)
    _clear(target)  # what a writer before could not complete
    beside = _staged(target, f"{record}.tmp")
    try:
        for ending in files:
            place = beside if ending == record else _staged(target, ending)
            files[ending](place)
            sync(place)
        sync_folder(target.parent)
        os.replace(beside, _staged(target, record))
    except BaseException:
        if not is_unfinished(target, record):
            _clear(target)
        raise
    sync_folder(target.parent)
    finish(target, record)


def finish(target: Path, record: str) -> None:
    """Move into place what a writer had completed and could not move any more.

    Raises:
        OSError: Files cannot be moved here, as in a folder that may only be read.
    """
    if not is_unfinished(target, record):
        return
    for staged in _all_staged(target):
        ending = staged.name[len(f"{target.name}{_STAGED}") :]
        if ending != record:
            _move(staged, Path(f"{target}{ending}"))
    sync_folder(target.parent)
    _move(_staged(target, record), Path(f"{target}{record}"))
    sync_folder(target.parent)


def is_unfinished(target: Path, record: str) -> bool:
    """Whether files are complete that have not all been moved into place."""
    return _staged(target, record).exists()


def _staged(target: Path, ending: str) -> Path:
    return Path(f"{target}{_STAGED}{ending}")


def _move(source: Path, place: Path) -> None:
    with suppress(FileNotFoundError):  # another process has moved it
        os.replace(source, place)


def _all_staged(target: Path) -> list[Path]:
    return sorted(target.parent.glob(f"{escape(target.name)}{_STAGED}.*"))


def _clear(target: Path) -> None:
    for staged in _all_staged(target):
        staged.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file is on disk."""
    with path.open("rb") as handle:
        os.fsync(handle.fileno())


def sync_folder(folder: Path) -> None:
    """Make a new name survive a power cut, where the file system can: some network ones refuse it."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


PROBE_BYTES = 64 * 1024
"""Enough room for a few hundred points."""


def append_bytes(path: Path, data: bytes, sync: bool) -> None:
    """Append ``data`` as a line; an incomplete last line of the file is ended first."""
    created = not path.exists()
    with path.open("ab", buffering=0) as handle:
        if not created and not _ends_with_newline(path):
            data = b"\n" + data
        rest = memoryview(data)
        while rest:
            rest = rest[handle.write(rest) :]
        if sync:
            os.fsync(handle.fileno())
    if created and sync:
        sync_folder(path.parent)


def probe(path: Path) -> None:
    """Raises the OSError that appending to ``path`` would meet now, such as no permission or no room."""
    with tempfile.TemporaryFile(dir=path.parent) as handle:
        handle.write(bytes(PROBE_BYTES))
        handle.flush()
        os.fsync(handle.fileno())
    if path.exists():
        if not path.is_file():
            raise OSError(f"{path} is not a regular file")
        path.open("ab").close()


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file so that readers see the old content or the new, never a part."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, lambda beside: beside.write_bytes(data))
    except OSError as error:
        raise JournalError(f"{path} cannot be written: {error.strerror or error}.") from error


def read_whole(path: Path, limit: int) -> bytes:
    """The content of a regular file of at most ``limit`` bytes."""
    try:
        if not path.is_file():
            problem = "is not a regular file" if path.exists() else "does not exist"
            raise JournalError(f"{path} {problem}, so no sensitivities can be read from it.")
        with path.open("rb") as handle:
            data = handle.read(limit + 1)
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error.strerror or error}.") from error
    if len(data) > limit:
        raise JournalError(f"{path} is larger than {limit} bytes, so it cannot be a file of sensitivities.")
    return data


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as handle:
        if handle.seek(0, os.SEEK_END) == 0:
            return True
        handle.seek(-1, os.SEEK_END)
        return handle.read(1) == b"\n"
