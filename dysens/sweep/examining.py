"""Asking a scorer on which side of a target loss a masked model is, with no more data than that takes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dysens.errors import InputError
from dysens.pruning.plan import PrunePlan
from dysens.results.points import checked_number
from dysens.sweep.deciding import LOOKS, SCORES_PER_LOOK, Comparison, Estimate, Measurements
from dysens.sweep.evaluating import EvaluatorScorer
from dysens.sweep.metrics import checked_baseline, metric_of, relative_loss
from dysens.sweep.scoring import Scorer

# What looking may cost, as a share of what the rest of the data would.
_LOOKING_SHARE = 0.3


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
    """

    def __init__(self, scorer: Scorer, target: float, confidence: float) -> None:
        self.target = checked_number("target_loss", target)
        self.confidence = checked_number("confidence", confidence)
        if not math.isfinite(self.target) or self.target < 0:
            raise InputError(f"target_loss has to be 0 or more, such as 0.02 for two per cent; not {target}.")
        if not 0.5 <= self.confidence < 1:
            raise InputError(
                f"confidence has to be at least 0.5 and under 1, such as 0.95; not {confidence}."
            )
        self._scorer = scorer
        self._comparison: Comparison | None = None
        if isinstance(scorer, EvaluatorScorer):
            whole = scorer.measurements()
            start = time.perf_counter()
            baseline = scorer.evaluator.score([whole[number] for number in sorted(whole)])
            self._score_seconds = time.perf_counter() - start
            self._comparison = Comparison(
                scorer.evaluator.score, whole, scorer.samples, scorer.higher_is_better
            )
        else:
            baseline = metric_of(scorer.score())
        self.baseline = checked_baseline(baseline)

    def expect(self, work: Sequence[tuple[PrunePlan, float]]) -> None:
        """Say what is going to be measured, see `Scorer.expect`."""
        self._scorer.expect(work)

    def within(self, estimate: Estimate) -> bool:
        """Whether the loss is at or under the target; one that is no number is not."""
        return bool(estimate.loss <= self.target)

    def examine(self, plan: PrunePlan, known: Evidence | None = None, share: float = 1.0) -> Evidence:
        """Measure the masked model until the side is decided, or until a share of the data shows where it leans.

        Args:
            plan: Whose masks are on.
            known: What an earlier look at this plan found; it goes on from there.
            share: How much of the data to look at, at most, if that is enough to lean to one side.
        """
        if self._comparison is None or not isinstance(self._scorer, EvaluatorScorer):
            metric = metric_of(self._scorer.score(plan))
            loss = relative_loss(self.baseline, metric, self._scorer.higher_is_better)
            return Evidence(Estimate(metric, loss if np.isfinite(metric) else np.inf, 0.0, 1.0, 1))
        seen = known.measured if known is not None else {}
        looker = _Looker(self._comparison, self.target, self.confidence, self._score_seconds, share, seen)
        measured = self._scorer.measurements(plan, looker.is_enough, seen)
        estimate = looker.decided or self._comparison.estimate(measured, self.target)
        if looker.decided is not None or estimate.share == 1:
            return Evidence(estimate)
        return Evidence(estimate, False, measured)


class _Looker:
    """Looks at the measurements of one point while they come in.

    Args:
        comparison: Compares with the whole model.
        target: The loss in question.
        confidence: How sure a decision has to be.
        score_seconds: What computing the metric takes on all data.
        most: The share of the data after which to stop, decided or not.
        seen: What was measured before.

    Attributes:
        decided: What decided the point, once something did.
    """

    def __init__(
        self,
        comparison: Comparison,
        target: float,
        confidence: float,
        score_seconds: float,
        most: float,
        seen: Measurements,
    ) -> None:
        self.decided: Estimate | None = None
        self._comparison = comparison
        self._target = target
        self._confidence = confidence
        self._score_seconds = score_seconds
        self._most = most
        self._before = comparison.share(seen)
        self._due = [look for look in LOOKS if look > self._before]
        self._begun = time.perf_counter()

    def is_enough(self, measured: Measurements) -> bool:
        """Whether the rest of the data can be left out."""
        share = self._comparison.share(measured)
        if share == 1:
            return False
        if self._due and share >= self._due[0]:
            self._due = [look for look in self._due if look > share]
            self._look(measured, share)
        return self.decided is not None or share >= self._most

    def _look(self, measured: Measurements, share: float) -> None:
        left = (time.perf_counter() - self._begun) / (share - self._before) * (1 - share)
        if self._score_seconds * share * SCORES_PER_LOOK > _LOOKING_SHARE * left:
            return
        estimate = self._comparison.estimate(measured, self._target)
        if estimate.decides(self._target, self._confidence):
            self.decided = estimate
