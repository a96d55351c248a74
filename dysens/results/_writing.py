"""Sensitivities written as whatever a file's name asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dysens.atomic import write_whole
from dysens.errors import InputError
from dysens.results._files import header_of
from dysens.results._points import Header
from dysens.results._records import Record, encode
from dysens.results._sensitivities import Sensitivities
from dysens.results._slim import write_static, write_status

JOURNAL, DOCUMENT, TABLE = ".jsonl", ".json", ".csv"
PICKLES = (".pickle", ".pkl", ".data")
"""Endings that PaddleSlim's documents and users give its files."""


def write_as(
    path: Path,
    sens: Sensitivities,
    header: Header | None = None,
    overwrite: bool = False,
    static: bool = False,
) -> None:
    """Write a journal, a JSON document, a CSV table or a PaddleSlim pickle: the ending of the name says which.

    Args:
        path: Where to.
        sens: What was measured.
        header: What it was measured on, for a journal that a sweep can go on with; None if that is not known.
        overwrite: Whether a file that is there may go.
        static: Of PaddleSlim's two pickles, the one of its static sweep.

    Raises:
        InputError: The ending is unknown, or a file is there already.
    """
    if path.suffix not in (JOURNAL, DOCUMENT, TABLE, *PICKLES):
        raise InputError(
            f'"{path}" has to end in {JOURNAL} (a journal), {DOCUMENT}, {TABLE}, or {" or ".join(PICKLES)} (for PaddleSlim).'
        )
    if static and path.suffix not in PICKLES:
        raise InputError(f'Only pickles are of two kinds, and "{path}" would be none.')
    if path.exists() and not overwrite:
        raise InputError(
            f'"{path}" is there already, and may be hours of work; name another file, or say --overwrite.'
        )
    if path.suffix == JOURNAL:
        write_journal(path, sens, header)
    elif path.suffix == DOCUMENT:
        sens.to_json(path)
    elif path.suffix == TABLE:
        sens.to_csv(path)
    else:
        (write_static if static else write_status)(path, sens)


def write_journal(path: Path, sens: Sensitivities, header: Header | None) -> None:
    """Write a journal as a whole.

    Args:
        path: Where to.
        sens: What was measured.
        header: What it was measured on. Without one the journal can be read, but a sweep goes on with it only by force.
    """
    records: list[Record] = [*sens.points, *sens.partial_points]
    if header is not None:
        known = header if sens.costs is None else replace(header, costs=sens.costs)
        paths = {**sens.paths, **known.paths}
        records = [replace(known, paths=paths), *records]
    write_whole(path, b"".join(map(encode, records)))


def common_header(parts: Sequence[Path], prefer: str | None = None) -> Header | None:
    """The header that all of these files share; None if one of them has none.

    Args:
        parts: Files of sensitivities.
        prefer: "first" or "last": whose header counts where two say something else.

    Raises:
        InputError: Two were measured on different things, and it is not said which counts.
    """
    headers = [header_of(path) for path in parts]
    known = [(path, header) for path, header in zip(parts, headers) if header is not None]
    for path, header in known[1:]:
        first_path, first = known[0]
        differences = first.differences(header)
        if differences and prefer is None:
            raise InputError(
                f"{first_path} and {path} do not belong together: {'; '.join(differences)}. "
                "Say which of them counts with --prefer first or --prefer last, or leave one out."
            )
    if len(known) < len(headers) or not known:
        return None
    return known[-1 if prefer == "last" else 0][1]
