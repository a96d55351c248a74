"""A report to look at: one HTML file with everything in it, which needs no network and no Python."""

from __future__ import annotations

import html
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any, Union

import dysens
from dysens.atomic import write_whole
from dysens.costs import Costs
from dysens.display import short_names
from dysens.errors import InputError, UnreachableError
from dysens.progress import progress
from dysens.ratios import (
    Curve,
    predicted_curve,
    predicted_loss,
    ratios_by_flops,
    ratios_by_loss,
    scatter,
    threshold_segments,
)
from dysens.report._plot_data import layer_label
from dysens.results import Point, Sensitivities, header_of

TARGETS = tuple(percent / 100 for percent in range(2, 100, 2))
"""Shares of the FLOPs to remove that a page offers."""

SHORT = {"caption": 24, "heading": 30}  # letters of a label above a panel, and beside the heat map
THRESHOLDS, ADDED_UP = (0.05, 0.03, 0.02, 0.01, 0.005, 0.002), 0.1
"""Losses per layer that a page may begin with, and what they may add up to."""


def page_data(
    sens: Sensitivities, costs: Costs | None = None, show_progress: bool = False, budgets: bool = True
) -> dict[str, Any]:
    """Groups, curves, costs, and the ratios for every loss threshold and every share of the FLOPs that can be removed.

    Args:
        sens: What was measured.
        costs: What the network costs; taken from ``sens`` if not given.
        show_progress: Show a progress bar: a large network takes a minute.
        budgets: Whether to choose ratios for every share of the FLOPs, which is what takes that long.
    """
    if not sens and not sens.partial_points:
        raise InputError(
            f"{sens.source or 'This result'} holds no points, so there is nothing to report; run a sweep first."
        )
    known = costs if costs is not None else sens.costs
    known = None if known is None else known.renamed({path: name for name, path in sens.paths.items()})
    names = _names(sens, known)
    unknown = [name for name in names if known is not None and name not in known]
    usable = known if not unknown else None
    return {
        # A name that the locale could not read is still the bytes of a name, almost always in UTF-8.
        "source": os.fsencode(Path(sens.source).name).decode("utf-8", "replace"),
        "baseline": sens.baseline,
        "higherIsBetter": sens.higher_is_better,
        "about": about(sens),
        "threshold": sensible_threshold(sens),
        "scatter": scatter(sens.values()),
        "groups": _groups(sens, names),
        "costs": None if usable is None else _costs(usable, names),
        "withoutCosts": [_label(sens, name) for name in unknown],
        "live": not budgets,  # the run goes on; ratios by FLOPs take too long to be chosen anew at every point
        "targets": [] if usable is None or not budgets else _budget_rows(sens, usable, names, show_progress),
    }


def moment_text(when: datetime) -> str:
    """Day, minute and time zone, such as 2026-01-31 09:05 UTC+08:00."""
    zone = f"{when:%z}"
    ahead = "" if zone in ("", "+0000") else f"{zone[:3]}:{zone[3:5]}"
    return f"{when:%Y-%m-%d %H:%M}" + (f" UTC{ahead}" if zone else "")


def about(sens: Sensitivities) -> dict[str, str]:
    """What was measured, by what and when, as far as the file says it: model, metric, criterion, date, versions."""
    found = {"versions": f"dysens {dysens.__version__}"}
    path = Path(sens.source) if sens.source else None
    if path is None or not path.is_file():
        return found
    when = datetime.fromtimestamp(path.stat().st_mtime).astimezone()
    found["date"] = moment_text(when)
    header = header_of(path)
    if header is not None:
        found |= {
            "model": header.model,
            "metric": header.evaluator.replace("<lambda>", ""),
            "criterion": header.criterion,
        }
        if header.versions:
            found["versions"] = ", ".join(f"{name} {version}" for name, version in header.versions.items())
    return found


def sensible_threshold(sens: Sensitivities) -> float:
    """The loss per layer that a page begins with: the largest of some whose predicted losses add up to no more than a tenth."""
    for threshold in THRESHOLDS:
        ratios = ratios_by_loss(sens, threshold)
        if math.fsum(predicted_loss(sens[name], ratio) for name, ratio in ratios.items()) <= ADDED_UP:
            return threshold
    return THRESHOLDS[-1]


