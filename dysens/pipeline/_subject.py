"""A task with its groups, and with what scores it."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dysens.adapters import Scoring, Task
from dysens.costs import cost_of
from dysens.criteria import Criterion, Variance
from dysens.errors import DysensError, InputError
from dysens.evaluators import Evaluator
from dysens.flags import flag
from dysens.groups import FILTERS
from dysens.model import view_of
from dysens.sensitivity import DygraphSensitivity
from dysens.sweep import Build

logger = logging.getLogger(__name__)

VARIANCE = "variance"  # the criterion that looks at the evaluator's data


@dataclass
class Subject:
    """What the steps work on. Groups are found, and data are read, when they are first needed.

    Attributes:
        task: The network and its framework.
        criterion: Which filters go first, by name.
        skip: Parameters that must stay whole.
        layers: "filters" for groups of 4-D weights, "all" for linear layers, heads and other convolutions as well.
        training: Whether the training forward has to survive a cut too.
        scoring: What scores the network, instead of the task's own evaluator.
        build: What builds model and ``scoring`` in another process; needed with ``scoring`` and several workers.
        lower_is_better: Whether ``scoring`` (or the task's), a function, returns an error; an `Evaluator` says it itself.
    """

    task: Task
    criterion: str = "fpgm"
    skip: tuple[str, ...] = ()
    layers: str = FILTERS
    training: bool = True
    scoring: Scoring | None = None
    build: Build | None = None
    lower_is_better: bool = False

    @property
    def evaluator(self) -> Scoring:
        """What scores the network."""
        return self.task.evaluator if self.scoring is None else self.scoring

    @property
    def has_evaluator(self) -> bool:
        """Whether anything is named that scores the network."""
        return self.scoring is not None or self.task.has_evaluator

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher score is a better one; an `Evaluator` says it itself."""
        evaluator = self.evaluator if self.has_evaluator else None
        return getattr(evaluator, "higher_is_better", not self.lower_is_better)

    @property
    def scores_chance(self) -> bool:
        """Whether the framework's metric would be asked about random weights: it says 0, and no loss is relative to that."""
        task = self.task
        return self.scoring is None and task.lowest_baseline is not None and not task.has_weights

    @property
    def indicator(self) -> str:
        """What the score is called."""
        return self.task.indicator if self.scoring is None else "score"

    @cached_property
    def ds(self) -> DygraphSensitivity:
        """The groups of the network, proven for the eval forward and, unless it is left out, for the training forward."""
        start = time.perf_counter()
        ds = DygraphSensitivity(
            self.task.model,
            self.task.example_inputs,
            criterion=self._criterion(),
            skip_vars=self.skip,
            layers=self.layers,
            train_inputs=self._train_inputs() if self.training else None,
        )
        logger.info(
            "%s: %d groups found and proven in %.1f s",
            type(self.task.model).__name__,
            len(ds.groups),
            time.perf_counter() - start,
        )
        return ds

    @cached_property
    def deployed(self) -> list[str] | None:
        """The paths of the groups that cost something when the model is deployed; None for all that were found.

        Others belong to branches that run in training only: cutting those makes nothing smaller that is shipped, and a
        sweep would find them worthless.
        """
        if not self.training:
            return None  # only the eval forward was looked at
        running = cost_of(self.task.model, view_of(self.task.example_inputs)).by_layer
        return [group.path for group in self.ds.groups if any(layer in running for layer in group.layers)]

    def check_weights(self) -> None:
        """Refuse to measure what chance has made.

        Raises:
            InputError: The network has random weights.
        """
        if not self.task.has_weights:
            raise InputError(
                "The network has random weights, and losses relative to those tell nothing: give "
                f"{flag('weights')}."
            )

    def _criterion(self) -> Criterion:
        if self.criterion != VARIANCE:
            return self.criterion
        evaluator = self.evaluator
        if not isinstance(evaluator, Evaluator):
            raise InputError(
                f"The criterion {VARIANCE} looks at data, and what scores the network is a function, which shows none: give "
                "an Evaluator, or another criterion."
            )
        return Variance(self.task.model, (evaluator.arguments(batch) for batch in evaluator.batches()))

    def _train_inputs(self) -> Any:
        try:
            return self.task.train_inputs
        except DysensError as error:
            raise InputError(
                f"{error} (Groups are proven for the training forward too, and that needs training data: "
                f"{flag('eval_only')} leaves it out.)"
            ) from error
