"""Writing files so that a reader sees the old ones or the new ones, whatever happens in between.

One file is written beside its place and renamed. Several that belong together (weights and their plan) are all written
beside theirs; the last of them, the *record*, is renamed once the others are on disk, and that is the moment that counts:
from then on the new files are complete, and whoever comes next, writer or reader, moves what has not been moved yet. Files
that others read who do not know of that (an export) are written into a folder beside theirs, and the two change places.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
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


# The folder of a new set of files beside the old one, and the call of Linux that lets two folders change places.
_NEW, _EXCHANGE, _HERE = ".new-", 2, -100
# More than that and the folder is not one of these files alone.
_MOST_OTHERS = 64


@contextmanager
def folder_beside(folder: Path) -> Iterator[Path]:
    """A new folder that can take another one's place by `replace_folder`; what is left in it goes away."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_left_over(folder)
    owner = f"{socket.gethostname()}-{os.getpid()}"
    new = folder.parent / f".{folder.name}{_NEW}{owner}-{uuid4().hex}"
    new.mkdir()
    try:
        yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _remove_left_over(folder: Path) -> None:
    """Away with what processes of this machine that are no more have left."""
    start = f".{folder.name}{_NEW}{socket.gethostname()}-"
    for left in folder.parent.glob(f"{escape(start)}*"):
        number = left.name[len(start) :].partition("-")[0]
        if number.isdigit() and not _runs(int(number)):
            shutil.rmtree(left, ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def replace_folder(folder: Path, new: Path, stale: Collection[str], last: str) -> None:
    """Let the files of a new folder take their places in another one, as one step where the system can do that.

    Other files of the folder stay. Where folders cannot change places (it has subfolders, is the current one, the file system
    does not know how), the old file ``last`` goes first and the new one comes last: without it the others are nothing, so
    that nobody takes old and new ones for one whole.

    Args:
        folder: Where the files go.
        new: Holds them, complete; from `folder_beside`.
        stale: Names of files of the old set, which go.
        last: The name of the file without which the others are nothing.

    Raises:
        OSError: Files cannot be moved here.
    """
    names = sorted(file.name for file in new.iterdir())
    for name in names:
        sync(new / name)
    if not folder.exists():
        os.rename(new, folder)
    elif not _exchanged(folder, new, {*names, *stale}):
        for name in [last, *sorted({*stale} - {*names, last})]:
            (folder / name).unlink(missing_ok=True)
        for name in [*(name for name in names if name != last), last]:
            os.replace(new / name, folder / name)
    sync_folder(folder)
    sync_folder(folder.parent)


def _exchanged(folder: Path, new: Path, replaced: Collection[str]) -> bool:
    """Give both folders each other's names in one step; False if that cannot be, and then nothing has happened."""
    others = [each for each in folder.iterdir() if each.name not in replaced]
    current = Path.cwd() if os.name == "posix" else folder
    if current == folder.resolve() or folder.is_symlink() or len(others) > _MOST_OTHERS:
        return False
    if not sys.platform.startswith("linux") or any(
        each.is_symlink() or not each.is_file() for each in others
    ):
        return False
    linked: list[Path] = []
    try:
        for each in others:
            os.link(each, new / each.name)
            linked.append(new / each.name)
        shutil.copymode(folder, new)
        rename = ctypes.CDLL(None, use_errno=True).renameat2
        done = rename(_HERE, os.fsencode(folder), _HERE, os.fsencode(new), _EXCHANGE) == 0
    except (OSError, AttributeError):  # no hard links here, or an old C library
        done = False
    if not done:
        for each in linked:
            each.unlink(missing_ok=True)
        return False
    for late in new.iterdir():  # the old folder now: whatever came while its files were linked
        if late.name not in replaced and not (folder / late.name).exists():
            os.replace(late, folder / late.name)
    return True


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