def _budget_rows(
    sens: Sensitivities, costs: Costs, names: Sequence[str], show_progress: bool
) -> list[list[Any]]:
    """For every share of the FLOPs that can be removed: the share, and the ratio of every group (0 where it stays whole)."""
    rows: list[list[Any]] = []
    targets = TARGETS if sens else ()
    with progress(len(targets), "report", show_progress) as display:
        for target in targets:
            try:
                ratios = ratios_by_flops(sens, costs, target)
            except UnreachableError:  # and so are all that come after
                break
            rows.append([target, [ratios.get(name, 0.0) for name in names]])
            display.reach(len(rows))
        display.reach(len(targets))
    return rows


def _names(sens: Sensitivities, costs: Costs | None) -> list[str]:
    """All groups with points, also those that only saw part of the data; in the order of the model, if that is known."""
    found = dict.fromkeys([*sens, *(point.param for point in sens.partial_points)])
    order = {} if costs is None else {group.name: index for index, group in enumerate(costs.groups)}
    return sorted(found, key=lambda name: order.get(name, len(order)))


def _groups(sens: Sensitivities, names: Sequence[str]) -> list[dict[str, Any]]:
    groups = [_group(sens, name) for name in names]
    labels = [group["label"] for group in groups]
    for key, length in SHORT.items():
        for group, short in zip(groups, short_names(labels, length)):
            group[key] = short
    return groups


def _group(sens: Sensitivities, name: str) -> dict[str, Any]:
    """A group's points, and what follows from them by the rules of `dysens.ratios`: the page has none of its own."""
    curve: Curve = sens.get(name, {})
    return {
        "name": name,
        "path": _path(sens, name),
        "label": _label(sens, name),
        "points": _line(curve),
        "cautious": [list(segment) for segment in threshold_segments(curve)],
        "paddleslim": [list(segment) for segment in threshold_segments(curve, monotone=False)],
        "predicted": _line(predicted_curve(curve)),
        "partial": _partial(point for point in sens.partial_points if point.param == name),
    }


def _path(sens: Sensitivities, name: str) -> str:
    partial = {point.param: point.path for point in sens.partial_points}
    return sens.paths.get(name) or partial.get(name) or name


def _label(sens: Sensitivities, name: str) -> str:
    return layer_label(_path(sens, name))


def _partial(points: Iterable[Point]) -> list[list[Any]]:
    return [
        [point.ratio, _number(point.loss), point.share] for point in sorted(points, key=lambda p: p.ratio)
    ]


def _line(curve: Curve) -> list[list[float | None]]:
    return [[ratio, _number(loss)] for ratio, loss in curve.items()]


def _number(loss: float) -> float | None:
    """A number for JSON, which has no infinity; None for a point without a score."""
    return loss if math.isfinite(loss) else None


def _costs(costs: Costs, names: Sequence[str]) -> dict[str, Any]:
    places = {group.name: index for index, group in enumerate(costs.groups)}
    return {**costs.to_json(), "places": [places[name] for name in names]}


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
        raise InputError(f'The language must be "en", "zh" or None for the reader\'s own, not {language!r}.')
    measured = sens if isinstance(sens, Sensitivities) else Sensitivities.load(sens)
    data = {**page_data(measured, costs, progress), "title": title, "language": language}
    place = Path(path)
    write_whole(place, _page(data).encode("utf-8"))
    return place


def report_page(sens: Sensitivities, budgets: bool = True) -> str:
    """The page as text, see `write_report`.

    Args:
        sens: What was measured.
        budgets: See `page_data`.
    """
    return _page({**page_data(sens, budgets=budgets), "title": None, "language": None})


def _page(data: dict[str, Any]) -> str:
    title = data["title"] or f"dysens {data['source']}".strip()
    parts = {
        "title": html.escape(title),
        "style": template("report.css"),
        "data": _json_in_html(data),
        "script": "\n".join(map(template, SCRIPTS)),
    }
    return filled("report.html", parts)


def filled(name: str, parts: Mapping[str, str]) -> str:
    """A template with its ``{{places}}`` filled.

    Args:
        name: Of the template.
        parts: By the name of a place; HTML already.
    """
    # Split first: what is put in may look like a place of another part.
    pieces = template(name).split("{{")
    done = [pieces[0]]
    for piece in pieces[1:]:
        place, _, rest = piece.partition("}}")
        done += [parts[place], rest]
    return "".join(done)


def _json_in_html(data: dict[str, Any]) -> str:
    """JSON that no HTML parser can mistake for a tag, whatever names the layers have."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def template(name: str) -> str:
    """A file of the templates."""
    return (resources.files("dysens.report") / "templates" / name).read_text(encoding="utf-8")
