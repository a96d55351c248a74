"""What a sweep calls to score the live model, whole or masked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import paddle

from dysens.compiled._forward import FastForward
from dysens.model import isolate, preserved
from dysens.pruning import PrunePlan, masked


class Scorer(ABC):
    """Scores the live model, whole or masked, and leaves it as found.

    Attributes:
        name: Goes into the journal's header.
        higher_is_better: False if the score is an error.
    """

    name: str
    higher_is_better: bool

    @abstractmethod
    def score(self, plan: PrunePlan | None = None, then: PrunePlan | None = None) -> object:
        """What the evaluation gives with the plan's masks on; ``then`` is likely to be asked for next."""

    @abstractmethod
    def expect(self, work: Sequence[tuple[PrunePlan, float]]) -> None:
        """Say what is going to be scored, so that it can be prepared: plans, and for how many ratios each stands."""


class FunctionScorer(Scorer):
    """Scores by a function that looks at the live model in whatever way it likes.

    Whatever else the function does (trains, switches modes, turns static mode on) is undone.
    """

    def __init__(
        self,
        model: paddle.nn.Layer,
        function: Callable[[], Any],
        higher_is_better: bool,
        optimizer: paddle.optimizer.Optimizer | None,
        fast: FastForward,
    ) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self.higher_is_better = higher_is_better
        self._model = model
        self._function = function
        self._optimizer = optimizer
        self._fast = fast

    def score(self, plan: PrunePlan | None = None, then: PrunePlan | None = None) -> object:
        """What the function returns."""
        try:
            found = self._scored(plan)
        except Exception:
            if not self._fast.gradients_were_lost():
                raise
        else:
            if not self._fast.gradients_were_lost():
                return found
        # It trains, and a compiled copy has nothing to train: once more, with the live model.
        return self._scored(plan)

    def _scored(self, plan: PrunePlan | None) -> object:
        with preserved(self._model, self._optimizer, gradients=True):
            isolate(self._model, self._optimizer)
            # The weights are masked in any case: the function may look at them, or call a part of the model.
            on = masked(self._model, plan) if plan is not None else nullcontext()
            with on, self._fast.serving(plan, weights_masked=True):
                return self._function()

    def expect(self, work: Sequence[tuple[PrunePlan, float]]) -> None:
        """Nothing can be prepared: only the function knows what it will do."""
