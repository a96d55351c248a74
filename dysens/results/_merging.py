"""Points from several sources as one list, with every contradiction found and named."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from dysens.costs import Costs
from dysens.errors import InputError
from dysens.results._points import Point, same_baseline

logger = logging.getLogger(__name__)

LOSS_TOLERANCE = 1e-6
"""Losses of one point closer than this are one value."""


def merged_points(parts: Sequence[tuple[str, Iterable[Point]]], prefer: str | None = None) -> list[Point]:
    """All points, a group after the other in order of first appearance, by rising ratio.

    Args:
        parts: Label and points of each source.
        prefer: "first" or "last" where two sources disagree on a point; None makes that an error.
    """
    names: dict[str, str] = {}  # layer path to the group's name
    owners: dict[str, str] = {}  # the group's name to its layer path
    taken: dict[str, dict[float, tuple[str, Point]]] = {}
    for label, points in parts:
        for point in points:
            name = names.get(point.path, point.param) if point.path else point.param
            _remember_place(name, point.path, label, names, owners)
            group = taken.setdefault(name, {})
            known = group.get(point.ratio)
            if known is not None and prefer is None and not _agree(known[1], point):
                raise InputError(_disagreement(name, known, (label, point)))
            if known is None or prefer == "last":
                group[point.ratio] = (label, point)
    return [
        replace(group[ratio][1], param=name, path=owners.get(name, ""))
        for name, group in taken.items()
        for ratio in sorted(group)
    ]


def one_baseline(baselines: Sequence[tuple[str, float | None]], prefer: str | None = None) -> float | None:
    """The baseline that all sources share (those that don't know theirs have no say)."""
    known = [(label, baseline) for label, baseline in baselines if baseline is not None]
    if not known:
        return None
    first_label, first = known[0]
    for label, baseline in known[1:]:
        if prefer is None and not same_baseline(first, baseline):
            raise InputError(
                f"The baselines differ: {first:.6g} in {first_label}, {baseline:.6g} in {label}, so "
                'losses don\'t compare; say prefer="first" or prefer="last" to merge them all the same.'
            )
    return known[-1][1] if prefer == "last" else first


def partial_points(points: Iterable[Point], full: Iterable[Point]) -> list[Point]:
    """The points that saw only part of the data, under the names of the full ones, where no full one is known."""
    names = {point.path: point.param for point in full if point.path}
    known = {(point.param, point.ratio) for point in full}
    found: dict[tuple[str, float], Point] = {}
    for point in points:
        name = names.get(point.path, point.param) if point.path else point.param
        if not point.full and (name, point.ratio) not in known:
            found[name, point.ratio] = replace(point, param=name)
    return list(found.values())


def one_costs(costs: Sequence[tuple[str, Costs | None]], prefer: str | None = None) -> Costs | None:
    """The costs that all sources share; of different ones, the first (or the last), and a warning says so."""
    known = [(label, each) for label, each in costs if each is not None]
    if not known:
        return None
    label, chosen = known[-1 if prefer == "last" else 0]
    names = {group.path: group.name for group in chosen.groups}
    others = [other for other, each in known if each.renamed(names) != chosen]
    if others:
        logger.warning("%s and %s don't agree on what the network costs; %s counts.", label, others[0], label)
    return chosen


def _remember_place(name: str, path: str, label: str, names: dict[str, str], owners: dict[str, str]) -> None:
    if not path:
        return
    if owners.setdefault(name, path) != path:
        raise InputError(
            f"{name} is the parameter {owners[name]} in one place and {path} in {label}: the automatic names "
            "have shifted. Give both the same names with Sensitivities.renamed first."
        )
    names[path] = name


def _agree(one: Point, other: Point) -> bool:
    return one.loss == other.loss or math.isclose(one.loss, other.loss, rel_tol=1e-9, abs_tol=LOSS_TOLERANCE)


def _disagreement(name: str, known: tuple[str, Point], new: tuple[str, Point]) -> str:
    (old_label, old), (label, point) = known, new
    return (
        f"{name} at ratio {point.ratio} has the loss {old.loss:.6g} in {old_label} and {point.loss:.6g} in "
        f'{label}. Say prefer="first" or prefer="last", or leave one out.'
    )
