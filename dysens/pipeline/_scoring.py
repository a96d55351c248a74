"""Evaluators that are watched: a baseline that is too low is refused, and a score has a spread."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from dysens.adapters import Scoring
from dysens.errors import InputError
from dysens.evaluators import Evaluator
from dysens.pipeline._subject import Subject

_BLOCKS = 20  # so many parts of the data are left out in turn, at most


class Watched(Evaluator):
    """An evaluator that tells somebody of every score.

    Args:
        evaluator: Does all the work.
        told: Called with a score and the measurements that it was made from; what it raises ends the measuring.
    """

    def __init__(self, evaluator: Evaluator, told: Callable[[float, Sequence[Any]], object]) -> None:
        self.name = evaluator.name
        self.higher_is_better = evaluator.higher_is_better
        self._evaluator = evaluator
        self._told = told

    def batches(self) -> Iterable[Any]:
        """The evaluator's."""
        return self._evaluator.batches()

    def arguments(self, batch: Any) -> tuple[Any, ...]:
        """The evaluator's."""
        return self._evaluator.arguments(batch)

    def measure(self, outputs: Any, batch: Any) -> Any:
        """The evaluator's."""
        return self._evaluator.measure(outputs, batch)

    def score(self, measurements: Sequence[Any]) -> float:
        """The evaluator's."""
        score = self._evaluator.score(measurements)
        self._told(score, measurements)
        return score


class Baseline:
    """Refuses a first score that is too low to measure losses against: a sweep asks for the baseline first.

    Args:
        subject: What is scored.
        name: Of its score.
    """

    def __init__(self, subject: Subject, name: str) -> None:
        # A metric of one's own may have any scale; the task's own is known.
        self._lowest = subject.task.lowest_baseline if subject.scoring is None else None
        self._hint = subject.task.low_baseline_hint() if self._lowest is not None else ""
        self._name = name

    def __call__(self, score: float, measurements: Sequence[Any]) -> None:
        """Look at a score; only the first one counts."""
        lowest, self._lowest = self._lowest, None
        if lowest is not None and score < lowest:
            raise InputError(
                f"The whole network scores {score:.4f} in {self._name}: too little to measure losses against. {self._hint}"
            )


def guarded(subject: Subject) -> Scoring:
    """What scores the network; the task's own evaluator refuses a baseline that is too low, before any point."""
    evaluator = subject.evaluator
    if subject.scoring is not None or not isinstance(evaluator, Evaluator):
        return evaluator
    return Watched(evaluator, Baseline(subject, evaluator.name))


class Scores:
    """Every score with its measurements, so that its spread can be told without another pass over the data.

    Args:
        evaluator: Makes scores from measurements.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._seen: dict[float, Sequence[Any]] = {}

    def __call__(self, score: float, measurements: Sequence[Any]) -> None:
        """Remember a score."""
        self._seen[score] = list(measurements)

    def spread(self, score: float | None) -> float | None:
        """The standard error of a score over the data, by leaving out a part of them in turn; None if it is not known."""
        measurements = self._seen.get(score) if score is not None else None
        return None if measurements is None else standard_error(self._evaluator, measurements)


def standard_error(evaluator: Evaluator, measurements: Sequence[Any]) -> float | None:
    """The jackknife's standard error of a score.

    Args:
        evaluator: Makes scores from measurements.
        measurements: One per batch.

    Returns:
        None if there is but one batch, or a part of the data has no finite score.
    """
    blocks = np.array_split(np.arange(len(measurements)), min(len(measurements), _BLOCKS))
    if len(blocks) < 2:
        return None
    scores = []
    for block in blocks:
        left_out = set(block.tolist())
        scores.append(
            evaluator.score([each for place, each in enumerate(measurements) if place not in left_out])
        )
    error = math.sqrt(
        (len(scores) - 1) / len(scores) * float(np.sum((np.array(scores) - np.mean(scores)) ** 2))
    )
    return error if math.isfinite(error) else None
