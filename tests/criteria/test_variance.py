"""The criterion that looks at data: what is nearly constant goes first, and its mean stays."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn

from dysens import DygraphSensitivity, Variance
from dysens.errors import InputError
from tests.states import differences, picture

CONSTANT = (2, 5)  # channels of the first convolution that say the same wherever they look
SHAPE = [4, 3, 8, 8]


class Reader(nn.Layer):
    """A convolution with two constant channels, read by one of three kinds of layers."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.first = nn.Conv2D(3, 8, 3, padding=1)
        self.kind = kind
        # Small filters say little about what a channel is worth: here the constant ones have the largest biases.
        weight, bias = self.first.weight.numpy(), np.zeros(8, "float32")
        weight[list(CONSTANT)], bias[list(CONSTANT)] = 0.0, 3.0
        self.first.weight.set_value(weight)
        self.first.bias.set_value(bias)
        if kind == "linear":
            self.second = nn.Linear(8, 5)
        else:
            self.second = nn.Conv2D(8, 5, 1, bias_attr=None if kind == "conv" else False)
        self.norm = nn.BatchNorm2D(5)

    def forward(self, images):
        read = nn.functional.relu(self.first(images))
        if self.kind == "linear":
            return self.second(read.mean([2, 3]))
        made = self.second(read)
        return self.norm(made) if self.kind == "norm" else made


@pytest.fixture
def images():
    paddle.seed(7)
    return paddle.rand(SHAPE)


def built(kind, images):
    paddle.seed(3)
    model = Reader(kind)
    model.eval()
    return model, Variance(model, [(images,), (images[:2],)])


@pytest.mark.parametrize("kind", ["conv", "norm", "linear"])
def test_constant_channels_go_and_nobody_notices(kind, images):
    model, variance = built(kind, images)
    expected = model(images).numpy()
    outcome = DygraphSensitivity(model, SHAPE, criterion=variance).prune_vars({"first.weight": 0.25})
    assert [cut.removed for cut in outcome.plan.cuts if cut.tensor == "first.weight"] == [CONSTANT]
    np.testing.assert_allclose(model(images).numpy(), expected, atol=1e-5)


def test_a_sweep_measures_what_the_cut_will_do(images):
    model, variance = built("conv", images)
    expected = model(images).numpy()

    def error():
        return 1.0 + float(np.abs(model(images).numpy() - expected).max())

    def constant_first(weight):
        return np.isin(np.arange(len(weight)), CONSTANT, invert=True).astype(float)

    names = {"ratios": [0.25, 0.5], "progress": False, "higher_is_better": False}
    with_means = DygraphSensitivity(model, SHAPE, criterion=variance)
    measured = with_means.sensitive(error, **names)
    curve = next(iter(measured.values()))
    assert curve[0.25] == pytest.approx(0.0, abs=1e-5)
    assert curve[0.5] > 0.01
    zeros = DygraphSensitivity(model, SHAPE, criterion=constant_first).sensitive(error, **names)
    assert next(iter(zeros.values()))[0.25] > 0.1  # the same channels, but nobody makes up for them
    assert with_means.verify({"first.weight": 0.5}) < 1e-5
    with_means.prune_vars({"first.weight": 0.5})
    assert (error() - 1.0) / 1.001 == pytest.approx(curve[0.5], rel=1e-3)


def test_model_is_left_as_found(images):
    paddle.seed(3)
    model = Reader("norm")
    before = picture(model)
    variance = Variance(model, [(images,)])
    assert not differences(before, picture(model))
    ds = DygraphSensitivity(model, SHAPE, criterion=variance)
    ds.prune_vars({"first.weight": 0.5})
    assert "norm._mean" in differences(before, picture(model))
    ds.restore()
    assert not differences(before, picture(model))


def test_what_it_cannot_do_is_said(images, caplog):
    model, variance = built("conv", images)
    with pytest.raises(InputError, match="looks at data, and there were none"):
        Variance(model, [])
    ds = DygraphSensitivity(model, SHAPE, criterion=variance)
    with pytest.raises(InputError, match=r'compensates: it shifts biases.*Take fast="off"'):
        ds.sensitive(lambda: 1.0, fast="on")
    with caplog.at_level("INFO", "dysens"):
        ds.sensitive(lambda: 1.0, ratios=[0.5], progress=False)
    assert "The live model runs: the criterion variance compensates" in caplog.text
    with ds.pruned({"first.weight": 0.25}), pytest.raises(InputError, match="has been cut already"):
        ds.prune_vars({"first.weight": 0.5})


def test_what_it_saw_is_of_the_whole_model(images):
    model = nn.Sequential(nn.Conv2D(3, 8, 1), nn.ReLU(), nn.Conv2D(8, 6, 1), nn.ReLU(), nn.Conv2D(6, 2, 1))
    ds = DygraphSensitivity(model, SHAPE, criterion=Variance(model, [(images,)]))
    ds.prune_vars({"0.weight": 0.5})
    with pytest.raises(
        InputError, match=r"variance compensates .* cut all groups in one go, or call restore"
    ):
        ds.prune_vars({"2.weight": 0.5})
    ds.restore()
    ds.prune_vars({"0.weight": 0.5, "2.weight": 0.5})
