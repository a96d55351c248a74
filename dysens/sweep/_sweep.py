"""The sweep: mask one group by one ratio, score the model, write the point down, take the mask off."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dysens.compiled import Scorer, ServedWronglyError
from dysens.errors import InputError
from dysens.evaluators import checked_baseline, metric_of, relative_loss
from dysens.groups import ChannelGroup, Choice, Role, checked_ratio
from dysens.progress import Progress, progress
from dysens.pruning import PrunePlan, plan_for
from dysens.ratios import ratio_key
from dysens.results import (
    Header,
    Journal,
    Point,
    check_place,
    continue_slim_file,
    is_slim_file,
    same_baseline,
)

logger = logging.getLogger(__name__)


def check_journal(sen_file: str | os.PathLike[str]) -> None:
    """Say before anything is evaluated if a file can't be read or written."""
    place = Path(sen_file)
    if is_slim_file(sen_file):
        _, place = continue_slim_file(sen_file)
    check_place(place)


def open_journal(sen_file: str | os.PathLike[str], header: Header, force: bool = False) -> Journal:
    """The journal of a sweep. A PaddleSlim pickle is read and continued in a journal beside it."""
    if not is_slim_file(sen_file):
        return Journal.open(sen_file, header, force)
    points, beside = continue_slim_file(sen_file, header.paths)
    journal = Journal.open(beside, header, force)
    there = {(point.param, point.ratio) for point in journal.points()}
    for point in points:
        if (point.param, point.ratio) not in there:
            journal.append(point)
    return journal


Observer = Callable[[Point], object]

POLL_SECONDS = 0.2
"""How often the journal is looked at while other processes have the points that are left."""


class SharedPoints:
    """The points of a sweep: those that are measured, by whomever, and those that are left.

    Args:
        groups: What is swept.
        ratios: The ratios of every group, in the order in which they are wanted.
        journal: Where points are kept and claimed; without one they are kept here, and nobody else is at them.
        observer: Gets every point as soon as it is known here, those that the journal held before first.
    """

    def __init__(
        self,
        groups: Sequence[ChannelGroup],
        ratios: Sequence[float],
        journal: Journal | None,
        observer: Observer | None = None,
    ) -> None:
        self._wanted = {(group.name, ratio_key(ratio)): group for ratio in ratios for group in groups}
        self._order = {group.name: position for position, group in enumerate(groups)}
        self._journal = journal
        self._observer = observer
        self._found: dict[tuple[str, float], Point] = {}
        self.refresh()

    def __len__(self) -> int:
        """How many points there are in all."""
        return len(self._wanted)

    @property
    def found(self) -> list[Point]:
        """What is measured, group by group and by rising ratio."""
        return sorted(self._found.values(), key=lambda point: (self._order[point.param], point.ratio))

    @property
    def missing(self) -> list[tuple[ChannelGroup, float]]:
        """What nobody has measured yet, as far as is known here."""
        return [(group, key[1]) for key, group in self._wanted.items() if key not in self._found]

    def refresh(self) -> list[Point]:
        """Look what others have measured; the points that are new here."""
        journaled = self._journal.points() if self._journal is not None else []
        keys = ((point.param, point.ratio) for point in journaled)
        new = {k: p for k, p in zip(keys, journaled) if k in self._wanted and self._is_news(k, p)}
        for point in new.values():
            self._learn(point)
        return list(new.values())

    def _is_news(self, key: tuple[str, float], point: Point) -> bool:
        """Whether a point is new here, or was measured again; by what it prints, since an unscored one equals nothing."""
        found = self._found.get(key)
        return found is None or repr((found.metric, found.loss)) != repr((point.metric, point.loss))

    def add(self, point: Point) -> None:
        """A point was measured here; when this returns it is on disk."""
        if self._journal is not None:
            self._journal.append(point)
        self._learn(point)

    def _learn(self, point: Point) -> None:
        self._found[point.param, point.ratio] = point
        if self._observer is not None:
            self._observer(point)

    def to_measure(self, display: Progress) -> Iterator[tuple[ChannelGroup, float]]:
        """Points for this process, one by one, until all are found; each has to be given to `add` before the next.

        What others have claimed is waited for, and taken over if they die.
        """
        while missing := self.missing:
            mine = next((point for point in missing if self._claim(*point)), None)
            if mine is None:
                time.sleep(POLL_SECONDS)
            else:
                group, ratio = mine
                display.at(f"{group.path} at {ratio:g}")
                yield mine
                display.last(self._found[group.name, ratio].loss)
            self.refresh()
            display.reach(len(self._found))

    def _claim(self, group: ChannelGroup, ratio: float) -> bool:
        return self._journal is None or self._journal.claim(group.name, ratio)


DEFAULT_RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


_Place = tuple[ChannelGroup, float]
_Masked = tuple[str, bytes]  # a group, and the units that are masked


@dataclass
class Sweep:
    """What a sweep needs to know.

    Attributes:
        roles: The model's layers with weights.
        groups: What to sweep.
        choose: Which units a ratio removes from a group.
        ratios: The shares of units to remove.
        scorer: Scores the live model, and leaves it as found.
        baseline: What the whole model scores; another one after a run in which a compiled copy was found to be wrong.
        alone: Whether nobody else measures against this baseline now.
    """

    roles: Mapping[str, Role]
    groups: Sequence[ChannelGroup]
    choose: Choice
    ratios: Sequence[float]
    scorer: Scorer
    baseline: float
    alone: bool = True

    def run(
        self, journal: Journal | None = None, show_progress: bool = True, observer: Observer | None = None
    ) -> list[Point]:
        """Measure every point that the journal lacks; each is on disk before the next begins.

        Other processes may work on the same journal at the same time: the points are shared among them.
        """
        metrics: dict[_Masked, float] = {}
        mine: list[_Place] = []
        with journal or nullcontext():
            points = SharedPoints(self.groups, coarse_first(self.ratios), journal, observer)
            self._announce(points.missing)
            with progress(len(points), "sweep", show_progress, len(points.found)) as display:
                for group, ratio in points.to_measure(display):
                    try:
                        found = self._measure(group, ratio, metrics, points.missing)
                    except ServedWronglyError:
                        metrics.clear()
                        self._rebase(journal, len(points.found) - len(mine))
                        for place in mine:
                            points.add(self._measure(*place, metrics, ()))
                        found = self._measure(group, ratio, metrics, points.missing)
                    points.add(found)
                    mine.append((group, ratio))
        return points.found

    def _rebase(self, journal: Journal | None, others: int) -> None:
        """The baseline came from the copy that was wrong: measure it again, and let the journal know if it is another one."""
        baseline = checked_baseline(self.scorer.score())
        if same_baseline(baseline, self.baseline):
            return
        if not self.alone or others:
            raise InputError(
                f"The whole model scores {baseline:.6g}, not {self.baseline:.6g} as a compiled copy said, and other points were "
                'measured against that. Sweep again with fast="off" into another sen_file.'
            )
        self.baseline = baseline
        if journal is not None:
            journal.supersede(replace(journal.header, baseline=baseline))

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
            logger.warning(
                "%s at ratio %g scores %s; the point is kept as unscored.", group.name, ratio, metric
            )
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
