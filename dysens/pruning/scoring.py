"""Scores of units, from the weights as they are now."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import paddle

from dysens.criteria import Criterion, scores_by
from dysens.groups.group import ChannelGroup
from dysens.groups.roles import Slice


def unit_scores(
    group: ChannelGroup, tensors: Mapping[str, paddle.Tensor], criterion: Criterion
) -> np.ndarray:
    """The score of every unit of a group; the lowest go first."""
    scores = scores_by(criterion)
    return group.unit_scores({port: scores(filters_of(tensors[p.tensor], p)) for port, p in group.scored})


def filters_of(tensor: paddle.Tensor, piece: Slice) -> np.ndarray:
    """The filters of a weight along axis 0, whatever axis its output channels lie on."""
    weight = tensor.astype("float32").numpy()
    if piece.blocks == 1:
        return np.moveaxis(weight, piece.axis, 0)
    # The channels of a grouped transposed convolution are spread over blocks of its first axis.
    blocks = weight.reshape(piece.blocks, weight.shape[0] // piece.blocks, *weight.shape[1:])
    return np.moveaxis(blocks, 2, 1).reshape(-1, blocks.shape[1], *weight.shape[2:])
