"""Scores of units, from the weights as they are now."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import paddle

from dysens.criteria import Criterion, scores_by
from dysens.groups.group import ChannelGroup
from dysens.groups.roles import Slice


class LowestScores:
    """Chooses the units with the lowest scores, from the weights as they are when a group is first asked for.

    Args:
        tensors: The model's tensors by path.
        criterion: How filters are scored.
    """

    def __init__(self, tensors: Mapping[str, paddle.Tensor], criterion: Criterion) -> None:
        self._tensors = tensors
        self._score = scores_by(criterion)
        self._known: dict[ChannelGroup, np.ndarray] = {}

    def __call__(self, group: ChannelGroup, ratio: float) -> np.ndarray:
        """The units of a group that a ratio removes."""
        return group.weakest(self.scores(group), ratio)

    def scores(self, group: ChannelGroup) -> np.ndarray:
        """The score of every unit of a group."""
        if group not in self._known:
            filters = {port: filters_of(self._tensors[piece.tensor], piece) for port, piece in group.scored}
            self._known[group] = group.unit_scores({port: self._score(f) for port, f in filters.items()})
        return self._known[group]


def filters_of(tensor: paddle.Tensor, piece: Slice) -> np.ndarray:
    """The filters of a weight along axis 0, whatever axis its output channels lie on."""
    weight = tensor.astype("float32").numpy()
    if piece.blocks == 1:
        return np.moveaxis(weight, piece.axis, 0)
    # The channels of a grouped transposed convolution are spread over blocks of its first axis.
    blocks = weight.reshape(piece.blocks, weight.shape[0] // piece.blocks, *weight.shape[1:])
    return np.moveaxis(blocks, 2, 1).reshape(-1, blocks.shape[1], *weight.shape[2:])
