"""Which ratio to try next, and on which side of a target loss a masked model is, with no more data than that takes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from dysens.compiled import EvaluatorScorer, PartialEvaluation, Scorer
from dysens.errors import InputError
from dysens.evaluators import Measurements, checked_baseline, metric_of, relative_loss
from dysens.flags import flag
from dysens.pruning import PrunePlan
from dysens.ratios import checked_number
from dysens.sweep._statistics import LOOKS, SCORES_PER_LOOK, Comparison, Estimate


@dataclass(frozen=True)
class Bracket:
    """What is known of one group.

    Attributes:
        low: The index of the largest ratio known to be within the target; 0 stands for removing nothing.
        high: The index of the smallest ratio known to be beyond it; one past the grid stands for none.
    """

    low: int
    high: int

    @property
    def closed(self) -> bool:
        """Whether nothing is left to try."""
        return self.high - self.low <= 1

    def after(self, index: int, within: bool) -> Bracket:
        """What is known once a ratio was tried."""
        return replace(self, low=index) if within else replace(self, high=index)


@dataclass
class ProbeCosts:
    """What trying a ratio takes, in passes over the data: learnt from what was tried."""

    passes: int = 1
    pass_cost: float = 1.0
    fails: int = 1
    fail_cost: float = 0.5

    def learn(self, within: bool, cost: float) -> None:
        """Note what a ratio took."""
        if within:
            self.passes += 1
            self.pass_cost += cost
        else:
            self.fails += 1
            self.fail_cost += cost

    @property
    def of_a_pass(self) -> float:
        """The mean cost of finding a ratio within the target."""
        return self.pass_cost / self.passes

    @property
    def of_a_fail(self) -> float:
        """The mean cost of finding a ratio beyond it."""
        return self.fail_cost / self.fails


def likely_answers(brackets: Iterable[Bracket], length: int) -> list[float]:
    """How likely each answer (index of the largest ratio within the target) is, going by all groups together."""
    weights = [1.0] * (length + 1)
    for bracket in brackets:
        for index in range(bracket.low, bracket.high):
            weights[index] += 1 / (bracket.high - bracket.low)
    return weights


def next_ratio(bracket: Bracket, weights: Sequence[float], costs: ProbeCosts) -> int:
    """The index to try next, so that the expected cost of closing the bracket is least.

    Example:
        >>> next_ratio(Bracket(0, 10), [1.0] * 10, ProbeCosts(1, 1.0, 1, 1.0))
        4
    """
    return _cheapest(bracket, weights, costs)[1]


def expected_passes(bracket: Bracket, weights: Sequence[float], costs: ProbeCosts) -> float:
    """How many passes over the data closing a bracket is expected to take.

    Example:
        >>> expected_passes(Bracket(3, 4), [1.0] * 10, ProbeCosts())
        0.0
    """
    return _cheapest(bracket, weights, costs)[0]


def _cheapest(bracket: Bracket, weights: Sequence[float], costs: ProbeCosts) -> tuple[float, int]:
    @cache
    def best(low: int, high: int) -> tuple[float, int]:
        if high - low <= 1:
            return 0.0, low
        whole = sum(weights[low:high])
        options = []
        for index in range(low + 1, high):
            within = sum(weights[index:high]) / whole
            passed = costs.of_a_pass + best(index, high)[0]
            failed = costs.of_a_fail + best(low, index)[0]
            options.append((within * passed + (1 - within) * failed, index))
        return min(options)

    return best(bracket.low, bracket.high)


# What looking may cost, as a share of what the rest of the data would.
_LOOKING_SHARE = 0.3
# Fewer tell nothing.
_LEAST_SAMPLES = 6


@dataclass(frozen=True)
class Evidence:
    """What is known of a masked model.

    Attributes:
        estimate: Its loss.
        decided: Whether that settles the side of the target; else it only leans to one.
        measured: What its outputs tell so far, to go on from.
    """

    estimate: Estimate
    decided: bool = True
    measured: Measurements = field(default_factory=dict)


class Examiner:
    """Measures masked models against a target loss.

    Args:
        scorer: Scores the model. An `EvaluatorScorer` can stop early; any other sees all data.
        target: The loss in question.
        confidence: How sure a decision on part of the data has to be.

    Attributes:
        baseline: What the whole model scores.
        pass_seconds: What all data take, by the last look; whoever has looks made elsewhere sets it.
    """

    def __init__(self, scorer: Scorer, target: float, confidence: float) -> None:
        self.target = checked_number("target_loss", target)
        self.confidence = checked_number("confidence", confidence)
        if not math.isfinite(self.target) or self.target < 0:
            raise InputError(
                f"The value of {flag('target_loss')} has to be 0 or more, such as 0.02 for two per cent; not {target}."
            )
        if not 0.5 <= self.confidence < 1:
            raise InputError(
                f"The confidence has to be at least 0.5 and under 1, such as 0.95; not {confidence}."
            )
        self._scorer = scorer
        self.restart()

    def restart(self) -> None:
        """Measure the whole model, and forget what was learnt before."""
        scorer = self._scorer
        self.pass_seconds = 0.0
        self._comparison: Comparison | None = None
        if isinstance(scorer, EvaluatorScorer):
            start = time.perf_counter()
            whole = scorer.measurements(PartialEvaluation())
            self.pass_seconds = time.perf_counter() - start
            baseline, self._score_seconds = _timed_score(scorer, [whole[number] for number in sorted(whole)])
            self._comparison = Comparison(
                scorer.evaluator.score, whole, scorer.samples, scorer.higher_is_better
            )
        else:
            baseline = metric_of(scorer.score())
        self.baseline = checked_baseline(baseline)

    @property
    def samples(self) -> int | None:
        """How many samples there are; None if a function scores them."""
        return self._comparison.samples if self._comparison is not None else None

    def expect(self, work: Sequence[tuple[PrunePlan, float]]) -> None:
        """Announce what is going to be measured, see `Scorer.expect`."""
        self._scorer.expect(work)

    def within(self, estimate: Estimate) -> bool:
        """Whether the loss is at or under the target; one that is no number is not."""
        return bool(estimate.loss <= self.target)

    def decides(self, estimate: Estimate) -> bool:
        """Whether an estimate settles the side of the target."""
        return estimate.decides(self.target, self.confidence)

    def examine(self, look: PartialEvaluation, then: PartialEvaluation | None = None) -> Evidence:
        """Measure a masked model on part of the data, and see whether that decides the side.

        Args:
            look: What to measure; a function sees all data in any case.
            then: What is likely to be examined next.
        """
        if self._comparison is None or not isinstance(self._scorer, EvaluatorScorer):
            metric = metric_of(self._scorer.score(look.plan))
            loss = relative_loss(self.baseline, metric, self._scorer.higher_is_better)
            return Evidence(Estimate(metric, loss if np.isfinite(metric) else np.inf, 0.0, 1.0, 1))
        start = time.perf_counter()
        measured = self._scorer.measurements(look, then)
        estimate = self._comparison.estimate(measured, self.target, self._affordable(1.0))
        gained = max(estimate.share - self._comparison.share(look.seen), 1e-6)
        self.pass_seconds = (time.perf_counter() - start) / gained
        if self.decides(estimate):
            return Evidence(estimate)
        return Evidence(estimate, False, measured)

    def next_look(self, share: float = 0.0) -> float:
        """How much of the data to have seen at the next look. Few looks if the metric takes long to compute.

        Args:
            share: How much has been seen.
        """
        if self._comparison is None or not isinstance(self._scorer, EvaluatorScorer):
            return 1.0
        if not self._scorer.picks_at_random:
            return 1.0
        least = max(share, _LEAST_SAMPLES / self._comparison.samples)
        looks = (look for look in LOOKS if look > least and self._affordable((1 - share) / look))
        return next(looks, 1.0)

    def _affordable(self, passes: float) -> bool:
        """Whether looking costs little against so many passes over the data."""
        return self._score_seconds * SCORES_PER_LOOK <= _LOOKING_SHARE * self.pass_seconds * passes


def _timed_score(scorer: EvaluatorScorer, measurements: Sequence[Any]) -> tuple[float, float]:
    """The metric, and how many seconds it takes: the better of two, of which the first may have something to import."""
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        found = scorer.evaluator.score(measurements)
        seconds.append(time.perf_counter() - start)
    return found, min(seconds)
