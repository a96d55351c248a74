"""Asking a scorer on which side of a target loss a masked model is, with no more data than that takes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

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

    def estimate(self, plan: PrunePlan) -> Estimate:
        """Measure the masked model until the side is decided."""
        if self._comparison is None or not isinstance(self._scorer, EvaluatorScorer):
            metric = metric_of(self._scorer.score(plan))
            loss = relative_loss(self.baseline, metric, self._scorer.higher_is_better)
            return Estimate(metric, loss if np.isfinite(metric) else np.inf, 0.0, 1.0, 1)
        looker = _Looker(self._comparison, self.target, self.confidence, self._score_seconds)
        measured = self._scorer.measurements(plan, looker.is_decided)
        return looker.decided or self._comparison.estimate(measured, self.target)


class _Looker:
    """Looks at the measurements of one point while they come in.

    Args:
        comparison: Compares with the whole model.
        target: The loss in question.
        confidence: How sure a decision has to be.
        score_seconds: What computing the metric takes on all data.

    Attributes:
        decided: What decided the point, once something did.
    """

    def __init__(
        self, comparison: Comparison, target: float, confidence: float, score_seconds: float
    ) -> None:
        self.decided: Estimate | None = None
        self._comparison = comparison
        self._target = target
        self._confidence = confidence
        self._score_seconds = score_seconds
        self._due = list(LOOKS)
        self._begun = time.perf_counter()

    def is_decided(self, measured: Measurements) -> bool:
        """Whether the rest of the data can be left out."""
        share = self._comparison.share(measured)
        if share == 1 or not self._due or share < self._due[0]:
            return False
        self._due = [look for look in self._due if look > share]
        left = (time.perf_counter() - self._begun) / share * (1 - share)
        if self._score_seconds * share * SCORES_PER_LOOK > _LOOKING_SHARE * left:
            return False
        estimate = self._comparison.estimate(measured, self._target)
        if estimate.decides(self._target, self._confidence):
            self.decided = estimate
        return self.decided is not None
