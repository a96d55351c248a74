"""Reads a file of sensitivities, whichever kind it is: the content says so, not the name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dysens.costs import Costs
from dysens.errors import InputError, JournalError
from dysens.results._disk import read_whole
from dysens.results._points import Header, Point, under_names
from dysens.results._reader import JournalReader
from dysens.results._slim import looks_like_pickle, read_slim_bytes, slim_points
from dysens.results._tables import NEEDED, is_json_document, points_of_csv, points_of_json

MAX_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Content:
    """What a file of sensitivities holds.

    Attributes:
        points: Its points, also those that saw only part of the data.
        baseline: The score of the whole network, if the file knows it.
        higher_is_better: Whether a higher score is better.
        costs: What the network costs at any ratios, if the file knows it.
    """

    points: Sequence[Point]
    baseline: float | None = None
    higher_is_better: bool = True
    costs: Costs | None = None


def load_content(path: Path) -> Content:
    """Reads a file.

    Raises:
        JournalError: The file can't be read, or holds no sensitivities.
        UnsafePickleError: It is a pickle of something else.
    """
    data = read_whole(path, MAX_BYTES)
    journal = _read_journal(path)
    if journal is not None:
        return journal
    if looks_like_pickle(data):
        return Content(slim_points(read_slim_bytes(data, str(path))))
    try:
        if is_json_document(data):
            return Content(*points_of_json(data))
        if _is_table(data):
            return Content(points_of_csv(data))
    except InputError as error:
        raise JournalError(f"{path} can't be read as sensitivities: {error}") from error
    raise JournalError(
        f"{path} holds no sensitivities: it is neither a journal, nor a CSV or JSON file of dysens, nor a "
        "PaddleSlim pickle."
    )


def header_of(path: Path) -> Header | None:
    """What a journal's points were measured on; None for any other file, and for a journal that lost its header."""
    if looks_like_pickle(read_whole(path, MAX_BYTES)):
        return None
    reader = JournalReader(path)
    reader.settle()
    return reader.header


def _is_table(data: bytes) -> bool:
    columns = data[:4096].split(b"\n", 1)[0].replace(b'"', b"").strip().split(b",")
    return all(name.encode() in columns for name in NEEDED)


def _read_journal(path: Path) -> Content | None:
    """The content of a file in which at least one line is a journal's."""
    reader = JournalReader(path)
    reader.settle()
    if reader.is_empty:
        return None
    reader.report()
    header, full, partial = reader.header, list(reader.points.values()), list(reader.partials.values())
    if header is None:
        return Content([*full, *partial])
    points = [*under_names(full, header.paths), *under_names(partial, header.paths)]
    return Content(points, header.baseline, header.higher_is_better, header.costs)
