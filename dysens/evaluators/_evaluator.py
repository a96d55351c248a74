"""How a model is scored: batches in, outputs measured, a number out; and what that number is worth."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from dysens.errors import InputError
from dysens.model import fresh, preserved


class Evaluator(ABC):
    """Scores a model's outputs on a fixed list of batches.

    Attributes:
        name: Goes into the journal's header, so that points of two evaluators never mix.
        higher_is_better: False for an error or a loss.
    """

    name: str = "evaluator"
    higher_is_better: bool = True

    @abstractmethod
    def batches(self) -> Iterable[Any]:
        """The data, batch by batch, in the same order at every call."""

    def arguments(self, batch: Any) -> tuple[Any, ...]:
        """The positional arguments that the model is called with for this batch."""
        return (batch[0],)

    @abstractmethod
    def measure(self, outputs: Any, batch: Any) -> Any:
        """What the outputs of one batch tell; kept in memory, so keep it small."""

    @abstractmethod
    def score(self, measurements: Sequence[Any]) -> float:
        """The metric that these measurements amount to."""


def evaluate(model: paddle.nn.Layer, evaluator: Evaluator) -> float:
    """Score the live model on all batches, in eval mode. The model is left as found.

    Args:
        model: The live layer.
        evaluator: Gives the batches and measures the outputs.
    """
    with preserved(model), paddle.no_grad():
        model.eval()
        return evaluator.score(
            [evaluator.measure(model(*fresh(evaluator.arguments(b))), b) for b in evaluator.batches()]
        )


# PaddleSlim's dygraph formula adds this to the baseline.
_SLIM_EPSILON = 1e-3


def metric_of(value: Any) -> float:
    """The number that an evaluation returned, or a sentence that says what it returned instead."""
    if isinstance(value, paddle.Tensor):
        value = value.numpy()
    if value is None:
        raise InputError(
            "eval_func returned None; it has to return the metric as a number (is a return missing?)."
        )
    if isinstance(value, (bool, str, bytes)):
        raise InputError(f"eval_func returned {value!r}; it has to return the metric as a number.")
    try:
        array = np.asarray(value, dtype="float64")
    except (TypeError, ValueError):
        raise InputError(
            f"eval_func returned a {type(value).__name__}; it has to return the metric as one number."
        ) from None
    if array.size != 1:
        raise InputError(
            f"eval_func returned {array.size} values; it has to return one number, such as their mean."
        )
    return float(array.reshape(()))


def checked_baseline(value: Any) -> float:
    """The metric of the whole model; losses are relative to it, so it has to be positive."""
    baseline = metric_of(value)
    if math.isnan(baseline) or math.isinf(baseline):
        raise InputError(
            f"The whole model scores {baseline}; a sweep needs a finite baseline. Check eval_func and the weights."
        )
    if baseline == 0:
        raise InputError(
            "The whole model scores 0, so no relative loss can be computed. Are the weights loaded, and do data, labels "
            "and dictionary fit the model?"
        )
    if baseline < 0:
        raise InputError(
            f"The whole model scores {baseline:g}; a relative loss needs a positive baseline. Shift the metric, or return an "
            "error with higher_is_better=False."
        )
    return baseline


def relative_loss(baseline: float, metric: float, higher_is_better: bool = True) -> float:
    """PaddleSlim's dygraph formula; for an error, its relative rise.

    Example:
        >>> round(relative_loss(0.9, 0.8), 4)
        0.111
    """
    lost = baseline - metric if higher_is_better else metric - baseline
    return lost / (baseline + _SLIM_EPSILON)


Measurements = Mapping[int, Any]  # batch number: what its outputs tell
