"""The sweep: mask one group by one ratio, score the model, write the point down, take the mask off."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dysens.errors import InputError
from dysens.evaluators import relative_loss
from dysens.flags import flag, given
from dysens.groups import ChannelGroup, Choice, checked_ratio
from dysens.progress import Progress, progress
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
from dysens.sweep._measurer import Distrusted
from dysens.sweep._options import Observer
from dysens.sweep._pool import Pool, Task, Work

logger = logging.getLogger(__name__)


def check_journal(sen_file: str | os.PathLike[str]) -> None:
    """Raise JournalError before anything is evaluated if a file cannot be read or written."""
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
        """The points that are not known here to have been measured."""
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

    def claim(self, group: ChannelGroup, ratio: float) -> bool:
        """Whether this process may measure a point: nobody else is at it."""
        return self._journal is None or self._journal.claim(group.name, ratio)


DEFAULT_RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


_Place = tuple[ChannelGroup, float]
_Masked = tuple[str, bytes]  # a group, and the units that are masked


class Sweep(Work):
    """All ratios of all groups, coarse ratios first.

    Neighbouring groups go to one worker, because what comes before them in the forward is computed once for all their ratios;
    who has nothing left takes over from others. Other processes may work on the same journal at the same time.

    Args:
        groups: What to sweep.
        choose: Which units a ratio removes from a group.
        ratios: The shares of units to remove.
        baseline: What the whole model scores.
        higher_is_better: False if the score is an error.
        workers: How many share it.
        alone: Whether this process measures, whose compiled copy gave the baseline.
        journal: Where points are kept and claimed.
        observer: Gets every point as soon as it is known.

    Attributes:
        baseline: Another one after a run in which a compiled copy was found to be wrong.
        points: What is measured, and what is left.
    """

    def __init__(
        self,
        groups: Sequence[ChannelGroup],
        choose: Choice,
        ratios: Sequence[float],
        baseline: float,
        higher_is_better: bool = True,
        workers: int = 1,
        journal: Journal | None = None,
        observer: Observer | None = None,
        alone: bool = True,
    ) -> None:
        self._alone = alone
        self.baseline = baseline
        self.points = SharedPoints(groups, coarse_first(ratios), journal, observer)
        self._choose = choose
        self._higher_is_better = higher_is_better
        self._journal = journal
        self._slots = {group.name: 1 + number * workers // len(groups) for number, group in enumerate(groups)}
        self._metrics: dict[_Masked, float] = {}
        self._under_way: dict[Task, _Place] = {}
        self._measured: dict[tuple[str, float], tuple[_Place, int]] = {}  # here, and by which slot
        self._repeats: dict[tuple[str, float], _Place] = {}
        self._chosen: dict[tuple[str, float], np.ndarray] = {}
        self._given_up: set[tuple[str, float]] = set()
        self._display: Progress | None = None

    def run(self, pool: Pool, show_progress: bool = True) -> list[Point]:
        """Measure every point that the journal lacks; each is on disk before the worker gets the next."""
        with progress(len(self.points), "sweep", show_progress, len(self.points.found)) as self._display:
            pool.run(self)
        return self.points.found

    @property
    def done(self) -> bool:
        """Whether all points are there."""
        return not self._left()

    def _left(self) -> list[_Place]:
        missing = [place for place in self.points.missing if self._key(place) not in self._given_up]
        return [*self._repeats.values(), *missing]

    @staticmethod
    def _key(place: _Place) -> tuple[str, float]:
        return place[0].name, place[1]

    def preparation(self, slot: int) -> Task | None:
        """The largest ratio of a group stands for all of them."""
        mine = [place for place in self._left() if self._slots[place[0].name] == slot]
        # Ratios that remove the same units take one evaluation.
        counts = Counter(name for name, _ in {self._masked(place) for place in mine})
        largest = {group.name: (group, ratio) for group, ratio in sorted(mine, key=lambda place: place[1])}
        work = [(*self._named(place), float(counts[name])) for name, place in largest.items()]
        return Task("expect", (work,)) if work else None

    def task_for(self, slot: int) -> Task | None:
        """The next point of the worker's own groups, or of others; it is claimed."""
        # In a narrow group several ratios remove the same units: one evaluation serves them all.
        busy = {self._masked(place) for place in self._under_way.values()}
        ahead = sorted(self._left(), key=lambda place: self._slots[place[0].name] != slot)
        for number, place in enumerate(ahead):
            masked = self._masked(place)
            if masked in busy or not (self._key(place) in self._repeats or self.points.claim(*place)):
                continue
            if masked in self._metrics:
                self._add(place, self._metrics[masked], 0.0, slot)
                continue
            group, ratio = place
            if self._display is not None:
                self._display.at(f"{group.path} at {ratio:g}")
            unknown = (other for other in ahead[number + 1 :] if self._is_open(other, {*busy, masked}))
            then = next(unknown, None)
            task = Task(
                "score",
                (self._named(place), self._named(then) if then is not None else None),
                f"{group.path} at {ratio:g}",
            )
            self._under_way[task] = place
            return task
        return None

    def _is_open(self, place: _Place, busy: set[_Masked]) -> bool:
        masked = self._masked(place)
        return masked not in busy and masked not in self._metrics

    def answered(self, task: Task, answer: Any, slot: int) -> None:
        """Write the point down."""
        place = self._under_way.pop(task)
        if isinstance(answer, Distrusted):
            self._distrust(answer.baseline, slot)
            return
        self._metrics[self._masked(place)] = answer.metric
        self._add(place, answer.metric, answer.seconds, slot)

    def _add(self, place: _Place, metric: float, seconds: float, slot: int) -> None:
        group, ratio = place
        if not np.isfinite(metric):
            logger.warning(
                "%s at ratio %g scores %s; the point is kept as unscored.", group.name, ratio, metric
            )
        loss = relative_loss(self.baseline, metric, self._higher_is_better)
        point = Point(group.name, group.path, ratio, metric, loss, seconds)
        self.points.add(point)
        self._measured[self._key(place)] = place, slot
        self._repeats.pop(self._key(place), None)
        self._show(point)

    def _show(self, point: Point) -> None:
        if self._display is not None:
            self._display.last(point.loss)
            self._display.reach(len(self.points.found))

    def give_up(self, task: Task) -> None:
        """Leave its point out, and those that remove the same units."""
        masked = self._masked(self._under_way.pop(task))
        self._given_up |= {self._key(place) for place in self._left() if self._masked(place) == masked}

    def lost(self, slot: int) -> None:
        """Nothing is remembered from point to point but what has been prepared."""

    def refresh(self) -> None:
        """Look what others have measured."""
        for point in self.points.refresh():
            self._show(point)

    def _distrust(self, baseline: float, slot: int) -> None:
        """Measure again what a worker measured by a copy that was wrong. The baseline may have come from such a copy too."""
        mine = {key: place for key, (place, measurer) in self._measured.items() if measurer == slot}
        if not same_baseline(baseline, self.baseline):
            if not self._alone or len(self.points.found) > len(mine):
                raise InputError(
                    f"The whole model scores {baseline:.6g}, not {self.baseline:.6g} as a compiled copy said, and other points "
                    f"were measured against that. Sweep again with {given('fast', 'off')} into another journal "
                    f"({flag('sen_file')})."
                )
            self.baseline = baseline
            if self._journal is not None:
                self._journal.supersede(replace(self._journal.header, baseline=baseline))
        self._repeats = mine
        for place in mine.values():
            self._metrics.pop(self._masked(place), None)

    def _masked(self, place: _Place) -> _Masked:
        return place[0].name, self._units(place).tobytes()

    def _named(self, place: _Place) -> tuple[str, np.ndarray]:
        return place[0].path, self._units(place)

    def _units(self, place: _Place) -> np.ndarray:
        key = self._key(place)
        if key not in self._chosen:
            self._chosen[key] = self._choose(*place)
        return self._chosen[key]


def checked_ratios(ratios: Iterable[float] | None) -> list[float]:
    """The ratios of a sweep, at least one, each at least 0 and under 1."""
    if ratios is None:
        return list(DEFAULT_RATIOS)
    if isinstance(ratios, (int, float)):
        ratios = [ratios]
    found = [checked_ratio(ratio) for ratio in ratios]
    if not found:
        raise InputError(
            "The list of ratios is empty; give at least one, or leave it out for 0.1, 0.2 ... 0.9."
        )
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
