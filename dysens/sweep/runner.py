"""The sweep: mask one group by one ratio, score the model, write the point down, take the mask off."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from dysens.errors import InputError
from dysens.groups.group import ChannelGroup, Choice, checked_ratio
from dysens.groups.roles import Role
from dysens.progress import progress
from dysens.pruning.plan import PrunePlan, plan_for
from dysens.results.journal import Journal
from dysens.results.points import Point
from dysens.sweep.metrics import metric_of, relative_loss
from dysens.sweep.scoring import Scorer
from dysens.sweep.sharing import Observer, SharedPoints

log = logging.getLogger("dysens.sweep")

DEFAULT_RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


_Place = tuple[ChannelGroup, float]
_Masked = tuple[str, bytes]  # a group, and the units that are masked


@dataclass(frozen=True)
class Sweep:
    """What a sweep needs to know.

    Attributes:
        roles: The model's layers with weights.
        groups: What to sweep.
        choose: Which units a ratio removes from a group.
        ratios: The shares of units to remove.
        scorer: Scores the live model, and leaves it as found.
        baseline: What the whole model scores.
    """

    roles: Mapping[str, Role]
    groups: Sequence[ChannelGroup]
    choose: Choice
    ratios: Sequence[float]
    scorer: Scorer
    baseline: float

    def run(
        self, journal: Journal | None = None, show_progress: bool = True, observer: Observer | None = None
    ) -> list[Point]:
        """Measure every point that the journal lacks; each is on disk before the next begins.

        Other processes may work on the same journal at the same time: the points are shared among them.
        """
        metrics: dict[_Masked, float] = {}
        with journal or nullcontext():
            points = SharedPoints(self.groups, coarse_first(self.ratios), journal, observer)
            self._announce(points.missing)
            with progress(len(points), "sweep", show_progress, len(points.found)) as display:
                for group, ratio in points.to_measure(display):
                    points.add(self._measure(group, ratio, metrics, points.missing))
        return points.found

    def _measure(
        self, group: ChannelGroup, ratio: float, metrics: dict[_Masked, float], missing: Sequence[_Place]
    ) -> Point:
        start = time.perf_counter()
        masked = self._masked(group, ratio)
        if masked not in metrics:
            # In a narrow group several ratios remove the same channels: one evaluation serves them all.
            others = (
                place for place in missing if (key := self._masked(*place)) != masked and key not in metrics
            )
            then = next((self._plan(*place) for place in others), None)
            metrics[masked] = metric_of(self.scorer.score(self._plan(group, ratio), then))
        metric = metrics[masked]
        if not np.isfinite(metric):
            log.warning("%s at ratio %g scores %s; the point is kept as unscored.", group.name, ratio, metric)
        loss = relative_loss(self.baseline, metric, self.scorer.higher_is_better)
        return Point(group.name, group.path, ratio, metric, loss, time.perf_counter() - start)

    def _masked(self, group: ChannelGroup, ratio: float) -> _Masked:
        return group.name, self.choose(group, ratio).tobytes()

    def _plan(self, group: ChannelGroup, ratio: float) -> PrunePlan:
        return plan_for(self.roles, group.removal(self.choose(group, ratio)))

    def _announce(self, missing: Sequence[tuple[ChannelGroup, float]]) -> None:
        """Let the scorer prepare for the points that are left; the largest ratio of a group stands for all of them."""
        counts = Counter(group.name for group, _ in missing)
        largest = {group.name: (group, ratio) for group, ratio in sorted(missing, key=lambda point: point[1])}
        work = [(self._plan(group, ratio), float(counts[name])) for name, (group, ratio) in largest.items()]
        self.scorer.expect(work)


def checked_ratios(ratios: Iterable[float] | None) -> list[float]:
    """The ratios of a sweep, at least one, each at least 0 and under 1."""
    if ratios is None:
        return list(DEFAULT_RATIOS)
    if isinstance(ratios, (int, float)):
        ratios = [ratios]
    found = [checked_ratio(ratio) for ratio in ratios]
    if not found:
        raise InputError("ratios is empty; give at least one, or leave it out for 0.1, 0.2 ... 0.9.")
    return found


def coarse_first(ratios: Sequence[float]) -> list[float]:
    """The middle first, then the middles of what is left: an interrupted sweep is already a coarse one.

    Example:
        >>> coarse_first([0.1, 0.2, 0.3, 0.4, 0.5])
        [0.3, 0.1, 0.4, 0.2, 0.5]
    """
    ordered: list[float] = []
    spans = [span] if (span := sorted(dict.fromkeys(ratios))) else []
    while spans:
        ordered += [span[(len(span) - 1) // 2] for span in spans]
        halves = [(span[: (len(span) - 1) // 2], span[(len(span) - 1) // 2 + 1 :]) for span in spans]
        spans = [half for pair in halves for half in pair if half]
    return ordered
