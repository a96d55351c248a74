"""A forward that writes into what a layer returned must not leave traces in the probes after it."""

from __future__ import annotations

import paddle
from paddle import nn

from dysens.engines import native_engine
from dysens.model import view_of


class MaskedAttention(nn.Layer):
    """Masks the attention in place, by an argument that says how much of the width counts (as SAR's decoder does)."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2D(3, 8, 3, padding=1)
        self.features = nn.Conv2D(8, 8, 3, padding=1)
        self.attention = nn.Conv2D(8, 1, 1)
        self.head = nn.Linear(8, 2)

    def forward(self, images, share):
        features = nn.functional.relu(self.features(nn.functional.relu(self.stem(images))))
        weights = self.attention(features)
        width = int(paddle.ceil(share[0] * weights.shape[3]))
        if width < weights.shape[3]:
            weights[:, :, :, width:] = float("-inf")
        weights = nn.functional.softmax(weights.flatten(2), axis=-1).reshape(weights.shape)
        return self.head((features * weights).sum(axis=[2, 3]))


def test_layers_before_the_masked_one_are_still_offered():
    paddle.seed(1)
    view = view_of((paddle.randn([1, 3, 16, 16]), paddle.to_tensor([0.9])))
    analysis = native_engine(MaskedAttention(), [view])
    assert "stem.weight" in [group.path for group in analysis.groups]
