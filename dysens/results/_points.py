"""Measured points, the header that says what they were measured on, and several lists as one, every contradiction named."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dysens.costs import Costs
from dysens.errors import InputError
from dysens.ratios import checked_number, ratio_key

logger = logging.getLogger(__name__)


FORMAT = 1
"""Version of the journal format; a reader refuses a higher one."""

BASELINE_TOLERANCE = 1e-5
"""Baselines closer than this, relatively, count as one: summing in another order moves the last digits."""


def checked_text(what: str, value: Any) -> str:
    """``value`` if it is a string that a file can hold; raise InputError otherwise."""
    if not isinstance(value, str):
        raise InputError(f"{what} must be a string, not {value!r:.80}.")
    if "\0" in value:
        raise InputError(f"{what} {value!r:.80} holds a NUL character, which a table cannot.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"{what} {value!r:.80} holds characters that UTF-8 cannot write.") from error
    return value


@dataclass(frozen=True)
class Point:
    """The score of the model with one group pruned by one ratio.

    A score that is not a finite number (NaN, infinity) is no score: ``metric`` is then None and ``loss``
    infinite, so that no threshold admits it. A point from a PaddleSlim file has a loss but no metric.

    Attributes:
        param: The group's name: its first 4-D parameter, such as "conv2d_0.w_0".
        path: The same parameter by its place in the layer, "stem.0.weight"; empty if unknown.
        ratio: Share of the group's units removed, from 0 up to but not including 1.
        metric: What the evaluator said, or None.
        loss: Relative loss against the baseline; negative if pruning helped.
        seconds: How long the point took, or None if unknown.
        share: Share of the data that was seen. Under 1 the point is partial and never passes for a full one.
        evidence: Of a point of a search, how sure its loss is, in the numbers that it decides by; None if unknown.
    """

    param: str
    path: str
    ratio: float
    metric: float | None
    loss: float
    seconds: float | None = None
    share: float = 1.0
    evidence: Mapping[str, float] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        name = checked_text("The name of a point's parameter", self.param)
        if not name:
            raise InputError("A point needs the name of its parameter; it is empty.")
        checked_text(f"The layer path of {name}", self.path)
        ratio = ratio_key(checked_number(f"The ratio of {name}", self.ratio))
        if not 0 <= ratio < 1:
            raise InputError(f"The ratio of {name} must be at least 0 and under 1, not {ratio}.")
        share = checked_number(f"The share of data behind {name} at {ratio}", self.share)
        if not 0 < share <= 1:
            raise InputError(
                f"The share of data behind {name} at {ratio} must be over 0 and at most 1, not {share}."
            )
        self._set("ratio", ratio)
        self._set("share", share)
        if self.evidence is not None:
            self._set("evidence", _checked_evidence(f"{name} at {ratio}", self.evidence))
        self._settle_score(f"{name} at {ratio}")

    def _settle_score(self, where: str) -> None:
        metric = None if self.metric is None else checked_number(f"The metric of {where}", self.metric)
        loss = checked_number(f"The loss of {where}", self.loss)
        unscored = (metric is not None and not math.isfinite(metric)) or not math.isfinite(loss)
        self._set("metric", None if unscored else metric)
        self._set("loss", math.inf if unscored else loss)
        if self.seconds is not None:
            seconds = checked_number(f"The duration of {where}", self.seconds)
            if not (math.isfinite(seconds) and seconds >= 0):
                raise InputError(f"The duration of {where} must be a number of seconds, not {seconds}.")
            self._set("seconds", seconds)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)  # frozen for everybody else

    @property
    def full(self) -> bool:
        """Whether the whole data set was seen."""
        return self.share == 1.0


def _checked_evidence(where: str, evidence: Any) -> dict[str, float]:
    if not isinstance(evidence, Mapping) or not all(isinstance(name, str) for name in evidence):
        raise InputError(f"The evidence of {where} must be numbers by name, not {evidence!r:.80}.")
    found = {name: checked_number(f"The {name} of {where}", value) for name, value in evidence.items()}
    if not all(map(math.isfinite, found.values())):
        raise InputError(f"The evidence of {where} must be finite numbers.")
    return found


@dataclass(frozen=True)
class Header:
    """What a journal's points were measured on.

    Attributes:
        model: The network in words, usually its class name; for people, not compared.
        weights: Fingerprint of the weights.
        criterion: How units were ranked ("fpgm", ...).
        evaluator: Name of the evaluator.
        baseline: Its score of the whole network.
        higher_is_better: False for an error or a loss.
        paths: Parameter name to layer path of every group, in parameter order.
        costs: What the network costs at any ratios, or None if unknown; not compared.
        versions: Of the packages that measured, by name; for people, not compared.
        runtime: Who ran the forward: "live", "paddle", "openvino"; empty if unknown. Not compared.
        samples: How many samples the score is of; 0 if unknown. Not compared.
    """

    model: str
    weights: str
    criterion: str
    evaluator: str
    baseline: float
    higher_is_better: bool = True
    paths: Mapping[str, str] = field(default_factory=dict)
    costs: Costs | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    runtime: str = ""
    samples: int = 0

    def __post_init__(self) -> None:
        for name in ("model", "weights", "criterion", "evaluator"):
            checked_text(f"The journal header's {name}", getattr(self, name))
        baseline = checked_number("The baseline", self.baseline)
        if not math.isfinite(baseline):
            raise InputError(f"The baseline must be a finite number, not {baseline}.")
        if not isinstance(self.higher_is_better, bool):
            raise InputError(
                f"The argument higher_is_better must be True or False, not {self.higher_is_better!r:.80}."
            )
        if not isinstance(self.runtime, str):
            raise InputError(f"The journal header's runtime must be a name, not {self.runtime!r:.80}.")
        if isinstance(self.samples, bool) or not isinstance(self.samples, int) or self.samples < 0:
            raise InputError(
                f"The journal header's samples must be a whole number, not {self.samples!r:.80}."
            )
        if not isinstance(self.paths, Mapping):
            raise InputError(
                f"The journal header's paths must map names to layer paths, not {self.paths!r:.80}."
            )
        for param, path in self.paths.items():
            checked_text("A parameter name in the journal header", param)
            checked_text(f"The layer path of {param}", path)
        if not isinstance(self.versions, Mapping):
            raise InputError(
                f"The journal header's versions must map names to versions, not {self.versions!r:.80}."
            )
        for name, version in self.versions.items():
            checked_text("The name of a package in the journal header", name)
            checked_text(f"The version of {name}", version)
        object.__setattr__(self, "baseline", baseline)
        object.__setattr__(self, "paths", dict(self.paths))
        object.__setattr__(self, "versions", dict(self.versions))

    def differences(self, other: Header) -> list[str]:
        """Why points measured under ``other`` must not join those of this header, a clause each."""
        clauses = []
        if self.weights != other.weights:
            ours, theirs = f"{self.model} {self.weights}", f"{other.model} {other.weights}"
            clauses.append(f"the weights are not the same ({ours} there, {theirs} now)")
        if self.criterion != other.criterion:
            clauses.append(f"the criterion was {self.criterion} and is {other.criterion} now")
        if self.evaluator != other.evaluator:
            clauses.append(f"the evaluator was {self.evaluator} and is {other.evaluator} now")
        if self.higher_is_better != other.higher_is_better:
            was, now = ("higher", "lower") if self.higher_is_better else ("lower", "higher")
            clauses.append(f"{was} scores were better and {now} are now")
        if not same_baseline(self.baseline, other.baseline) and not self._rounds_otherwise(other):
            clauses.append(f"the baseline was {self.baseline:.6g} and is {other.baseline:.6g} now")
        return clauses

    def _rounds_otherwise(self, other: Header) -> bool:
        """Whether baselines are within one sample of each other, and another runtime explains it: it rounds otherwise."""
        if not self.runtime or not other.runtime or self.runtime == other.runtime:
            return False
        if not self.samples or self.samples != other.samples:
            return False
        return abs(self.baseline - other.baseline) <= (1 + BASELINE_TOLERANCE) / self.samples


def same_baseline(one: float, other: float) -> bool:
    """Whether two baselines differ by float noise only."""
    return math.isclose(one, other, rel_tol=BASELINE_TOLERANCE, abs_tol=1e-12)


def under_names(points: Iterable[Point], paths: Mapping[str, str]) -> list[Point]:
    """Points under the names that ``paths`` (name to layer path) gives their layers, in its order and by
    ratio.

    Automatic names shift from process to process, so the layer path decides. A point of a layer that
    ``paths`` does not list keeps its name, and comes last; it is left out if that name now belongs to another
    layer. Of two points for one layer and ratio the later counts.
    """
    names = {path: name for name, path in paths.items()}
    order = {name: position for position, name in enumerate(paths)}
    chosen: dict[tuple[str, float], Point] = {}
    for point in points:
        path = point.path or paths.get(point.param, "")
        name = names.get(path, point.param)
        if paths.get(name, path) == path:
            order.setdefault(name, len(order))
            chosen[name, point.ratio] = replace(point, param=name, path=path)
    return sorted(chosen.values(), key=lambda point: (order[point.param], point.ratio))


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
    """The baseline that all sources share; sources without one are ignored."""
    known = [(label, baseline) for label, baseline in baselines if baseline is not None]
    if not known:
        return None
    first_label, first = known[0]
    for label, baseline in known[1:]:
        if prefer is None and not same_baseline(first, baseline):
            raise InputError(
                f"The baselines differ: {first:.6g} in {first_label}, {baseline:.6g} in {label}, so "
                'losses cannot be compared; say prefer="first" or prefer="last" to merge them all the same.'
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
        logger.warning(
            "%s and %s do not agree on what the network costs; %s counts.", label, others[0], label
        )
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
