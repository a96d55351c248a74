"""Weights that no layer of their own holds, or that several hold: bare parameters, functions, tied and shared layers."""

from __future__ import annotations

import paddle.nn.functional as F
import pytest
from networks import SHAPE, made
from paddle import nn
from states import assert_same, picture

from dysens import DygraphSensitivity
from dysens.model import tensors_by_path


class Affine(nn.Layer):
    """A learnable scale and offset, as PP-LCNetV3 has them, once along channels and once for all."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(3, 8, 1)
        self.scale = self.create_parameter([1, 8, 1, 1])
        self.offset = self.create_parameter([8, 1, 1], is_bias=True)
        self.gain = self.create_parameter([1])
        self.head = nn.Conv2D(8, 2, 1)

    def forward(self, x):
        return self.head(F.relu(self.conv(x) * self.scale + self.offset) * self.gain)


class DepthwiseFunction(nn.Layer):
    """A depthwise convolution whose weight is a bare parameter: it runs along the channels, and is cut with them."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2D(3, 6, 1)
        self.kernel = self.create_parameter([6, 1, 3, 3])
        self.head = nn.Conv2D(6, 2, 1)

    def forward(self, x):
        x = F.relu(self.stem(x))
        return self.head(F.conv2d(x, self.kernel, padding=1, groups=x.shape[1]))


class FunctionalConv(nn.Layer):
    """A full convolution whose weight is a bare parameter: what it makes can be cut, what it takes in is mixed there."""

    def __init__(self):
        super().__init__()
        self.first, self.stem = nn.Conv2D(3, 5, 1), nn.Conv2D(5, 6, 1)
        self.kernel = self.create_parameter([8, 6, 3, 3])
        self.head = nn.Conv2D(8, 2, 1)

    def forward(self, x):
        x = F.relu(self.stem(F.relu(self.first(x))))
        return self.head(F.relu(F.conv2d(x, self.kernel, padding=1)))


class NormalisedConv(nn.Layer):
    """Weight standardisation: what the function gets is computed from the weight, over all its filters."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2D(3, 6, 1)
        self.kernel = self.create_parameter([8, 6, 1, 1])
        self.head = nn.Conv2D(8, 2, 1)

    def forward(self, x):
        weight = self.kernel / (self.kernel.std() + 0.1)
        return self.head(F.relu(F.conv2d(F.relu(self.stem(x)), weight)))


class BorrowedWeight(nn.Layer):
    """A layer that never runs lends its weight to a function."""

    def __init__(self):
        super().__init__()
        self.lender = nn.Conv2D(3, 6, 1, bias_attr=False)
        self.head = nn.Conv2D(6, 2, 1)

    def forward(self, x):
        return self.head(F.relu(F.conv2d(x, self.lender.weight)))


class TiedSources(nn.Layer):
    """Two convolutions with one weight: what one loses, the other loses."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2D(3, 6, 1), nn.Conv2D(3, 6, 1)
        self.second.weight = self.first.weight
        self.heads = nn.LayerList([nn.Conv2D(6, 2, 1), nn.Conv2D(6, 2, 1)])

    def forward(self, x):
        return self.heads[0](F.relu(self.first(x))), self.heads[1](F.relu(self.second(x * 0.5)))


class TiedAlongBothAxes(nn.Layer):
    """One matrix as the weight of a convolution and of a transposed one: it makes channels along both its axes."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2D(6, 4, 1, bias_attr=False)
        self.up = nn.Conv2DTranspose(4, 6, 1, bias_attr=False)
        self.up.weight = self.down.weight
        self.stem = nn.Conv2D(3, 6, 1)
        self.head = nn.Conv2D(6, 2, 1)

    def forward(self, x):
        return self.head(F.relu(self.up(F.relu(self.down(F.relu(self.stem(x)))))))


class NoNameLeft(nn.Layer):
    """The same, where no other 4-D weight makes the channels along the second axis: two groups cannot have one name."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 6)
        self.first = nn.Conv2D(6, 4, 1, bias_attr=False)
        self.second = nn.Conv2DTranspose(4, 6, 1, bias_attr=False)
        self.second.weight = self.first.weight
        self.head = nn.Conv2D(6, 2, 1)

    def forward(self, x):
        x = self.fc(x.mean(axis=[2, 3])).unsqueeze([2, 3])
        return self.head(F.relu(self.second(F.relu(self.first(x)))))


