"""Channels that meet in a maximum, a minimum, an order or a norm: which one counts depends on the input."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

from dysens import DygraphSensitivity
from dysens.pruning import masked

MEETINGS: dict[str, Callable[[paddle.Tensor], paddle.Tensor]] = {
    "max": lambda p: p.max(axis=1, keepdim=True),
    "min": lambda p: p.min(axis=1, keepdim=True),
    "top-k": lambda p: paddle.topk(p, 2, axis=1)[0][:, 1:],
    "sort": lambda p: paddle.sort(p, axis=1)[:, 3:4],
    "median": lambda p: p.median(axis=1, keepdim=True),
    "infinity norm": lambda p: paddle.linalg.norm(p, float("inf"), axis=1, keepdim=True),
    "max of differences": lambda p: (p - p.mean()).abs().max(axis=1, keepdim=True),
    "range": lambda p: p.max(axis=1, keepdim=True) - p.min(axis=1, keepdim=True),
    "any above a threshold": lambda p: (p > 0.9).any(axis=1, keepdim=True).astype("float32"),
    "all below a threshold": lambda p: (p < 1.1).all(axis=1, keepdim=True).astype("float32"),
    "max over a threshold": lambda p: F.relu(p - 3).max(axis=1, keepdim=True),
    "max of two halves": lambda p: paddle.maximum(p[:, ::2], p[:, 1::2]).max(axis=1, keepdim=True),
}


class Gated(nn.Layer):
    """A gate from what pooled channels have in common."""

    def __init__(self, meeting: str, width: int = 16):
        super().__init__()
        self.stem = nn.Conv2D(3, width, 3, padding=1)
        self.gate = nn.Linear(1, width)
        self.head = nn.Conv2D(width, 5, 1)
        self.meeting = MEETINGS[meeting]

    def forward(self, x):
        x = F.relu(self.stem(x))
        gate = F.sigmoid(self.gate(self.meeting(x.mean([2, 3]))))
        return self.head(x * gate.unsqueeze([2, 3])).mean([2, 3])


class MaxOfConvs(nn.Layer):
    """The maximum over channels at every place, as the spatial attention of CBAM has it, beside the channels themselves."""

    def __init__(self):
        super().__init__()
        self.stem, self.spatial, self.head = nn.Conv2D(3, 8, 3), nn.Conv2D(1, 1, 1), nn.Conv2D(8, 4, 1)

    def forward(self, x):
        x = self.stem(x)
        return self.head(x * F.sigmoid(self.spatial(x.max(axis=1, keepdim=True))))


class Sized(nn.Layer):
    """Large pictures take another way."""

    def __init__(self):
        super().__init__()
        self.stem, self.small, self.large = nn.Conv2D(3, 8, 3), nn.Conv2D(8, 4, 1), nn.Conv2D(8, 4, 3)

    def forward(self, x):
        x = self.stem(x)
        return (self.large if x.shape[2] > 40 else self.small)(x).mean([2, 3])


class Chosen(nn.Layer):
    """Bright pictures take another way."""

    def __init__(self):
        super().__init__()
        self.stem, self.dark, self.bright = nn.Conv2D(3, 8, 3), nn.Conv2D(8, 4, 1), nn.Conv2D(8, 4, 3)

    def forward(self, x):
        x = self.stem(x)
        return (self.bright if float(x.std()) > 1.0 else self.dark)(x).mean([2, 3])


def differing_inputs(seed: int, size: int = 32) -> list[paddle.Tensor]:
    random = np.random.default_rng(seed)
    noise = random.normal(0, 1, [48, 3, size, size]) + np.linspace(-1, 1, 48).reshape([48, 1, 1, 1])
    return [paddle.to_tensor((noise * scale).astype("float32")) for scale in (0.2, 1, 4)]


def worst_difference(ds: DygraphSensitivity, model: nn.Layer, inputs: list[paddle.Tensor]) -> float:
    """Between masking and cutting, over all groups, in parts of the largest output."""
    worst = 0.0
    with paddle.no_grad():
        for group in ds.groups:
            for ratio in (0.25, 0.5, 0.75):
                with ds.pruned({group.name: ratio}) as outcome:
                    cut = [model(x).numpy() for x in inputs]
                with masked(model, outcome.plan):
                    kept = [model(x).numpy() for x in inputs]
                worst = max([worst, *(abs(a - b).max() / abs(b).max() for a, b in zip(cut, kept))])
    return worst


@pytest.mark.parametrize("meeting", MEETINGS)
@pytest.mark.parametrize("seed", range(4))
def test_what_meets_is_not_offered(meeting, seed):
    paddle.seed(seed)
    model = Gated(meeting)
    model.eval()
    model.gate.weight.set_value(model.gate.weight * 5)
    ds = DygraphSensitivity(model, [1, 3, 32, 32])
    assert not ds.groups
    assert "before layer 'gate'" in ds.explain("stem.weight").replace("before they reach", "before")


def test_a_mean_that_scales_with_the_channels_is_not_offered_either():
    MEETINGS["mean"] = lambda p: p.mean(axis=1, keepdim=True)
    try:
        model = Gated("mean")
        model.eval()
        assert not DygraphSensitivity(model, [1, 3, 32, 32]).groups
    finally:
        del MEETINGS["mean"]


def test_a_maximum_at_every_place():
    model = MaxOfConvs()
    model.eval()
    ds = DygraphSensitivity(model, [1, 3, 16, 16])
    assert worst_difference(ds, model, differing_inputs(0, 16)) < 2e-3


@pytest.mark.parametrize("shape", [[1, 3, 32, 32], [1, 3, 64, 64]])
@pytest.mark.parametrize("network", [Sized, Chosen])
def test_ways_that_depend_on_the_input_are_proven_or_not_offered(network, shape):
    for seed in range(3):
        paddle.seed(seed)
        model = network()
        model.eval()
        ds = DygraphSensitivity(model, shape)
        assert worst_difference(ds, model, differing_inputs(seed) + differing_inputs(seed, 64)[1:2]) < 2e-3


def test_a_way_at_another_size_is_named():
    model = Sized()
    model.eval()
    ds = DygraphSensitivity(model, [1, 3, 32, 32])
    assert not ds.groups
    assert "at a size of 48x32" in ds.explain("stem.weight")


def test_a_gate_per_channel_is_still_offered():
    class Squeeze(nn.Layer):
        def __init__(self):
            super().__init__()
            self.stem, self.gate, self.head = nn.Conv2D(3, 8, 3), nn.Linear(8, 8), nn.Conv2D(8, 4, 1)

        def forward(self, x):
            x = F.relu(self.stem(x))
            return self.head(x * F.sigmoid(self.gate(x.max(axis=[2, 3]))).unsqueeze([2, 3])).mean([2, 3])

    model = Squeeze()
    model.eval()
    ds = DygraphSensitivity(model, [1, 3, 32, 32])
    assert [group.path for group in ds.groups] == ["stem.weight"]
    assert worst_difference(ds, model, differing_inputs(0)) < 1e-4
