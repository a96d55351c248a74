"""Writing files so that a reader sees the old ones or the new ones, whatever happens in between.

One file is written beside its place and renamed. Several that belong together (weights and their plan) are all written
beside theirs; the last of them, the *record*, is renamed once the others are on disk, and that is the moment that counts:
from then on the new files are complete, and whoever comes next, writer or reader, moves what has not been moved yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from glob import escape
from pathlib import Path
from uuid import uuid4

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
