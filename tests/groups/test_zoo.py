"""Networks of paddle.vision: every convolution that does not make the output is in a proven group."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from networks import randomize
from states import assert_same, picture

from dysens import DygraphSensitivity
from dysens.groups import CONV_GROUPS
from dysens.model import tensors_by_path

SHAPE = [1, 3, 64, 64]
OUTPUT_CONVS = {"squeezenet1_0": ["_conv9.weight"]}


@pytest.mark.parametrize(
    "name",
    [
        "resnet18",
        "mobilenet_v1",
        pytest.param("mobilenet_v2", marks=pytest.mark.once("paddle26")),
        pytest.param("mobilenet_v3_small", marks=pytest.mark.once("paddle26")),
        pytest.param("mobilenet_v3_large", marks=pytest.mark.once("paddle3")),
        "squeezenet1_0",
        # The larger ones; test_structures.py has their concatenations and grouped convolutions.
        pytest.param("densenet121", marks=pytest.mark.once("test-all")),
        pytest.param("resnext50_32x4d", marks=pytest.mark.once("test-all")),
    ],
)
def test_every_convolution_is_in_a_proven_group(name):
    model = getattr(paddle.vision.models, name)(num_classes=10)
    randomize(model)
    before = picture(model)
    ds = DygraphSensitivity(model, SHAPE, criterion="l1")
    tensors = tensors_by_path(model)
    filters = {path for path, tensor in tensors.items() if tensor.ndim == 4}
    paths = {tensor.name: path for path, tensor in tensors.items()}
    assert [paths[name] for name in ds.unprunable] == OUTPUT_CONVS.get(name, [])
    assert filters == {p for g in ds.groups for p in g.filters if p in filters} | set(
        OUTPUT_CONVS.get(name, [])
    )
    random = np.random.default_rng(0)
    assert ds.verify({group.name: random.uniform(0.1, 0.8) for group in ds.groups}) < 1e-4
    assert_same(before, picture(model))
    if name.startswith("resnext"):
        # 16 blocks, each with one grouped convolution of 32 groups that takes both its neighbours along.
        balanced = [group for group in ds.groups if group.rule == CONV_GROUPS]
        assert [(group.size, group.channels % 32) for group in balanced] == [(32, 0)] * 16
