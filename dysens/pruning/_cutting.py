"""The cuts that are made on a live model, one after the other, and their undoing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import paddle

from dysens.costs import cost_of
from dysens.errors import InputError
from dysens.model import ModelState, Preserved, View, isolate, preserved, run_through
from dysens.pruning._apply import cut, history
from dysens.pruning._outcome import PruneOutcome
from dysens.pruning._plan import PrunePlan

Outcome = TypeVar("Outcome")


class Cuts:
    """What was cut from a model so far; all of it can be undone at once.

    Args:
        model: The live layer.
        optimizer: Its state is cut and restored along with the model.
        view: How the model is run where its cost is counted.
        untried: What the analysis could not try, as a sentence; every outcome says so.

    Attributes:
        removed: The share that is gone, by group name.
    """

    def __init__(
        self,
        model: paddle.nn.Layer,
        optimizer: paddle.optimizer.Optimizer | None,
        view: View,
        untried: str = "",
    ) -> None:
        self.removed: dict[str, float] = {}
        self._model = model
        self._optimizer = optimizer
        self._view = view
        self._untried = untried
        self._earlier = len(history(model))  # cuts that others made before
        self._before: ModelState | None = None

    @property
    def plans(self) -> tuple[PrunePlan, ...]:
        """What was cut, in order."""
        return history(self._model)[self._earlier :]

    def require_whole(self, what: str) -> None:
        """Raise InputError if the model is cut.

        Args:
            what: What needs the whole model, with its verb.
        """
        if self.removed:
            raise InputError(
                f"The model is cut already, and {what} the whole one: call restore() first, or make a new "
                "DygraphSensitivity of the cut model."
            )

    def make(
        self,
        plan: PrunePlan,
        widths: tuple[tuple[str, str, int, int], ...],
        removed: Mapping[str, float],
    ) -> PruneOutcome:
        """Cut the model in place, with gradients, optimizer state and layer attributes.

        Args:
            plan: What goes.
            widths: Name, path, channels before and channels after of every group, for the outcome.
            removed: The share of each group that goes, by its name.
        """
        before = cost_of(self._model, self._view)
        with self._preserved() as state:
            # Training goes on, and must not reach what restore() will need.
            isolate(self._model, self._optimizer)
            cut(self._model, plan, self._optimizer)
            after = cost_of(self._model, self._view)
            outcome = PruneOutcome(
                before.flops,
                after.flops,
                before.params,
                after.params,
                plan,
                widths,
                after.counted_by_us,
                self._untried,
            )
            self._before = self._before or state
            self.removed = {**self.removed, **removed}
            state.keep()
        return outcome

    def restore(self) -> None:
        """Undo all of them: weights, gradients and optimizer state are again what they were, bit for bit."""
        if self._before is not None:
            run_through(self._before.restore)

    def for_a_while(self, make: Callable[[], Outcome]) -> Preserved[Outcome]:
        """Have a cut for the length of a ``with`` block.

        Args:
            make: Makes it.
        """
        return Preserved(self._state, lambda _: make())

    def _preserved(self) -> Preserved[ModelState]:
        return preserved(self._model, self._optimizer, gradients=True, also=[self])

    def _state(self) -> ModelState:
        return ModelState(self._model, self._optimizer, gradients=True, also=[self])
