"""Writing to disk so that what was said to be written is there, and reading files of a bounded size."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from dysens.atomic import sync_folder, write_file
from dysens.errors import JournalError

PROBE_BYTES = 64 * 1024
"""Enough room for a few hundred points."""


def append_bytes(path: Path, data: bytes, sync: bool) -> None:
    """Appends ``data`` as a line of its own: a torn line that somebody left is ended first."""
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
        raise JournalError(f"{path} can't be written: {error.strerror or error}.") from error


def read_whole(path: Path, limit: int) -> bytes:
    """The content of a regular file of at most ``limit`` bytes."""
    try:
        if not path.is_file():
            problem = "is not a regular file" if path.exists() else "does not exist"
            raise JournalError(f"{path} {problem}, so no sensitivities can be read from it.")
        with path.open("rb") as handle:
            data = handle.read(limit + 1)
    except OSError as error:
        raise JournalError(f"{path} can't be read: {error.strerror or error}.") from error
    if len(data) > limit:
        raise JournalError(f"{path} is larger than {limit} bytes, so it can't be a file of sensitivities.")
    return data


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as handle:
        if handle.seek(0, os.SEEK_END) == 0:
            return True
        handle.seek(-1, os.SEEK_END)
        return handle.read(1) == b"\n"
