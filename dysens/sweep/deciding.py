"""Deciding from part of the data what all of it would say, at a stated confidence.

A masked model is compared with the whole one on the same samples. The spread of the difference comes from a jackknife: the loss
is computed with each block of batches left out in turn, so any metric will do, also a ratio such as hmean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from dysens.errors import DysensError
from dysens.sweep.metrics import relative_loss

LOOKS = (0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8)
"""At which shares of the data a decision is tried; every look is one more chance to err, and the confidence allows for that."""

_MOST_BLOCKS = 10
_LEAST_BLOCKS = 4

SCORES_PER_LOOK = 2 * _MOST_BLOCKS
"""How often a look computes the metric, at most: of both models, with each block left out."""

Measurements = Mapping[int, Any]  # batch number: what its outputs tell


@dataclass(frozen=True)
class Estimate:
    """What part of the data says about the loss on all of it.

    Attributes:
        metric: The masked model's score on that part.
        loss: Its loss there, against the whole model on the same samples.
        error: The standard error of that loss as an estimate for all data; 0 if it is all data.
        share: How much of the data it is.
        blocks: How many blocks the error was estimated from.
    """

    metric: float
    loss: float
    error: float
    share: float
    blocks: int

    def interval(self, confidence: float) -> tuple[float, float]:
        """Where the loss on all data lies, at this confidence."""
        if self.error == 0:
            return self.loss, self.loss
        reach = student_quantile((1 + confidence) / 2, self.blocks - 1) * self.error
        return self.loss - reach, self.loss + reach

    def decides(self, target: float, confidence: float) -> bool:
        """Whether all data would put the loss on the same side of the target."""
        if self.share == 1:
            return True
        if self.blocks < _LEAST_BLOCKS or not math.isfinite(self.error):
            return False
        level = 1 - (1 - confidence) / len(LOOKS)
        return abs(self.loss - target) > student_quantile(level, self.blocks - 1) * self.error


class Comparison:
    """Compares masked models with the whole one, batch by batch.

    Args:
        score: From measurements to the metric.
        whole: What the whole model's outputs tell, for every batch.
        samples: How many samples each batch has.
        higher_is_better: False if the metric is an error.
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
        self._total = sum(samples.values())
        self._higher_is_better = higher_is_better

    def share(self, measured: Measurements) -> float:
        """How much of the data has been measured."""
        return (
            1.0
            if len(measured) == len(self._whole)
            else sum(self._samples[n] for n in measured) / self._total
        )

    def loss(self, measured: Measurements, numbers: Sequence[int]) -> tuple[float, float]:
        """The masked model's metric and loss on some batches."""
        ordered = sorted(numbers)
        baseline = self._score([self._whole[number] for number in ordered])
        metric = self._score([measured[number] for number in ordered])
        return metric, relative_loss(baseline, metric, self._higher_is_better)

    def estimate(self, measured: Measurements, target: float) -> Estimate:
        """What the measured batches say.

        Args:
            measured: What the masked model's outputs tell.
            target: The loss that matters: if the true one were there, this much spread has to be reckoned with at least.
        """
        numbers = list(measured)
        share = self.share(measured)
        blocks = [list(block) for block in np.array_split(numbers, min(len(numbers), _MOST_BLOCKS))]
        try:
            metric, loss = self.loss(measured, numbers)
            if share == 1:
                return Estimate(metric, loss, 0.0, 1.0, len(blocks))
            if len(blocks) == 1:  # nothing is left if it is left out, and no metric is defined for nothing
                return Estimate(metric, loss, math.inf, share, 1)
            without = [
                self.loss(measured, [n for b in blocks if b is not block for n in b])[1] for block in blocks
            ]
            baseline = self._score([self._whole[number] for number in sorted(numbers)])
        except (
            DysensError
        ):  # a metric that these few samples do not define, such as a mean over no labelled object
            return Estimate(math.nan, math.nan, math.inf, share, len(blocks))
        error = math.sqrt(
            (len(blocks) - 1) / len(blocks) * float(np.sum((np.array(without) - np.mean(without)) ** 2))
        )
        floor = self._least_error(numbers, baseline, target)
        # Of a finite set of samples, those that are left can only differ so much.
        return Estimate(metric, loss, max(error, floor) * math.sqrt(1 - share), share, len(blocks))

    def _least_error(self, numbers: Sequence[int], baseline: float, target: float) -> float:
        """The error that a loss at the target would have if samples are lost whole, one by one.

        Without it, a few samples without any difference would seem to prove that there is none.
        """
        seen = sum(self._samples[number] for number in numbers)
        return math.sqrt(max(target, 1e-3) / (max(abs(baseline), 1e-3) * seen))


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
