"""Tables for notebooks: what `_repr_html_` of the results shows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

import pandas as pd

# Seen through, so that it suits a light and a dark notebook.
_HEAT = "236, 126, 76"


def table_html(frame: pd.DataFrame, notes: Iterable[str] = ()) -> str:
    """A table without its index, whole however long names and reasons are, and sentences below it."""
    with pd.option_context("display.max_colwidth", None):
        table = frame.to_html(index=False, border=0, na_rep="")
    return f"<div>{table}{_paragraphs(notes)}</div>"


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


def loss_text(loss: float) -> str:
    """A loss in two digits; "none" for a point without a score."""
    if math.isinf(loss):
        return "none"
    text = f"{loss:.2f}"
    return "0.00" if text == "-0.00" else text


def scale_top(losses: Iterable[float]) -> float:
    """The upper end of a loss scale: the largest loss, at most 1, where everything is lost."""
    finite = [loss for loss in losses if math.isfinite(loss)]
    return min(max([*finite, 0.01]), 1.0)


def _paragraphs(notes: Iterable[str]) -> str:
    return "".join(f"<p>{escape(note)}</p>" for note in notes)
