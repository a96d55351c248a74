"""Where a sweep writes its points: a journal, also one that goes on where a PaddleSlim file stopped."""

from __future__ import annotations

import os
from pathlib import Path

from dysens.results.journal import Journal, check_place
from dysens.results.points import Header
from dysens.results.slim_files import continue_slim_file, is_slim_file


def check_journal(sen_file: str | os.PathLike[str]) -> None:
    """Say before anything is evaluated if a file can't be read or written."""
    place = Path(sen_file)
    if is_slim_file(sen_file):
        _, place = continue_slim_file(sen_file)
    check_place(place)


def open_journal(sen_file: str | os.PathLike[str], header: Header, force: bool = False) -> Journal:
    """The journal of a sweep. A PaddleSlim pickle is read and continued in a journal beside it."""
    if not is_slim_file(sen_file):
        return Journal.open(sen_file, header, force)
    points, beside = continue_slim_file(sen_file, header.paths)
    journal = Journal.open(beside, header, force)
    there = {(point.param, point.ratio) for point in journal.points()}
    for point in points:
        if (point.param, point.ratio) not in there:
            journal.append(point)
    return journal
