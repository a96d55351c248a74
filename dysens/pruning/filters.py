"""The filters of a weight, whatever axis they lie on."""

from __future__ import annotations

import numpy as np
import paddle

from dysens.groups.roles import Slice


def filters_of(tensor: paddle.Tensor, piece: Slice) -> np.ndarray:
    """The channels of a port along axis 0 of a weight, whatever axis they lie on."""
    weight = tensor.astype("float32").numpy()
    if piece.blocks == 1:
        return np.moveaxis(weight, piece.axis, 0)
    # The channels of a grouped transposed convolution are spread over blocks of its first axis.
    blocks = weight.reshape(piece.blocks, weight.shape[0] // piece.blocks, *weight.shape[1:])
    return np.moveaxis(blocks, 2, 1).reshape(-1, blocks.shape[1], *weight.shape[2:])
