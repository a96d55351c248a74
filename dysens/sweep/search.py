"""Searching instead of sweeping: each group's largest ratio within a target loss.

Losses are taken to rise with the ratio, so that a grid of ratios can be halved instead of measured one by one; and a point is
left as soon as the data seen decide it. Some ratios beyond the answer are measured as well, to see whether losses do rise.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dysens.errors import InputError
from dysens.groups.group import ChannelGroup, Choice
from dysens.groups.roles import Role
from dysens.progress import Progress, progress
from dysens.pruning.plan import PrunePlan, plan_for
from dysens.results.journal import Journal
from dysens.results.points import Point, ratio_key
from dysens.sweep.deciding import Estimate
from dysens.sweep.examining import Examiner
from dysens.sweep.found import GroupRatio, SearchResult, SpotCheck
from dysens.sweep.strategy import Bracket, Costs, likely_answers, next_ratio

# How many passes over the data a group takes, for the scorer to prepare by.
_PASSES_PER_GROUP = 2.0


@dataclass
class _Candidate:
    """A group under search.

    Attributes:
        group: The group.
        bracket: What is known; its index i stands for the i-th ratio of the grid, counted from 1.
        tried: What was found, by index.
        passes: How many passes over the data that took.
    """

    group: ChannelGroup
    bracket: Bracket
    tried: dict[int, Estimate] = field(default_factory=dict)
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
    ) -> None:
        self._roles = roles
        self._choose = choose
        self._grid = sorted({ratio_key(ratio) for ratio in ratios})
        self._examiner = examiner
        self._spot_checks = _checked_count(spot_checks)
        self._journal = journal
        self._candidates = [_Candidate(group, Bracket(0, len(self._grid) + 1)) for group in groups]
        self._costs = Costs()
        self._known: dict[tuple[str, bytes], Estimate] = {}
        full = {(p.param, p.ratio): p for p in journal.points()} if journal is not None else {}
        for group in groups:
            # Removing nothing costs nothing.
            self._known[group.name, b""] = Estimate(examiner.baseline, 0.0, 0.0, 1.0, 1)
            for ratio in self._grid:
                point = full.get((group.name, ratio))
                if point is not None:
                    metric = np.nan if point.metric is None else point.metric
                    self._known[self._key(group, ratio)] = Estimate(metric, point.loss, 0.0, 1.0, 1)

    def run(self, show_progress: bool = True) -> SearchResult:
        """Find the ratios; every point is on disk before the next begins, one on part of the data marked as such."""
        work = [(self._plan(c.group, self._grid[-1]), _PASSES_PER_GROUP) for c in self._candidates]
        self._examiner.expect(work)
        with progress(len(self._candidates), "search", show_progress) as display:
            # One ratio of every group, then the next of every group: what the others lose tells where to look.
            while open_ones := [c for c in self._candidates if not c.bracket.closed]:
                for candidate in open_ones:
                    weights = likely_answers((c.bracket for c in self._candidates), len(self._grid))
                    index = next_ratio(candidate.bracket, weights, self._costs)
                    within = self._examiner.within(self._tried(candidate, index, display))
                    candidate.bracket = candidate.bracket.after(index, within)
                    display.reach(sum(c.bracket.closed for c in self._candidates))
            checks = tuple(self._checked(candidate, display) for candidate in self._to_check())
        return SearchResult(
            tuple(self._found(candidate) for candidate in self._candidates),
            self._examiner.target,
            self._examiner.confidence,
            self._examiner.baseline,
            checks,
        )

    def _key(self, group: ChannelGroup, ratio: float) -> tuple[str, bytes]:
        """In a narrow group several ratios remove the same units."""
        return group.name, self._choose(group, ratio).tobytes()

    def _plan(self, group: ChannelGroup, ratio: float) -> PrunePlan:
        return plan_for(self._roles, group.removal(self._choose(group, ratio)))

    def _tried(self, candidate: _Candidate, index: int, display: Progress) -> Estimate:
        group, ratio = candidate.group, self._grid[index - 1]
        display.at(f"{group.path} at {ratio:g}")
        key = self._key(group, ratio)
        if key not in self._known:
            start = time.perf_counter()
            estimate = self._known[key] = self._examiner.estimate(self._plan(group, ratio))
            seconds = time.perf_counter() - start
            candidate.passes += estimate.share
            self._costs.learn(self._examiner.within(estimate), estimate.share)
            if self._journal is not None:
                self._journal.append(
                    Point(
                        group.name, group.path, ratio, estimate.metric, estimate.loss, seconds, estimate.share
                    )
                )
        candidate.tried[index] = self._known[key]
        display.last(self._known[key].loss)
        return self._known[key]

    def _to_check(self) -> list[_Candidate]:
        """Groups with ratios beyond the answer that nobody measured, spread over the model."""
        free = [candidate for candidate in self._candidates if self._beyond(candidate)]
        wanted = min(self._spot_checks, len(free))
        return [free[index] for index in np.linspace(0, len(free) - 1, wanted).round().astype(int)]

    def _beyond(self, candidate: _Candidate) -> list[int]:
        above = range(candidate.bracket.high + 1, len(self._grid) + 1)
        return [index for index in above if index not in candidate.tried]

    def _checked(self, candidate: _Candidate, display: Progress) -> SpotCheck:
        index = self._beyond(candidate)[0]
        estimate = self._tried(candidate, index, display)
        rises = not self._examiner.within(estimate)
        return SpotCheck(candidate.group.name, self._grid[index - 1], estimate.loss, rises)

    def _found(self, candidate: _Candidate) -> GroupRatio:
        low, high = candidate.bracket.low, candidate.bracket.high
        estimate = candidate.tried[low] if low else self._known[candidate.group.name, b""]
        shares = [each.share for each in candidate.tried.values()]
        return GroupRatio(
            candidate.group.name,
            candidate.group.path,
            self._grid[low - 1] if low else 0.0,
            self._grid[high - 1] if high <= len(self._grid) else None,
            estimate.loss,
            estimate.interval(self._examiner.confidence),
            float(np.mean(shares)) if shares else 0.0,
            candidate.passes,
        )
