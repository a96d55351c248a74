"""How the outputs answer to layers, from random probes."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn

from dysens.compress import output_answers
from dysens.groups import roles_of
from tests.states import assert_same, picture


class Chain(nn.Layer):
    """Two linear layers; between them, gradients may be stopped."""

    def __init__(self, stop: str = "") -> None:
        super().__init__()
        self.stop = stop
        self.first = nn.Linear(4, 6)
        self.second = nn.Linear(6, 3)

    def forward(self, x):
        hidden = self.first(x)
        if self.stop == "detach":
            hidden = hidden.detach()
        elif self.stop == "flag":
            hidden = hidden.clone()
            hidden.stop_gradient = True
        return self.second(hidden)


@pytest.mark.parametrize("stop", ["", "detach", "flag"])
def test_a_linear_network_answers_as_its_weights_say(stop):
    paddle.seed(0)
    model = Chain(stop)
    model.eval()
    x = paddle.randn([5, 4])
    before = picture(model)
    answers = output_answers(model, roles_of(model), [(x,)], probes=200)
    outputs = model(x).numpy().astype("float64")
    varies = np.square(outputs - outputs.mean()).sum()
    exact = 5 * np.square(model.second.weight.numpy().astype("float64")).sum(axis=1) / varies
    np.testing.assert_allclose(answers["first"].weights, exact, rtol=0.5)
    assert np.corrcoef(answers["first"].weights, exact)[0, 1] > 0.9
    # Every entry of the outputs answers to itself alone.
    np.testing.assert_allclose(answers["second"].weights, 5 / varies, rtol=1e-5)
    assert_same(before, picture(model))
    assert paddle.ones([1]).stop_gradient
    tensor = paddle.ones([1])
    tensor.stop_gradient = False
    assert not tensor.stop_gradient
    tensor.stop_gradient = True
    assert tensor.stop_gradient
    assert tensor.detach() is not tensor


def test_frozen_weights_answer_too_and_unused_layers_do_not():
    class Unused(Chain):
        def forward(self, x):
            self.first(x)
            return self.second(paddle.zeros([len(x), 6]) + x[:, :1])

    model = Unused()
    for parameter in model.parameters():
        parameter.stop_gradient = True
    answers = output_answers(model, roles_of(model), [(paddle.randn([5, 4]),)])
    assert set(answers) == {"second"}
    assert all(parameter.stop_gradient for parameter in model.parameters())
