"""Tables: for notebooks, what `_repr_html_` of the results shows; for a terminal of any width, what commands print."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from html import escape

import pandas as pd

# Seen through, so that it suits a light and a dark notebook.
_HEAT = "236, 126, 76"

SHORTEST_LABEL = 16  # less of a layer's name tells nothing
WIDE = 10_000  # where a file or another program reads the table


def table_html(frame: pd.DataFrame, notes: Iterable[str] = ()) -> str:
    """A table without its index, whole however long names and reasons are, and sentences below it."""
    with pd.option_context("display.max_colwidth", None):
        table = frame.to_html(index=False, border=0, na_rep="")
    return f"<div>{table}{_paragraphs(notes)}</div>"


def table_text(
    labels: Sequence[str], columns: Sequence[Sequence[str]], width: int | None, gap: int = 2
) -> str:
    """A table of text; the first row is its heading.

    Args:
        labels: To the left, shortened if they must be.
        columns: To the right.
        width: Columns of the terminal; None for as many as it takes.
        gap: Spaces between columns.
    """
    names = short_names(labels, max((width or WIDE) - taken(columns, gap), SHORTEST_LABEL))
    side = max(map(len, names))
    widths = [max(map(len, column)) for column in columns]
    rows = []
    for row, name in enumerate(names):
        cells = [column[row].rjust(size) for column, size in zip(columns, widths)]
        rows.append((" " * gap).join([name.ljust(side), *cells]).rstrip())
    return "\n".join(rows)


def taken(columns: Iterable[Sequence[str]], gap: int) -> int:
    """The width that columns take, with a gap before each."""
    return sum(max(map(len, column)) + gap for column in columns)


def wrapped(text: str, width: int | None, indent: str = "") -> list[str]:
    """A text as lines that fit."""
    return textwrap.wrap(text, width or WIDE, initial_indent=indent, subsequent_indent=indent)


def shortened(label: str, length: int) -> str:
    """The end of a label that is too long, from a dot on if there is one: what tells layers apart stands there.

    Example:
        >>> shortened("student.backbone.stages.0.conv", 20)
        '…stages.0.conv'
    """
    if len(label) <= length:
        return label
    end = label[-(length - 1) :]
    whole_names = end.partition(".")[2]
    return f"…{whole_names or end}"


def short_names(labels: Sequence[str], length: int) -> list[str]:
    """Labels, shortened where they are too long, so that different ones stay different.

    Where ends alone are the same, the beginning is kept too; where even that is not enough, the whole label.

    Example:
        >>> short_names(["teacher.backbone.stage.conv", "student.backbone.stage.conv", "head"], 16)
        ['teache…tage.conv', 'studen…tage.conv', 'head']
    """

    def of_both_ends(label: str, length: int) -> str:
        head = (length - 1) * 2 // 5
        return label if len(label) <= length else f"{label[:head]}…{label[head + 1 - length :]}"

    names = [shortened(label, length) for label in labels]
    for shorter in (of_both_ends, lambda label, _: label):
        owners: dict[str, set[str]] = {}
        for label, name in zip(labels, names):
            owners.setdefault(name, set()).add(label)
        names = [
            shorter(label, length) if len(owners[name]) > 1 else name for label, name in zip(labels, names)
        ]
    return names


def heat_html(frame: pd.DataFrame, notes: Iterable[str] = ()) -> str:
    """Losses by layer (index) and ratio (columns), the stronger the colour the more is lost.

    Args:
        frame: NaN where nothing was measured, infinite where there was no score.
        notes: Sentences below it.
    """
    top = scale_top(frame.to_numpy().ravel())
    head = "".join(f"<th>{ratio:g}</th>" for ratio in frame.columns)
    rows = (
        f"<tr><th>{escape(str(label))}</th>{''.join(_heat_cell(float(loss), top) for loss in losses)}</tr>"
        for label, losses in zip(frame.index, frame.to_numpy())
    )
    table = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f"<div>{table}{_paragraphs(notes)}</div>"


def _heat_cell(loss: float, top: float) -> str:
    if math.isnan(loss):
        return "<td></td>"
    depth = min(max(loss / top, 0.0), 1.0)
    return f'<td style="background-color: rgba({_HEAT}, {depth:.2f})">{loss_text(loss)}</td>'


def loss_text(loss: float, digits: int = 2) -> str:
    """A loss in a few digits; "-" for a point that was not measured, "none" for one without a score."""
    if math.isnan(loss):
        return "-"
    if math.isinf(loss):
        return "none"
    text = f"{loss:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text


def scale_top(losses: Iterable[float]) -> float:
    """The upper end of a loss scale: the largest loss, at most 1, where everything is lost."""
    finite = [loss for loss in losses if math.isfinite(loss)]
    return min(max([*finite, 0.01]), 1.0)


def _paragraphs(notes: Iterable[str]) -> str:
    return "".join(f"<p>{escape(note)}</p>" for note in notes)
