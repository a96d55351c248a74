"""What a sweep calls to score the live model, whole or masked."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import paddle

from dysens.compiled._forward import FastForward
from dysens.errors import ForwardError, in_a_sentence
from dysens.model import isolate, preserved
from dysens.pruning import PrunePlan, cut, holds, masked

logger = logging.getLogger(__name__)


class ServedWronglyError(Exception):
    """Earlier scores came from a compiled copy that was found to be wrong: they have to be measured again.

    From now on the scorer runs the live model.
    """


class Scorer(ABC):
    """Scores the live model, whole or masked, and leaves it as found.

    Attributes:
        name: Goes into the journal's header.
        higher_is_better: False if the score is an error.
    """

    name: str
    higher_is_better: bool

    @property
    @abstractmethod
    def runtime(self) -> str:
        """Who ran the forward in the last score: "live", or the name of a runtime."""

    @property
    def sample_count(self) -> int:
        """How many samples a score is of; 0 if that is not known."""
        return 0

    @abstractmethod
    def score(self, plan: PrunePlan | None = None, then: PrunePlan | None = None) -> object:
        """What the evaluation gives with the plan's masks on; ``then`` is likely to be asked for next."""

    @abstractmethod
    def expect(self, work: Sequence[tuple[PrunePlan, float]]) -> None:
        """Announce what is going to be scored, so that it can be prepared: plans, and the number of ratios for each."""


class FunctionScorer(Scorer):
    """Scores by a function that looks at the live model in whatever way it likes.

    Whatever else the function does (trains, switches modes, turns static mode on) is undone. Training revives masked weights;
    where that is seen, the function gets a model that is really cut.
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
        self._served_before = False
        self._cuts = False

    def score(self, plan: PrunePlan | None = None, then: PrunePlan | None = None) -> object:
        """What the function returns.

        Raises:
            ServedWronglyError: Earlier scores have to be measured again.
        """
        self._fast.look_around()
        try:
            found = self._scored(plan)
        except Exception:
            if not self._must_repeat():
                raise
        else:
            if not self._must_repeat():
                self._served_before = self._served_before or self._fast.serves
                return found
        return self._scored(plan)

    @property
    def runtime(self) -> str:
        """Who ran the forward in the last score."""
        return self._fast.runtime

    @property
    def in_training_mode(self) -> bool:
        """Whether the last call of the model in the last score ran in training mode."""
        return self._fast.training

    def _must_repeat(self) -> bool:
        """Whether a score is worth nothing because a copy served it, and the live model has to run once more."""
        if self._fast.was_wrong():
            if self._served_before:
                raise ServedWronglyError
            return True
        # It trains, and a compiled copy has nothing to train.
        return self._fast.gradients_were_lost()

    def _scored(self, plan: PrunePlan | None) -> object:
        if plan is not None and self._cuts:
            return self._scored_cut(plan)
        with preserved(self._model, self._optimizer, gradients=True):
            isolate(self._model, self._optimizer)
            # The weights are masked in any case: the function may look at them, or call a part of the model.
            on = masked(self._model, plan) if plan is not None else nullcontext()
            with on, self._fast.serving(plan, weights_masked=True):
                found = self._function()
                if plan is None or holds(self._model, plan):
                    return found
        logger.warning(
            "The evaluation trains the model, and masked weights came back to life: every point is measured on a model that is "
            "really cut instead, with the live model."
        )
        self._cuts = True
        return self._scored_cut(plan)

    def _scored_cut(self, plan: PrunePlan) -> object:
        with preserved(self._model, self._optimizer, gradients=True):
            isolate(self._model, self._optimizer)
            cut(self._model, plan, self._optimizer)
            try:
                return self._function()
            except Exception as error:
                raise ForwardError(
                    "The evaluation trains the model, so it is called with a model that is really cut, and there it fails with "
                    f"{in_a_sentence(error)}. An optimizer that was made before has to be given to DygraphSensitivity "
                    "(optimizer=), and what depends on sizes of weights has to be made in eval_func."
                ) from error

    def expect(self, work: Sequence[tuple[PrunePlan, float]]) -> None:
        """Do nothing: what a user's function will run is not known in advance."""
