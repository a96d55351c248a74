"""How a model is scored: batches in, outputs measured, a number out.

A sweep asks three things of an evaluator, always in this order: which batches there are, what one batch's outputs tell
(`measure`), and which number a list of such measurements amounts to (`score`). Nothing is accumulated inside, so that the
same evaluator can score a part of the data, leave a batch out, or compare two variants batch by batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import paddle

from dysens.live import preserved


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
            [evaluator.measure(model(*evaluator.arguments(b)), b) for b in evaluator.batches()]
        )
