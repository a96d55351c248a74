"""Scores of units, from the weights as they are now."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import paddle

from dysens.criteria import Criterion, UnitCriterion, scores_by
from dysens.groups.group import ChannelGroup
from dysens.pruning.filters import filters_of


class LowestScores:
    """Chooses the units with the lowest scores, from the weights as they are when a group is first asked for.

    Args:
        tensors: The model's tensors by path.
        criterion: How filters are scored.
    """

    def __init__(self, tensors: Mapping[str, paddle.Tensor], criterion: Criterion) -> None:
        self._tensors = tensors
        self._of_group = self._by_filters
        if isinstance(criterion, UnitCriterion):
            self._of_group = lambda group: criterion.unit_scores(group, tensors)
        else:
            self._score = scores_by(criterion)
        self._known: dict[ChannelGroup, np.ndarray] = {}

    def __call__(self, group: ChannelGroup, ratio: float) -> np.ndarray:
        """The units of a group that a ratio removes."""
        return group.weakest(self.scores(group), ratio)

    def scores(self, group: ChannelGroup) -> np.ndarray:
        """The score of every unit of a group."""
        if group not in self._known:
            self._known[group] = self._of_group(group)
        return self._known[group]

    def _by_filters(self, group: ChannelGroup) -> np.ndarray:
        filters = {port: filters_of(self._tensors[piece.tensor], piece) for port, piece in group.scored}
        return group.unit_scores({port: self._score(f) for port, f in filters.items()})
