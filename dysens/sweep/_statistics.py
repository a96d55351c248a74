"""Deciding from part of the data what all of it would show, at a stated confidence.

A masked model is compared with the whole one on the same samples. The spread of the difference comes from a jackknife: the loss
is computed with each block of batches left out in turn, so any metric will do, also a ratio such as hmean.

What has not been seen may differ from what has: a few samples, or whole batches, may hold the loss. A decision therefore also
takes that few enough batches could not turn it, as far as a batch can: one that the whole model gets right can lose what it
scores, and an error has no bound.

All data are a sample too. A loss that lies nearer to the target than their own standard error might as well be on the other side
of it on another day, and so no more data are spent on it than tell where it leans.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from dysens.errors import DysensError
from dysens.evaluators import Measurements, relative_loss
from dysens.results import Point

LOOKS = (0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8)
"""At which shares of the data a decision is tried; every look is one more chance to err, and the confidence allows for that."""

_MOST_BLOCKS = 20
_LEAST_BLOCKS = 4
# Looks overlap, so that seven err as seldom as four separate ones (Pocock's bounds, for confidences up to 0.99).
_SEPARATE_LOOKS = 4
# Points whose loss is this many times the target tell how much of a sample is lost at once.
_TELLING = (0.5, 4.0)
# For so many points, it is taken to be whole samples.
_PRIOR_POINTS = 3

SCORES_PER_LOOK = 2 * _MOST_BLOCKS + 3
"""How often a look computes the metric, at most: of both models, with each block left out."""


_EVIDENCE = ("error", "blocks", "at_most", "at_least", "sampling_error")


@dataclass(frozen=True)
class Estimate:
    """The loss on all data, estimated from part of it.

    Attributes:
        metric: The masked model's score on that part.
        loss: Its loss there, against the whole model on the same samples.
        error: The standard error of that loss as an estimate for all data; 0 if it is all data.
        share: How much of the data it is.
        blocks: How many blocks the error was estimated from.
        at_most: How much the loss on all data can rise by a single batch that was not seen.
        at_least: How much it can fall by one.
        sampling_error: The standard error that the loss has as an estimate for unseen data.
    """

    metric: float
    loss: float
    error: float
    share: float
    blocks: int
    at_most: float = 0.0
    at_least: float = 0.0
    sampling_error: float = 0.0

    def evidence(self) -> dict[str, float]:
        """What a journal keeps besides metric, loss and share, so that a later search can decide by it."""
        values = {name: float(getattr(self, name)) for name in _EVIDENCE}
        return {name: value for name, value in values.items() if math.isfinite(value)}

    @classmethod
    def of_point(cls, point: Point) -> Estimate | None:
        """What a journal kept; None if that does not say how sure a point on part of the data is."""
        metric = math.nan if point.metric is None else point.metric
        if point.evidence is None or "blocks" not in point.evidence:
            return cls(metric, point.loss, 0.0, 1.0, 1) if point.full else None
        kept = {name: point.evidence.get(name, math.inf) for name in _EVIDENCE}
        blocks = int(kept.pop("blocks"))
        return cls(metric, point.loss, share=point.share, blocks=blocks, **kept)

    def interval(self, confidence: float) -> tuple[float, float]:
        """Where the loss on all data lies, at this confidence."""
        if self.error == 0:
            return self.loss, self.loss
        reach = student_quantile((1 + confidence) / 2, self.blocks - 1) * self.error
        return self.loss - reach, self.loss + reach

    def decides(self, target: float, confidence: float) -> bool:
        """Whether all data would put the loss on the same side of the target, as far as they can tell themselves."""
        if self.share == 1:
            return True
        if self.blocks < _LEAST_BLOCKS or not math.isfinite(self.error):
            return False
        level = 1 - (1 - confidence) / 2 / _SEPARATE_LOOKS
        distance = abs(self.loss - target) + self.error_of_all
        if not distance > student_quantile(level, self.blocks - 1) * self.error:
            return False
        # The other half of what may go wrong: those that would turn the decision are all among what was not seen.
        return (1 - self.share) ** self.batches_to_turn(target) <= (1 - confidence) / 2

    def batches_to_turn(self, target: float) -> float:
        """How many batches that were not seen it takes, at least, to put the loss clearly on the other side of the target.

        Clearly: by more than the standard error of all data, which so few batches have a large part in.
        """
        each = self.at_most if self.loss <= target else self.at_least
        if each <= 0:
            return math.inf
        gap = abs(self.loss - target) / each
        # The least whole number k with k - sqrt(k) > gap.
        return math.floor((0.5 + math.sqrt(0.25 + gap)) ** 2) + 1

    def tells(self, target: float, confidence: float) -> bool:
        """Whether the loss is further from the target than chance in the choice of the data explains."""
        if self.sampling_error == 0:
            return True
        return (
            abs(self.loss - target)
            > student_quantile(confidence, max(self.blocks - 1, 4)) * self.sampling_error
        )

    @property
    def error_of_all(self) -> float:
        """The standard error that the loss on all data has itself, as a sample of what there might be."""
        return self.error * math.sqrt(self.share / (1 - self.share)) if self.share < 1 else 0.0

    def doubt(self, target: float) -> float:
        """How easily more data might put the loss on the other side; the smaller the number, the surer."""
        return self.error / max(abs(self.loss - target), 1e-9)


class Comparison:
    """Compares masked models with the whole one, batch by batch.

    Args:
        score: From measurements to the metric.
        whole: What the whole model's outputs tell, for every batch.
        samples: How many samples each batch has.
        higher_is_better: False if the metric is an error.

    Attributes:
        samples: How many samples all data have.
    """

    def __init__(
        self,
        score: Callable[[Sequence[Any]], float],
        whole: Measurements,
        samples: Mapping[int, int],
        higher_is_better: bool,
    ) -> None:
        self._score = score
        self._whole = whole
        self._samples = samples
        self.samples = sum(samples.values())
        self._higher_is_better = higher_is_better
        self._lost_at_once: list[float] = [1.0] * _PRIOR_POINTS
        self._score_of_all: float | None = None
        self._swings: dict[int, tuple[float, float]] = {}

    def share(self, measured: Measurements) -> float:
        """How much of the data has been measured."""
        return (
            1.0
            if len(measured) == len(self._whole)
            else sum(self._samples[n] for n in measured) / self.samples
        )

    def loss(self, measured: Measurements, numbers: Sequence[int]) -> tuple[float, float]:
        """The masked model's metric and loss on some batches."""
        ordered = sorted(numbers)
        baseline = self._baseline(ordered)
        metric = self._score([measured[number] for number in ordered])
        return metric, relative_loss(baseline, metric, self._higher_is_better)

    def _baseline(self, numbers: Sequence[int]) -> float:
        """The whole model's metric on some batches; on all of them it is computed once."""
        if len(numbers) < len(self._whole):
            return self._score([self._whole[number] for number in numbers])
        if self._score_of_all is None:
            self._score_of_all = self._score([self._whole[number] for number in sorted(self._whole)])
        return self._score_of_all

    def estimate(self, measured: Measurements, target: float, thorough: bool = True) -> Estimate:
        """What the measured batches say.

        Args:
            measured: What the masked model's outputs tell.
            target: The loss that matters: if the true one were there, this much spread has to be reckoned with at least.
            thorough: False if the metric takes too long to compute it with every block left out; only for all data.
        """
        numbers = list(measured)
        share = self.share(measured)
        blocks = [list(block) for block in np.array_split(numbers, min(len(numbers), _MOST_BLOCKS))]
        try:
            metric, loss = self.loss(measured, numbers)
            baseline = self._baseline(sorted(numbers))
            seen = sum(self._samples[number] for number in numbers) * max(abs(baseline), 1e-3)
            floor = self._least_error(seen, target)
            if share == 1 and (len(blocks) == 1 or not thorough):
                return Estimate(metric, loss, 0.0, 1.0, len(blocks), sampling_error=floor)
            if len(blocks) == 1:  # nothing is left if it is left out, and no metric is defined for nothing
                return Estimate(metric, loss, math.inf, share, 1, sampling_error=math.inf)
            without = [
                self.loss(measured, [n for b in blocks if b is not block for n in b])[1] for block in blocks
            ]
            rise, fall = self._swing(measured) if share < 1 else (0.0, 0.0)
        except (
            DysensError
        ):  # a metric that these few samples do not define, such as a mean over no labelled object
            return Estimate(math.nan, math.nan, math.inf, share, len(blocks), sampling_error=math.inf)
        spread = (len(blocks) - 1) / len(blocks) * float(np.sum((np.array(without) - np.mean(without)) ** 2))
        if _TELLING[0] * target <= loss <= _TELLING[1] * target and loss > 0:
            self._lost_at_once.append(spread * seen / loss)
        error = max(math.sqrt(spread), floor)
        # Of a finite set of samples, those that are left can only differ so much.
        left = math.sqrt(1 - share)
        return Estimate(metric, loss, error * left, share, len(blocks), rise, fall, error)

    def _swing(self, measured: Measurements) -> tuple[float, float]:
        """How much one batch that is not measured can raise the loss, and lower it, at most."""
        if not self._swings:
            self._swings = self._all_swings()
        left = [swing for number, swing in self._swings.items() if number not in measured]
        return max(rise for rise, _ in left), max(fall for _, fall in left)

    def _all_swings(self) -> dict[int, tuple[float, float]]:
        """For each batch: what is lost of all data's score if its own is, and what is gained if it is perfect."""
        baseline = self._baseline(sorted(self._whole))
        alone: dict[int, float] = {}
        for number, measurement in self._whole.items():
            try:
                alone[number] = self._score([measurement])
            except DysensError:  # nothing in it counts alone
                alone[number] = math.nan
        known = [score for score in alone.values() if math.isfinite(score)]
        best = max([1.0 if baseline <= 1 else 0.0, *known])
        swings = {}
        for number, score in alone.items():
            weight = self._samples[number] / self.samples / (abs(baseline) + 1e-9)
            own, missing = (score, best - score) if math.isfinite(score) else (best, best)
            if self._higher_is_better:
                swings[number] = (weight * own, weight * missing)
            else:  # an error can rise without bound, and fall to none
                swings[number] = (math.inf, weight * (own if math.isfinite(score) else math.inf))
        return swings

    def _least_error(self, seen: float, target: float) -> float:
        """The error that a loss at the target would have.

        Without it, a few samples without any difference would seem to prove that there is none. How much is lost at once,
        in samples, other points have told: a classifier loses whole ones, a text detector one box of many.

        Args:
            seen: How many samples were measured, of those that the whole model gets right.
            target: The loss in question.
        """
        return math.sqrt(float(np.mean(self._lost_at_once)) * max(target, 1e-3) / seen)


def student_quantile(level: float, freedom: int) -> float:
    """The quantile of Student's t distribution (by its expansion around the normal one; good to a per cent from 4 on).

    Example:
        >>> round(student_quantile(0.975, 9), 2)
        2.26
    """
    z = NormalDist().inv_cdf(level)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))
