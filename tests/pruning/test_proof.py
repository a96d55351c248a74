"""The proof tells rounding from a wrong cut, also where a steep function blows rounding up, or where outputs do not answer."""

from __future__ import annotations

import math

import numpy as np
import paddle
import pytest
from paddle import nn

from dysens import DygraphSensitivity
from dysens.model import view_of
from dysens.pruning import TOLERANCE, PrunePlan, TensorCut, difference

SIZE = 256
GONE = tuple(range(0, SIZE, 3))
OTHERS = tuple(sorted({index + 1 for index in GONE[:-1]} | {0}))


class Steep(nn.Layer):
    """A step so steep that the order of a sum decides, as at the head of a DB detector in training."""

    def __init__(self, steepness):
        super().__init__()
        self.wide = nn.Conv2D(3, SIZE, 3)
        self.narrow = nn.Conv2D(SIZE, 16, 1)
        self.steepness = steepness

    def forward(self, images):
        features = self.narrow(self.wide(images))
        return nn.functional.sigmoid(self.steepness * (features - features.mean()))


def plan(removed, consumed):
    narrow = TensorCut("narrow.weight", 1, SIZE, consumed)
    filters = [TensorCut(f"wide.{name}", 0, SIZE, removed) for name in ("weight", "bias")]
    return PrunePlan((*filters, narrow), {"wide": {"_out_channels": SIZE - len(removed)}}, (narrow,))


def test_rounding_is_no_difference():
    paddle.seed(2)
    model = Steep(steepness=2e4)
    before = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    assert difference(model, [view_of([1, 3, 96, 96])], plan(GONE, GONE)).amount <= TOLERANCE
    for name, tensor in model.state_dict().items():
        assert tensor.dtype == paddle.float32
        np.testing.assert_array_equal(tensor.numpy(), before[name])


def test_a_wrong_cut_is_one_in_any_precision():
    paddle.seed(2)
    assert difference(Steep(steepness=50.0), [view_of([1, 3, 96, 96])], plan(OTHERS, GONE)).amount > TOLERANCE


class Silent(Steep):
    """Like a detector that finds nothing: its one output is the same whatever its layers say."""

    def forward(self, images):
        return (super().forward(images).mean() > 10).astype("float32")


def test_a_wrong_cut_shows_in_the_layers_where_outputs_do_not_answer():
    paddle.seed(2)
    found = difference(Silent(steepness=1.0), [view_of([1, 3, 32, 32])], plan(OTHERS, GONE))
    assert found.amount > TOLERANCE
    assert found.where == "what layer 'narrow' returns"


def test_a_right_cut_is_right_where_outputs_do_not_answer():
    paddle.seed(2)
    assert difference(Silent(steepness=1.0), [view_of([1, 3, 32, 32])], plan(GONE, GONE)).amount <= TOLERANCE


class Failing(nn.Layer):
    """Returns NaN, or infinity, as soon as a channel is missing."""

    def __init__(self, value):
        super().__init__()
        self.wide = nn.Conv2D(3, SIZE, 3)
        self.narrow = nn.Conv2D(SIZE, 16, 1)
        self.value = value

    def forward(self, images):
        features = self.wide(images)
        bad = self.value if features.shape[1] < SIZE else 0.0
        return self.narrow(features).mean([1, 2, 3]) + bad


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_in_one_of_the_two_is_a_difference(value):
    found = difference(Failing(value), [view_of([1, 3, 32, 32])], plan(GONE, GONE))
    assert found == (math.inf, "the outputs")


def test_a_value_that_is_no_number_in_both_hides_no_other_difference():
    paddle.seed(2)
    model = Steep(steepness=1.0)
    with paddle.no_grad():
        model.narrow.bias[0] = math.nan
    apart = difference(model, [view_of([1, 3, 32, 32])], plan(OTHERS, GONE))
    assert apart.amount > TOLERANCE
    assert difference(model, [view_of([1, 3, 32, 32])], plan(GONE, GONE)).amount <= TOLERANCE


class Choosing(nn.Layer):
    """Runs another layer when a channel is missing."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Conv2D(3, SIZE, 3)
        self.narrow = nn.Conv2D(SIZE, 16, 1)
        self.extra = nn.Conv2D(16, 16, 1)

    def forward(self, images):
        features = self.wide(images)
        outputs = self.narrow(features)
        if features.shape[1] < SIZE:
            self.extra(outputs)
        return outputs


def test_another_way_through_the_network_is_a_difference():
    found = difference(Choosing(), [view_of([1, 3, 32, 32])], plan(GONE, GONE))
    assert found == (math.inf, "whether layer 'extra' runs")


@pytest.mark.parametrize("bias", [False, None])
def test_a_transposed_convolution_loses_whole_groups_with_or_without_a_bias(bias):
    layers = nn.Conv2D(3, 8, 3), nn.Conv2DTranspose(8, 12, 3, groups=4, bias_attr=bias), nn.Conv2D(12, 4, 3)
    ds = DygraphSensitivity(nn.Sequential(*layers), [1, 3, 16, 16])
    (group,) = ds.groups
    assert group.rule == "whole convolution groups"
    assert ds.verify({group.name: 0.5}) <= TOLERANCE
