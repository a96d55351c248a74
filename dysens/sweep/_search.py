"""Searching instead of sweeping: each group's largest ratio within a target loss.

Losses are taken to rise with the ratio, so that a grid of ratios can be halved instead of measured one by one. A short look
at each ratio tells where to go on; only the two ratios on either side of the answer are measured until the data decide
them, look by look, each going on from where the last one ended. Some ratios beyond are measured as well, to see whether losses do
rise.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from dysens.compiled import ServedWronglyError
from dysens.errors import InputError
from dysens.flags import given
from dysens.groups import ChannelGroup, Choice
from dysens.progress import Progress, progress
from dysens.ratios import ratio_key
from dysens.results import Journal, Point, same_baseline
from dysens.sweep._examiner import (
    Bracket,
    Evidence,
    Examiner,
    ProbeCosts,
    expected_passes,
    likely_answers,
    next_ratio,
)
from dysens.sweep._measurer import Distrusted, Look
from dysens.sweep._options import Observer
from dysens.sweep._pool import Pool, Task, Work
from dysens.sweep._result import GroupRatio, SearchResult, SpotCheck
from dysens.sweep._statistics import Estimate

logger = logging.getLogger(__name__)

# How many passes over the data a group takes, for the scorer to prepare by.
_PASSES_PER_GROUP = 1.5


@dataclass(eq=False)
class _Candidate:
    """A group under search. Index i stands for the i-th ratio of the grid, counted from 1.

    Attributes:
        group: The group.
        tried: The indices that were looked at.
        passes: How many passes over the data that took.
    """

    group: ChannelGroup
    tried: set[int] = field(default_factory=set)
    passes: float = 0.0


def _checked_count(spot_checks: object) -> int:
    if isinstance(spot_checks, bool) or not isinstance(spot_checks, (int, np.integer)) or spot_checks < 0:
        raise InputError(
            f"The argument spot_checks has to be a whole number, 0 for none; not {spot_checks!r:.80}."
        )
    return int(spot_checks)


class Search(Work):
    """Finds the ratios of several groups.

    What a worker has seen of a ratio stays with it, to go on from; so a ratio is looked at by one worker, and a group by as few
    as possible.

    Args:
        groups: Whose ratios to find.
        choose: Which units a ratio removes from a group.
        ratios: The grid.
        examiner: Tells on which side of the target a masked model is.
        spot_checks: For how many groups to look beyond the answer.
        journal: Where points are written; what it holds already and decides is not measured again.
        observer: Gets every point when it is measured.
        workers: How many share it.
        alone: Whether this process measures, with this examiner.
    """

    def __init__(
        self,
        groups: Sequence[ChannelGroup],
        choose: Choice,
        ratios: Sequence[float],
        examiner: Examiner,
        spot_checks: int = 3,
        journal: Journal | None = None,
        observer: Observer | None = None,
        workers: int = 1,
        alone: bool = True,
    ) -> None:
        self._workers = workers
        self._alone = alone
        self._display: Progress | None = None
        self._choose = choose
        self._grid = sorted({ratio_key(ratio) for ratio in ratios})
        self._examiner = examiner
        self._spot_checks = _checked_count(spot_checks)
        self._journal = journal
        self._observer = observer
        self._groups = groups
        self._key = cache(self._uncached_key)
        kept = (*journal.partial_points(), *journal.points()) if journal is not None else ()
        self._begin({(point.param, point.ratio): point for point in kept})

    def _begin(self, kept: Mapping[tuple[str, float], Point]) -> None:
        """Start from these points. Where part of the data did not decide and more are needed, they are seen anew."""
        self._candidates = [_Candidate(group) for group in self._groups]
        self._round: list[_Candidate] = []
        self._under_way: dict[Task, tuple[_Candidate, int]] = {}
        self._holders: dict[tuple[str, bytes], int] = {}
        self._given_up: set[_Candidate] = set()
        self._checks: dict[_Candidate, tuple[int, ...]] | None = None  # spot checks, once they are chosen
        self._repeats: list[tuple[_Candidate, int]] = []
        self._costs = ProbeCosts()
        self._known: dict[tuple[str, bytes], Evidence] = {}
        self._inherited: set[tuple[str, bytes]] = set()  # what was known before, of which only the outcome is
        self._written: dict[tuple[str, float], Point] = {}
        for group in self._groups:
            # Removing nothing costs nothing.
            self._known[group.name, b""] = Evidence(Estimate(self._examiner.baseline, 0.0, 0.0, 1.0, 1))
            for ratio in self._grid:
                point = kept.get((group.name, ratio))
                estimate = Estimate.of_point(point) if point is not None else None
                if estimate is not None:
                    key = self._key(group, ratio)
                    self._known[key] = Evidence(estimate, self._examiner.decides(estimate))
                    self._inherited.add(key)

    def run(self, pool: Pool, show_progress: bool = True) -> SearchResult:
        """Find the ratios; every point is on disk before the worker gets the next, one on part of the data marked as such."""
        try:
            return self._run(pool, show_progress)
        except ServedWronglyError:
            return self._run_again(pool, show_progress)

    def _run(self, pool: Pool, show_progress: bool) -> SearchResult:
        with progress(self._ahead(), "search", show_progress, unit="evaluation") as self._display:
            pool.run(self)
        found = SearchResult(
            tuple(self._found(candidate) for candidate in self._candidates),
            self._examiner.target,
            self._examiner.confidence,
            self._examiner.baseline,
            tuple(self._checked(candidate, i) for candidate, (i,) in (self._checks or {}).items()),
            self._examiner.samples,
        )
        if found.untold:
            logger.warning("%s.", found.summary.splitlines()[-1])
        return found

    def _run_again(self, pool: Pool, show_progress: bool) -> SearchResult:
        """Once more from the start, with the live model: a compiled copy was found to be wrong."""
        written, before = self._written, self._journal.header.baseline if self._journal is not None else None
        if before is not None and not same_baseline(before, self._examiner.baseline):
            assert self._journal is not None
            self._journal.supersede(replace(self._journal.header, baseline=self._examiner.baseline))
        self._begin({})
        found = self._run(pool, show_progress)
        # What is in the journal and was not needed this time would stay there as it was.
        left = written.keys() - self._written.keys()
        self._repeats = [
            (c, self._grid.index(ratio) + 1)
            for c in self._candidates
            for name, ratio in left
            if name == c.group.name
        ]
        with progress(len(left), "search", show_progress) as self._display:
            pool.run(self)
        return found

    @property
    def done(self) -> bool:
        """Whether every group's answer is known, and the spot checks are made."""
        return not self._under_way and not self._repeats and not self._open()

    def _open(self) -> list[_Candidate]:
        """Groups with something to look at. When there is none left, spot checks are chosen, once."""
        found = [c for c in self._candidates if c not in self._given_up and not self._settled(c)]
        if not found and not self._under_way and self._checks is None:
            self._checks = self._chosen_checks()
            return self._open()
        return found

    def preparation(self, slot: int) -> Task | None:
        """Every group may come to every worker, an equal share of them to each."""
        passes = _PASSES_PER_GROUP / self._workers
        work = [
            (c.group.path, self._choose(c.group, self._grid[-1]), passes)
            for number, c in enumerate(self._candidates)
            if number * self._workers // len(self._candidates) + 1 == slot
        ]
        return Task("expect", (work,)) if work else None

    def task_for(self, slot: int) -> Task | None:
        """The next look. One ratio of every group, then the next of every group: what the others lose tells where to look."""
        if self._repeats:
            candidate, index = self._repeats.pop()
            units = self._choose(candidate.group, self._grid[index - 1])
            return self._task(candidate, index, (candidate.group.path, units, 1.0), slot)
        for _ in range(2):
            for candidate in list(self._round):
                ahead = self._next(candidate)
                if ahead is not None and not self._is_for(slot, candidate, ahead[0]):
                    continue
                self._round.remove(candidate)
                if ahead is None:
                    continue
                if self._display is not None:
                    self._display.at(f"{candidate.group.path} at {self._grid[ahead[0] - 1]:g}")
                look = self._wanted(candidate, *ahead)
                if look is not None:
                    return self._task(candidate, ahead[0], look, slot)
                self._tried(candidate, ahead[0])
            self._round.extend(c for c in self._open() if c not in self._round and c not in self._busy)
        return None

    @property
    def _busy(self) -> set[_Candidate]:
        return {candidate for candidate, _ in self._under_way.values()}

    def _is_for(self, slot: int, candidate: _Candidate, index: int) -> bool:
        """Whether no other worker has seen something of a ratio."""
        key = self._key(candidate.group, self._grid[index - 1])
        return self._holders.get(key, slot) == slot

    def _task(self, candidate: _Candidate, index: int, look: Look, slot: int) -> Task:
        then = None
        if self._alone:  # among several, who knows who is going to be asked
            others = (c for c in (*self._round, *self._candidates) if c is not candidate)
            following = next((c for c in others if not self._settled(c)), None)
            ahead = self._next(following) if following is not None else None
            then = self._wanted(following, *ahead) if following is not None and ahead is not None else None
        task = Task("look", (look, then), f"{look[0]} at {self._grid[index - 1]:g}")
        self._under_way[task] = (candidate, index)
        self._holders[self._key(candidate.group, self._grid[index - 1])] = slot
        return task

    def answered(self, task: Task, answer: Any, slot: int) -> None:
        """Write the point down, and learn from it."""
        candidate, index = self._under_way.pop(task)
        if isinstance(answer, Distrusted):
            if self._alone:
                raise ServedWronglyError
            raise InputError(
                "A compiled copy of the model was found to be wrong in a worker. Search again with "
                f"{given('fast', 'off')}."
            )
        group, ratio = candidate.group, self._grid[index - 1]
        key = self._key(group, ratio)
        before = self._known[key].estimate.share if key in self._known.keys() - self._inherited else 0.0
        self._inherited.discard(key)
        self._known[key] = Evidence(answer.estimate, answer.decided)
        self._examiner.pass_seconds = answer.pass_seconds
        passes = answer.estimate.share - before
        candidate.passes += passes
        self._costs.learn(self._examiner.within(answer.estimate), passes)
        self._write(group, ratio, answer.estimate, answer.seconds)
        self._tried(candidate, index)

    def _tried(self, candidate: _Candidate, index: int) -> None:
        candidate.tried.add(index)
        if self._display is not None:
            self._display.last(self._evidence(candidate, index).estimate.loss)
            done = sum(each.passes for each in self._candidates)
            self._display.reach(done, done + self._ahead())

    def _ahead(self) -> float:
        """How many evaluations of all data are left, as far as can be told: what groups like these took so far."""
        weights = likely_answers((self._bracket(c) for c in self._candidates), len(self._grid))
        left = 0.0 if self._checks is not None else self._spot_checks * self._costs.of_a_fail
        for candidate in self._candidates:
            if candidate not in self._given_up:
                left += expected_passes(self._bracket(candidate), weights, self._costs)
                # A side that only leans sees half of what is left on average.
                left += sum((1 - each.share) / 2 for each in self._open_sides(candidate).values())
        return left

    def give_up(self, task: Task) -> None:
        """Leave its group out."""
        self._given_up.add(self._under_way.pop(task)[0])

    def lost(self, slot: int) -> None:
        """What it saw is seen again by others, from the start."""
        self._holders = {key: holder for key, holder in self._holders.items() if holder != slot}

    def refresh(self) -> None:
        """A search goes by what it found itself."""

    def _uncached_key(self, group: ChannelGroup, ratio: float) -> tuple[str, bytes]:
        """In a narrow group several ratios remove the same units."""
        return group.name, self._choose(group, ratio).tobytes()

    def _evidence(self, candidate: _Candidate, index: int) -> Evidence:
        return self._known[self._key(candidate.group, self._grid[index - 1])]

    def _bracket(self, candidate: _Candidate) -> Bracket:
        """The bracket from the ratios tried so far, including those that only lean to one side."""
        within = {i for i in candidate.tried if self._examiner.within(self._evidence(candidate, i).estimate)}
        high = min(candidate.tried - within, default=len(self._grid) + 1)
        return Bracket(max((i for i in within if i < high), default=0), high)

    def _settled(self, candidate: _Candidate) -> bool:
        """Whether there is nothing more to look at."""
        checks = (self._checks or {}).get(candidate, ())
        looked = self._bracket(candidate).closed and all(i in candidate.tried for i in checks)
        return looked and not self._open_sides(candidate)

    def _open_sides(self, candidate: _Candidate) -> dict[int, Estimate]:
        """On either side of the answer, and as a spot check: what is not decided yet."""
        bracket = self._bracket(candidate)
        sides = [bracket.high, bracket.low, *(self._checks or {}).get(candidate, ())]
        known = {i: self._evidence(candidate, i) for i in sides if i in candidate.tried}
        return {i: evidence.estimate for i, evidence in known.items() if not evidence.decided}

    def _next(self, candidate: _Candidate) -> tuple[int, float] | None:
        """The index to look at next, and how much of the data for; None if there is none."""
        bracket = self._bracket(candidate)
        if not bracket.closed:
            weights = likely_answers((self._bracket(c) for c in self._candidates), len(self._grid))
            return next_ratio(bracket, weights, self._costs), self._examiner.next_look()
        fresh = [i for i in (self._checks or {}).get(candidate, ()) if i not in candidate.tried]
        if fresh:
            return fresh[0], self._examiner.next_look()
        # The more doubtful side first: if it turns out to be on the other side, the other one need not be known.
        open_sides = self._open_sides(candidate)
        if not open_sides:
            return None
        index = max(open_sides, key=lambda i: open_sides[i].doubt(self._examiner.target))
        return index, self._examiner.next_look(open_sides[index].share)

    def _wanted(self, candidate: _Candidate, index: int, share: float) -> Look | None:
        """What has to be measured to know a ratio from that much of the data; None if it is known."""
        group, ratio = candidate.group, self._grid[index - 1]
        known = self._known.get(self._key(group, ratio))
        if known is not None and (known.decided or share <= known.estimate.share):
            return None
        return group.path, self._choose(group, ratio), share

    def _write(self, group: ChannelGroup, ratio: float, found: Estimate, seconds: float) -> None:
        point = Point(
            group.name, group.path, ratio, found.metric, found.loss, seconds, found.share, found.evidence()
        )
        self._written[group.name, ratio] = point
        if self._journal is not None:
            self._journal.append(point)
        if self._observer is not None:
            self._observer(point)

    def _chosen_checks(self) -> dict[_Candidate, tuple[int, ...]]:
        """Groups with unmeasured ratios beyond the answer, spread over the model."""
        free = [candidate for candidate in self._candidates if self._beyond(candidate)]
        wanted = min(self._spot_checks, len(free))
        chosen = [free[index] for index in np.linspace(0, len(free) - 1, wanted).round().astype(int)]
        return {candidate: (self._beyond(candidate)[0],) for candidate in chosen}

    def _beyond(self, candidate: _Candidate) -> list[int]:
        above = range(self._bracket(candidate).high + 1, len(self._grid) + 1)
        return [index for index in above if index not in candidate.tried]

    def _checked(self, candidate: _Candidate, index: int) -> SpotCheck:
        estimate = self._evidence(candidate, index).estimate
        rises = not self._examiner.within(estimate)
        return SpotCheck(candidate.group.name, self._grid[index - 1], estimate.loss, rises)

    def _found(self, candidate: _Candidate) -> GroupRatio:
        bracket = self._bracket(candidate)
        low, high = bracket.low, bracket.high
        found = self._evidence(candidate, low) if low else self._known[candidate.group.name, b""]
        estimate = found.estimate
        shares = [self._evidence(candidate, index).estimate.share for index in candidate.tried]
        return GroupRatio(
            candidate.group.name,
            candidate.group.path,
            self._grid[low - 1] if low else 0.0,
            self._grid[high - 1] if high <= len(self._grid) else None,
            estimate.loss,
            estimate.interval(self._examiner.confidence),
            float(np.mean(shares)) if shares else 0.0,
            candidate.passes,
            estimate.tells(self._examiner.target, self._examiner.confidence),
        )
