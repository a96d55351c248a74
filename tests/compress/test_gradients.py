"""How the outputs answer to layers and places, from random probes."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn

from dysens import DygraphSensitivity
from dysens.compress import calibrate
from tests.states import assert_same, picture


class Chain(nn.Layer):
    """Three convolutions of single places; before the last, gradients may be stopped, and half of the map may be dropped."""

    def __init__(self, stop: str = "", half: bool = False) -> None:
        super().__init__()
        self.stop, self.half = stop, half
        self.first = nn.Conv2D(3, 8, 1)
        self.second = nn.Conv2D(8, 6, 1)
        self.third = nn.Conv2D(6, 4, 1)

    def forward(self, x):
        hidden = self.second(self.first(x))
        if self.stop == "detach":
            hidden = hidden.detach()
        elif self.stop == "flag":
            hidden = hidden.clone()
            hidden.stop_gradient = True
        return self.third(hidden)[:, :, : 4 if self.half else 8]


def calibrated(model, calls, outputs=()):
    model.eval()
    ds = DygraphSensitivity(model, [1, 3, 8, 8])
    before = picture(model)
    found = calibrate(model, ds._analysis.roles, ds.groups, calls, outputs=outputs)
    assert_same(before, picture(model))
    return found


@pytest.mark.parametrize("stop", ["", "detach", "flag"])
def test_a_linear_network_answers_as_its_weights_say(stop):
    paddle.seed(0)
    model = Chain(stop)
    x = paddle.randn([1, 3, 8, 8])
    answers = calibrated(model, [(x,)] * 40).answers
    outputs = model(x).numpy().astype("float64")
    varies = np.square(outputs - outputs.mean()).sum()
    exact = 64 * np.square(model.third.weight.numpy().astype("float64")).sum(axis=(0, 2, 3)) / varies
    np.testing.assert_allclose(answers["second"].weights, exact, rtol=0.2)
    assert np.corrcoef(answers["second"].weights, exact)[0, 1] > 0.9
    # Every entry of the outputs answers to itself alone.
    np.testing.assert_allclose(answers["third"].weights, 64 / varies, rtol=1e-4)
    assert paddle.ones([1]).stop_gradient
    tensor = paddle.ones([1])
    tensor.stop_gradient = False
    assert not tensor.stop_gradient
    tensor.stop_gradient = True
    assert tensor.stop_gradient
    assert tensor.detach() is not tensor


def test_places_that_the_outputs_do_not_read_count_little():
    paddle.seed(0)
    model = Chain(half=True)
    x = paddle.randn([2, 3, 8, 8])
    x[:, :, 4:] += 5.0
    found = calibrated(model, [(x,)])
    counts = found.weights["second"][0].reshape(2, 8, 8)
    assert (counts[:, 4:] == counts.min()).all()
    assert counts[:, :4].mean() > 10 * counts.min()
    # So the mean of what is read is about that of the upper half.
    read = model.first(x).numpy()
    upper, lower = read[:, :, :4].mean(axis=(0, 2, 3)), read[:, :, 4:].mean(axis=(0, 2, 3))
    mean = found.readings["second"].mean
    assert np.abs(mean - upper).sum() < 0.3 * np.abs(mean - lower).sum()
    alike = calibrated(model, [(x,)], outputs=None)
    np.testing.assert_allclose(alike.readings["second"].mean, read.mean(axis=(0, 2, 3)), rtol=1e-4, atol=1e-5)
    assert not alike.answers
    assert not alike.weights


def test_frozen_weights_answer_too():
    model = Chain()
    for parameter in model.parameters():
        parameter.stop_gradient = True
    found = calibrated(model, [(paddle.randn([1, 3, 8, 8]),)])
    assert set(found.answers) == {"second", "third"}
    assert all(parameter.stop_gradient for parameter in model.parameters())


def test_a_network_without_a_backward_pass_counts_all_places_alike():
    class Rounded(Chain):
        def forward(self, x):
            return paddle.to_tensor(super().forward(x).numpy())

    found = calibrated(Rounded(), [(paddle.randn([1, 3, 8, 8]),)])
    assert not found.answers
    assert found.readings["second"].count == 64
