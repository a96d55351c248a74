"""Searching instead of sweeping: each group's largest ratio within a target loss.

Losses are taken to rise with the ratio, so that a grid of ratios can be halved instead of measured one by one. A short look
at each ratio tells where to go on; only the two ratios on either side of the answer are measured until the data decide
them, look by look, each going on from where the last one ended. Some ratios beyond are measured as well, to see whether losses do
rise.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from dysens.compiled import PartialEvaluation, ServedWronglyError
from dysens.errors import InputError
from dysens.groups import ChannelGroup, Choice, Role
from dysens.progress import Progress, progress
from dysens.pruning import PrunePlan, plan_for
from dysens.ratios import ratio_key
from dysens.results import Journal, Point, same_baseline
from dysens.sweep._examiner import Bracket, Evidence, Examiner, ProbeCosts, likely_answers, next_ratio
from dysens.sweep._result import GroupRatio, SearchResult, SpotCheck
from dysens.sweep._statistics import Estimate
from dysens.sweep._sweep import Observer

logger = logging.getLogger(__name__)

# How many passes over the data a group takes, for the scorer to prepare by.
_PASSES_PER_GROUP = 1.5


@dataclass
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
        raise InputError(f"spot_checks has to be a whole number, 0 for none; not {spot_checks!r:.80}.")
    return int(spot_checks)


class Search:
    """Finds the ratios of several groups.

    Args:
        roles: The model's layers with weights.
        groups: Whose ratios to find.
        choose: Which units a ratio removes from a group.
        ratios: The grid.
        examiner: Tells on which side of the target a masked model is.
        spot_checks: For how many groups to look beyond the answer.
        journal: Where points are written; full ones that it holds already are not measured again.
        observer: Gets every point when it is measured.
    """

    def __init__(
        self,
        roles: Mapping[str, Role],
        groups: Sequence[ChannelGroup],
        choose: Choice,
        ratios: Sequence[float],
        examiner: Examiner,
        spot_checks: int = 3,
        journal: Journal | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._roles = roles
        self._choose = choose
        self._grid = sorted({ratio_key(ratio) for ratio in ratios})
        self._examiner = examiner
        self._spot_checks = _checked_count(spot_checks)
        self._journal = journal
        self._observer = observer
        self._groups = groups
        self._key = cache(self._uncached_key)
        full = {(p.param, p.ratio): p for p in journal.points()} if journal is not None else {}
        self._begin(full)

    def _begin(self, full: Mapping[tuple[str, float], Point]) -> None:
        """Know nothing but these points."""
        self._candidates = [_Candidate(group) for group in self._groups]
        self._costs = ProbeCosts()
        self._known: dict[tuple[str, bytes], Evidence] = {}
        self._written: dict[tuple[str, float], Point] = {}
        for group in self._groups:
            # Removing nothing costs nothing.
            self._known[group.name, b""] = Evidence(Estimate(self._examiner.baseline, 0.0, 0.0, 1.0, 1))
            for ratio in self._grid:
                point = full.get((group.name, ratio))
                if point is not None:
                    metric = np.nan if point.metric is None else point.metric
                    self._known[self._key(group, ratio)] = Evidence(Estimate(metric, point.loss, 0.0, 1.0, 1))

    def run(self, show_progress: bool = True) -> SearchResult:
        """Find the ratios; every point is on disk before the next begins, one on part of the data marked as such."""
        try:
            return self._run(show_progress)
        except ServedWronglyError:
            return self._run_again(show_progress)

    def _run(self, show_progress: bool) -> SearchResult:
        work = [(self._plan(c.group, self._grid[-1]), _PASSES_PER_GROUP) for c in self._candidates]
        self._examiner.expect(work)
        with progress(len(self._candidates), "search", show_progress) as display:
            # One ratio of every group, then the next of every group: what the others lose tells where to look.
            while open_ones := [c for c in self._candidates if self._next(c) is not None]:
                for candidate, following in zip(open_ones, (*open_ones[1:], *open_ones[:1])):
                    then = self._ahead(following) if following is not candidate else None
                    self._step(candidate, display, then)
                    display.reach(sum(self._next(c) is None for c in self._candidates))
            checks = tuple(self._checked(candidate, display) for candidate in self._to_check())
        found = SearchResult(
            tuple(self._found(candidate) for candidate in self._candidates),
            self._examiner.target,
            self._examiner.confidence,
            self._examiner.baseline,
            checks,
            self._examiner.samples,
        )
        if found.untold:
            logger.warning("%s.", found.summary.splitlines()[-1])
        return found

    def _run_again(self, show_progress: bool) -> SearchResult:
        """Once more from the start, with the live model: a compiled copy was found to be wrong."""
        written, before = self._written, self._examiner.baseline
        self._examiner.restart()
        if self._journal is not None and not same_baseline(before, self._examiner.baseline):
            self._journal.supersede(replace(self._journal.header, baseline=self._examiner.baseline))
        self._begin({})
        found = self._run(show_progress)
        # What is in the journal and was not needed this time would stay there as it was.
        with progress(len(written), "search", show_progress) as display:
            for name, ratio in written.keys() - self._written.keys():
                candidate = next(c for c in self._candidates if c.group.name == name)
                self._look(candidate, self._grid.index(ratio) + 1, 1.0, display)
        return found

    def _uncached_key(self, group: ChannelGroup, ratio: float) -> tuple[str, bytes]:
        """In a narrow group several ratios remove the same units."""
        return group.name, self._choose(group, ratio).tobytes()

    def _evidence(self, candidate: _Candidate, index: int) -> Evidence:
        return self._known[self._key(candidate.group, self._grid[index - 1])]

    def _plan(self, group: ChannelGroup, ratio: float) -> PrunePlan:
        return plan_for(self._roles, group.removal(self._choose(group, ratio)))

    def _bracket(self, candidate: _Candidate) -> Bracket:
        """What the ratios tried so far say, those that only lean to one side included."""
        within = {i for i in candidate.tried if self._examiner.within(self._evidence(candidate, i).estimate)}
        high = min(candidate.tried - within, default=len(self._grid) + 1)
        return Bracket(max((i for i in within if i < high), default=0), high)

    def _next(self, candidate: _Candidate) -> tuple[int, float] | None:
        """The index to look at next, and how much of the data for; None if the answer is known."""
        bracket = self._bracket(candidate)
        if not bracket.closed:
            weights = likely_answers((self._bracket(c) for c in self._candidates), len(self._grid))
            return next_ratio(bracket, weights, self._costs), self._examiner.next_look()
        # The more doubtful side first: if it turns out to be on the other side, the other one need not be known.
        sides = {i: self._evidence(candidate, i) for i in (bracket.high, bracket.low) if i in candidate.tried}
        open_sides = {i: known.estimate for i, known in sides.items() if not known.decided}
        if not open_sides:
            return None
        index = max(open_sides, key=lambda i: open_sides[i].doubt(self._examiner.target))
        return index, self._examiner.next_look(open_sides[index].share)

    def _ahead(self, candidate: _Candidate) -> PartialEvaluation | None:
        """What a candidate's next step is going to measure, as far as is known now."""
        ahead = self._next(candidate)
        return self._wanted(candidate, *ahead) if ahead is not None else None

    def _wanted(self, candidate: _Candidate, index: int, share: float) -> PartialEvaluation | None:
        """What has to be measured to know a ratio from that much of the data; None if it is known."""
        group, ratio = candidate.group, self._grid[index - 1]
        known = self._known.get(self._key(group, ratio))
        if known is None:
            return PartialEvaluation(self._plan(group, ratio), share=share)
        if known.decided or share <= known.estimate.share:
            return None
        return PartialEvaluation(self._plan(group, ratio), known.measured, share)

    def _step(self, candidate: _Candidate, display: Progress, then: PartialEvaluation | None) -> None:
        ahead = self._next(candidate)
        if ahead is not None:
            self._look(candidate, *ahead, display, then)

    def _look(
        self,
        candidate: _Candidate,
        index: int,
        share: float,
        display: Progress,
        then: PartialEvaluation | None = None,
    ) -> Evidence:
        group, ratio = candidate.group, self._grid[index - 1]
        display.at(f"{group.path} at {ratio:g}")
        key = self._key(group, ratio)
        look = self._wanted(candidate, index, share)
        if look is not None:
            before = self._known[key].estimate.share if key in self._known else 0.0
            start = time.perf_counter()
            found = self._known[key] = self._examiner.examine(look, then)
            seconds = time.perf_counter() - start
            passes = found.estimate.share - before
            candidate.passes += passes
            self._costs.learn(self._examiner.within(found.estimate), passes)
            self._write(group, ratio, found.estimate, seconds)
        candidate.tried.add(index)
        display.last(self._known[key].estimate.loss)
        return self._known[key]

    def _write(self, group: ChannelGroup, ratio: float, found: Estimate, seconds: float) -> None:
        point = Point(group.name, group.path, ratio, found.metric, found.loss, seconds, found.share)
        self._written[group.name, ratio] = point
        if self._journal is not None:
            self._journal.append(point)
        if self._observer is not None:
            self._observer(point)

    def _to_check(self) -> list[_Candidate]:
        """Groups with ratios beyond the answer that nobody measured, spread over the model."""
        free = [candidate for candidate in self._candidates if self._beyond(candidate)]
        wanted = min(self._spot_checks, len(free))
        return [free[index] for index in np.linspace(0, len(free) - 1, wanted).round().astype(int)]

    def _beyond(self, candidate: _Candidate) -> list[int]:
        above = range(self._bracket(candidate).high + 1, len(self._grid) + 1)
        return [index for index in above if index not in candidate.tried]

    def _checked(self, candidate: _Candidate, display: Progress) -> SpotCheck:
        index = self._beyond(candidate)[0]
        found = self._look(candidate, index, self._examiner.next_look(), display)
        while not found.decided:
            found = self._look(candidate, index, self._examiner.next_look(found.estimate.share), display)
        estimate = found.estimate
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
