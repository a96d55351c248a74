"""Points as tables and documents (DataFrame, CSV, JSON), and any file of sensitivities read by its content, not its name."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dysens.atomic import read_whole
from dysens.costs import Costs
from dysens.errors import InputError, JournalError
from dysens.ratios import checked_number
from dysens.results._points import Header, Point, under_names
from dysens.results._records import JournalReader, costs_from, from_json, point_fields, point_from, to_json
from dysens.results._slim import looks_like_pickle, read_slim_bytes, slim_points

COLUMNS = ("param", "path", "ratio", "metric", "loss", "seconds")
NEEDED = ("param", "ratio", "loss")
TEXTS = ("param", "path")

# What a spreadsheet takes for the beginning of a formula, which could then run commands.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")

JSON_KIND = "sensitivities"
JSON_FORMAT = 1


def frame_of(points: Iterable[Point]) -> pd.DataFrame:
    """One row per point; a score that is not known is NaN."""
    frame = pd.DataFrame(
        [[getattr(point, name) for name in COLUMNS] for point in points], columns=list(COLUMNS)
    )
    return frame.astype({name: "float64" for name in COLUMNS if name not in TEXTS})


def losses_by_ratio(curves: Mapping[str, Mapping[float, float]]) -> pd.DataFrame:
    """Groups down, ratios across; NaN where nothing was measured, infinite where there was no score."""
    rows = {name: dict(curve) for name, curve in curves.items()}
    table = pd.DataFrame.from_dict(rows, orient="index", dtype="float64")
    return table[sorted(table.columns)]


def points_of(frame: pd.DataFrame) -> list[Point]:
    """The points of a table with at least the columns param, ratio and loss; a missing loss is no score."""
    missing = [name for name in NEEDED if name not in frame.columns]
    if missing:
        raise InputError(f"The table of sensitivities lacks the column(s) {', '.join(missing)}.")
    twice = [name for name in COLUMNS if list(frame.columns).count(name) > 1]
    if twice:
        raise InputError(f"The table of sensitivities has the column {twice[0]} more than once.")
    columns = [name for name in COLUMNS if name in frame.columns]
    points = []
    for number, values in enumerate(zip(*(frame[name].tolist() for name in columns)), start=1):
        try:
            points.append(_point_of(dict(zip(columns, values))))
        except InputError as error:
            raise InputError(f"Row {number} of the table of sensitivities: {error}") from error
    return points


def _point_of(row: Mapping[str, Any]) -> Point:
    known: dict[str, Any] = {name: None if _is_missing(value) else value for name, value in row.items()}
    loss = known["loss"]
    return Point(
        param=known["param"],
        path=known.get("path") or "",
        ratio=known["ratio"],
        metric=known.get("metric"),
        loss=math.inf if loss is None else loss,
        seconds=known.get("seconds"),
    )


def _is_missing(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def csv_of(points: Iterable[Point]) -> bytes:
    """The table as CSV; names are always in quotes, since pandas leaves some line breaks bare otherwise.

    A name that a spreadsheet would take for a formula gets an apostrophe in front, which `points_of_csv` takes off.
    """
    frame = frame_of(points)
    for column in TEXTS:
        frame[column] = [f"'{text}" if text.startswith(_FORMULA) else text for text in frame[column]]
    return frame.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC).encode("utf-8")


def points_of_csv(data: bytes) -> list[Point]:
    """The points of a CSV table."""
    numbers = [name for name in COLUMNS if name not in TEXTS]
    try:
        frame = pd.read_csv(
            io.BytesIO(data),
            dtype=dict.fromkeys(TEXTS, str),
            keep_default_na=False,  # a layer may well be called "NA"
            na_values={name: ["", "nan", "NaN"] for name in numbers},
            float_precision="round_trip",
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"It is not a CSV table: {error}") from error
    for column in set(TEXTS) & set(frame.columns):
        frame[column] = [_plain_text(text) for text in frame[column]]
    return points_of(frame)


def _plain_text(text: Any) -> Any:
    """A name without the apostrophe that keeps spreadsheets from computing it."""
    guarded = isinstance(text, str) and text.startswith("'") and text[1:].startswith(_FORMULA)
    return text[1:] if guarded else text


def json_of(
    points: Iterable[Point], baseline: float | None, higher_is_better: bool, costs: Costs | None = None
) -> bytes:
    """Everything as one strict JSON document, a point per line."""
    head = {
        "kind": JSON_KIND,
        "format": JSON_FORMAT,
        "baseline": baseline,
        "higher_is_better": higher_is_better,
        **({} if costs is None else {"costs": costs.to_json()}),
    }
    rows = ",\n  ".join(to_json(point_fields(point)) for point in points)
    return f'{to_json(head)[:-1]}, "points": [\n  {rows}\n]}}\n'.encode()


def is_json_document(data: bytes) -> bool:
    """Whether `json_of` may have written this."""
    return data.lstrip()[:64].startswith(b'{"kind": "' + JSON_KIND.encode())


def points_of_json(data: bytes) -> tuple[list[Point], float | None, bool, Costs | None]:
    """Points, baseline, direction and costs of a JSON document."""
    try:
        document = from_json(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError("it is not UTF-8 text") from error
    if not isinstance(document, dict) or document.get("format") != JSON_FORMAT:
        raise InputError("it is not a document of sensitivities that this dysens can read")
    baseline, better = document.get("baseline"), document.get("higher_is_better")
    if baseline is not None and not math.isfinite(checked_number("The baseline", baseline)):
        raise InputError("The baseline must be a finite number.")
    if not isinstance(better, bool):
        raise InputError("higher_is_better must be true or false.")
    return _points_of_rows(document.get("points")), baseline, better, costs_from(document)


def _points_of_rows(rows: Any) -> list[Point]:
    if not isinstance(rows, Sequence) or not all(isinstance(row, dict) for row in rows):
        raise InputError("its points must be a list of objects")
    try:
        return [point_from(row) for row in rows]
    except KeyError as error:
        raise InputError(f"A point lacks {error}") from error


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
    """Read a file.

    Raises:
        JournalError: The file cannot be read, or holds no sensitivities.
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
        raise JournalError(f"{path} cannot be read as sensitivities: {error}") from error
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
