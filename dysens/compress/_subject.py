"""The network that is compressed: cut for a while, counted, scored."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Union

import numpy as np
import paddle
from paddle import nn

from dysens.compress._criterion import Elimination
from dysens.costs import cost_of
from dysens.evaluators import Evaluator, checked_baseline, evaluate, metric_of, relative_loss
from dysens.groups import ChannelGroup, Role, merge_removals
from dysens.model import View, preserved
from dysens.pruning import PrunePlan, cut, plan_for

Scoring = Union[Evaluator, Callable[[], Any]]
"""An evaluator, or a function that scores the live model (higher is better)."""


@dataclass(frozen=True)
class Subject:
    """The network to compress.

    Attributes:
        model: The live layer.
        roles: Its layers with weights.
        groups: What may be cut.
        views: How it is run; the first is the eval forward.
        optimizer: Left as found too.
    """

    model: nn.Layer
    roles: Mapping[str, Role]
    groups: Sequence[ChannelGroup]
    views: Sequence[View]
    optimizer: paddle.optimizer.Optimizer | None = None

    @contextmanager
    def cut(self, plan: PrunePlan) -> Iterator[nn.Layer]:
        """The model, really cut for a while."""
        with preserved(self.model, self.optimizer):
            cut(self.model, plan, gradients=False)
            yield self.model

    def flops_and_params(self, plan: PrunePlan | None = None) -> tuple[int, int]:
        """Counted on the live model, cut if a plan is given."""
        if plan is None:
            cost = cost_of(self.model, self.views[0])
        else:
            with self.cut(plan) as model:
                cost = cost_of(model, self.views[0])
        return cost.flops, cost.params


def folded_plan(
    subject: Subject, elimination: Elimination, ratios: Mapping[str, float]
) -> tuple[dict[str, np.ndarray], PrunePlan]:
    """The units that ratios remove, by group name, and the plan of the cut with its folding."""
    groups = [group for group in subject.groups if ratios.get(group.name, 0) > 0]
    units = {group.name: elimination.units(group, ratios[group.name]) for group in groups}
    removal = merge_removals(group.removal(units[group.name]) for group in groups)
    return units, plan_for(elimination.compensate(subject.roles), removal, subject.model)


class Judge:
    """Scores cut networks by an evaluator.

    Args:
        subject: The network.
        scoring: The evaluator, or a function that scores the live model.

    Attributes:
        name: What scores it.
        baseline: The score of the whole network.
        seconds: What scoring it took.
    """

    def __init__(self, subject: Subject, scoring: Scoring) -> None:
        self._subject = subject
        self._scoring = scoring
        self._higher = scoring.higher_is_better if isinstance(scoring, Evaluator) else True
        self.name = scoring.name if isinstance(scoring, Evaluator) else "the given function"
        start = time.perf_counter()
        with preserved(subject.model, subject.optimizer):
            self.baseline = checked_baseline(self._score())
        self.seconds = time.perf_counter() - start

    def score(self, plan: PrunePlan) -> float:
        """The score of the network, really cut."""
        with self._subject.cut(plan):
            return self._score()

    def loss(self, score: float) -> float:
        """What a score has lost; infinite if it is none."""
        loss = relative_loss(self.baseline, score, self._higher)
        return loss if math.isfinite(loss) else math.inf

    def _score(self) -> float:
        if isinstance(self._scoring, Evaluator):
            return metric_of(evaluate(self._subject.model, self._scoring))
        return metric_of(self._scoring())
