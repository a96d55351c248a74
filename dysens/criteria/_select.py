"""Scores of units, from the weights as they are now."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import paddle

from dysens.criteria._norms import Criterion, GroupCriterion, Scores, checked_scores, scores_by
from dysens.groups import ChannelGroup, filters_of

Tensors = Mapping[str, paddle.Tensor]
GroupScores = Callable[[ChannelGroup], np.ndarray]


class LowestScores:
    """Chooses the units with the lowest scores, from the weights as they are when a group is first asked for.

    Args:
        tensors: The model's tensors by path.
        criterion: How filters are scored.
    """

    def __init__(self, tensors: Tensors, criterion: Criterion) -> None:
        self._score_group = (
            _by_group(criterion, tensors)
            if isinstance(criterion, GroupCriterion)
            else _by_filters(scores_by(criterion), tensors)
        )
        self._known: dict[ChannelGroup, np.ndarray] = {}

    def __call__(self, group: ChannelGroup, ratio: float) -> np.ndarray:
        """The units of a group that a ratio removes."""
        return group.weakest(self.scores(group), ratio)

    def scores(self, group: ChannelGroup) -> np.ndarray:
        """The score of every unit of a group."""
        if group not in self._known:
            self._known[group] = self._score_group(group)
        return self._known[group]


def _by_group(criterion: GroupCriterion, tensors: Tensors) -> GroupScores:
    def score(group: ChannelGroup) -> np.ndarray:
        what = f"units of {group.path}"
        return checked_scores(criterion.score(group, tensors), group.size, criterion.name, what)

    return score


def _by_filters(scores: Scores, tensors: Tensors) -> GroupScores:
    def score(group: ChannelGroup) -> np.ndarray:
        filters = {port: filters_of(tensors[piece.tensor], piece) for port, piece in group.scored}
        return group.unit_scores({port: scores(f) for port, f in filters.items()})

    return score
