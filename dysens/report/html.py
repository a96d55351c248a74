"""A report to look at: one HTML file with everything in it, which needs no network and no Python.

    write_report("sens.jsonl", "report.html")

Ratios are chosen here, by `dysens.ratios`, and only shown there: for every loss threshold as lines that the page reads off, for
every share of the FLOPs as a row. FLOPs and parameters that are left the page counts itself, as `dysens.pruning.costs` does.
"""

from __future__ import annotations

import html
import json
import os
from importlib import resources
from pathlib import Path
from typing import Any, Union

from dysens.errors import InputError
from dysens.pruning.costs import Costs
from dysens.report.page_data import page_data
from dysens.results.files import write_whole
from dysens.results.sensitivities import Sensitivities

PathLike = Union[str, "os.PathLike[str]"]

LANGUAGES = ("en", "zh")
SCRIPTS = ("words.js", "arithmetic.js", "charts.js", "page.js")


def write_report(
    sens: Sensitivities | PathLike,
    path: PathLike,
    costs: Costs | None = None,
    title: str | None = None,
    language: str | None = None,
    progress: bool = True,
) -> Path:
    """Writes sensitivities as one self-contained HTML page.

    Args:
        sens: What a sweep or search measured, or a file of it (see `Sensitivities.load`).
        path: The file to write.
        costs: What the network costs at any ratios; journals know it themselves.
        title: Heading of the page; "Pruning sensitivity" in the reader's language if not given.
        language: "en" or "zh"; the reader's browser decides if not given.
        progress: Show a progress bar while ratios for every share of the FLOPs are searched.

    Returns:
        The file.

    Raises:
        InputError: There are no points, or the language is none of these.
    """
    if language not in (None, *LANGUAGES):
        raise InputError(f'language must be "en", "zh" or None for the reader\'s own, not {language!r}.')
    measured = sens if isinstance(sens, Sensitivities) else Sensitivities.load(sens)
    data = {**page_data(measured, costs, progress), "title": title, "language": language}
    place = Path(path)
    write_whole(place, _page(data).encode("utf-8"))
    return place


def _page(data: dict[str, Any]) -> str:
    title = data["title"] or f"dysens {data['source']}".strip()
    parts = {
        "title": html.escape(title),
        "style": _template("report.css"),
        "data": _json_in_html(data),
        "script": "\n".join(map(_template, SCRIPTS)),
    }
    page = _template("report.html")
    # Split first: what is put in may look like a place of another part.
    pieces = page.split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        filled += [parts[name], rest]
    return "".join(filled)


def _json_in_html(data: dict[str, Any]) -> str:
    """JSON that no HTML parser can mistake for a tag, whatever names the layers have."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _template(name: str) -> str:
    return (resources.files("dysens.report") / "templates" / name).read_text(encoding="utf-8")
