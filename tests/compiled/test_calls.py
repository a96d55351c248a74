"""How far outputs of a copy are from those of the live model, and how an exported forward uses memory."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn

from dysens.compiled._calls import largest_difference
from dysens.costs import Predictor, cpu_config


@pytest.fixture(params=[7, 2**18])
def _piecewise(request, monkeypatch):
    monkeypatch.setattr("dysens.compiled._calls._COMPARED_AT_ONCE", request.param)


def apart(ours, theirs) -> float:
    return largest_difference([paddle.to_tensor(ours)], [paddle.to_tensor(theirs)])


@pytest.mark.usefixtures("_piecewise")
class TestDifference:
    @pytest.mark.parametrize("place", [0, 6, 7, 59])
    def test_is_relative_to_the_largest_value_wherever_either_lies(self, place):
        theirs = np.linspace(-1, 1, 60, dtype="float64").reshape(3, 20)
        theirs[1, 3] = -4.0
        ours = theirs.copy()
        ours.flat[place] += 0.5
        assert apart(ours, theirs) == pytest.approx(0.125)

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_what_is_no_number_has_to_be_so_on_both_sides(self, value):
        theirs = np.ones(20, "float32")
        theirs[11] = value
        assert apart(theirs.copy(), theirs) == 0.0
        assert apart(np.ones(20, "float32"), theirs) == np.inf
        assert apart(-theirs, theirs) == (pytest.approx(2.0) if np.isnan(value) else np.inf)

    def test_other_shapes_and_types_are_infinitely_far(self):
        ones = np.ones(20, "float32")
        assert apart(ones, ones.reshape(4, 5)) == np.inf
        assert apart(ones, ones.astype("float64")) == np.inf
        assert apart(ones[:0], ones[:0]) == 0.0
        assert apart(np.float32(3.0), np.float32(3.0)) == 0.0


def test_a_predictor_answers_like_the_network_and_on_paddle_2_keeps_nothing_between_layers(tmp_path):
    paddle.seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Conv2D(3, 3, 3, padding=1), nn.ReLU())]
    model = nn.Sequential(*layers)
    model.eval()
    paddle.jit.save(
        model, str(tmp_path / "model"), input_spec=[paddle.static.InputSpec([-1, 3, -1, -1], name="x")]
    )
    predictor = Predictor(tmp_path / "model")
    for shape in ([1, 3, 8, 8], [2, 3, 16, 12], [1, 3, 8, 8]):
        image = paddle.randn(shape)
        np.testing.assert_allclose(predictor(image.numpy())[0], model(image).numpy(), rtol=1e-4, atol=1e-6)
    summary = cpu_config(tmp_path / "model", 1).summary()
    kept = next(line for line in summary.splitlines() if line.startswith("| memory_optim "))
    assert ("true" in kept) == paddle.__version__.startswith("2.")