class RegisteredTwice(nn.Layer):
    """The same layer under two names, as heads of PaddleDetection keep it."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(3, 6, 1)
        self.norm = nn.BatchNorm2D(6)
        self.stages = nn.LayerList([self.conv, self.norm])
        self.head = nn.Conv2D(6, 2, 1)

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return self.head(F.relu(x))


class SharedHead(nn.Layer):
    """One head on feature maps of three sizes, as in a detector: its convolutions run three times."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2D(3, 6, 3, padding=1)
        self.laterals = nn.LayerList([nn.Conv2D(6, 8, 1) for _ in range(3)])
        self.tower = nn.Sequential(nn.Conv2D(8, 8, 3, padding=1), nn.BatchNorm2D(8), nn.ReLU())
        self.out = nn.Conv2D(8, 4, 1)

    def forward(self, x):
        x = F.relu(self.stem(x))
        maps = []
        for lateral in self.laterals:
            x = F.max_pool2d(x, 2)
            maps.append(self.out(self.tower(F.relu(lateral(x)))))
        return maps


OUTPUT = "reach the model's output"
MIXED = "its channels are mixed with each other before they reach layer 'head'"
# The group of each network by its first weight, with every filter that goes with it; and what stays.
CASES = [
    (Affine, {"conv.weight": ["conv.weight", "scale"]}, {"head.weight": OUTPUT}),
    (DepthwiseFunction, {"stem.weight": ["kernel", "stem.weight"]}, {"head.weight": OUTPUT}),
    (
        FunctionalConv,
        {"first.weight": ["first.weight"], "kernel": ["kernel"]},
        {"stem.weight": MIXED, "head.weight": OUTPUT},
    ),
    (
        NormalisedConv,
        {},
        {"stem.weight": MIXED, "kernel": "parameter 'kernel' belongs to no layer", "head.weight": OUTPUT},
    ),
    (BorrowedWeight, {"lender.weight": ["lender.weight"]}, {"head.weight": OUTPUT}),
    (TiedSources, {"first.weight": ["first.weight"]}, {"heads.0.weight": OUTPUT, "heads.1.weight": OUTPUT}),
    (
        TiedAlongBothAxes,
        {"down.weight": ["down.weight"], "stem.weight": ["down.weight", "stem.weight"]},
        {"head.weight": OUTPUT},
    ),
    (NoNameLeft, {"first.weight": ["first.weight"]}, {"head.weight": OUTPUT}),
    (RegisteredTwice, {"conv.weight": ["conv.weight"]}, {"head.weight": OUTPUT}),
    (
        SharedHead,
        {
            "stem.weight": ["stem.weight"],
            "laterals.0.weight": ["laterals.0.weight", "laterals.1.weight", "laterals.2.weight"],
            "tower.0.weight": ["tower.0.weight"],
        },
        {"out.weight": OUTPUT},
    ),
]


@pytest.mark.parametrize(("network", "groups", "stays"), CASES)
def test_groups_of_weights_elsewhere(network, groups, stays):
    model = made(network)
    before = picture(model)
    ds = DygraphSensitivity(model, SHAPE, criterion="l1")
    print(ds.groups, ds.unprunable, sep="\n")
    tensors = tensors_by_path(model)
    first = {id(tensor): path for path, tensor in reversed(tensors.items())}
    filters = {id(tensor) for tensor in tensors.values() if tensor.ndim == 4}

    def named(group):
        own = [tensors[path] for path in group.filters if id(tensors[path]) in filters]
        return sorted({first[id(tensor)] for tensor in own})

    assert {group.path: named(group) for group in ds.groups} == groups
    paths = {tensor.name: path for path, tensor in reversed(tensors.items())}
    reasons = {paths[name]: reason for name, reason in ds.unprunable.items()}
    assert set(reasons) == set(stays)
    for path, words in stays.items():
        assert words in reasons[path]
    for ratio in (0.3, 0.7):
        assert ds.verify({group.name: ratio for group in ds.groups}) < 1e-5
    assert_same(before, picture(model))
