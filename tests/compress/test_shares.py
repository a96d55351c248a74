"""Calibration in parts: together they say what one pass over all the data says."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn

from dysens import DygraphSensitivity
from dysens.compress._calibrate import calibrate
from dysens.compress._samples import Call
from dysens.compress._shares import PARTS, merged, parts_of

SHAPE = [2, 3, 8, 8]


class Flattened(nn.Layer):
    """Convolutions with and without a norm behind them, and a linear layer that reads places of a flattened map."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2D(3, 6, 3, padding=1, bias_attr=False), nn.BatchNorm2D(6)
        self.second, self.third = nn.Conv2D(6, 8, 3, padding=1), nn.Conv2D(8, 4, 1, bias_attr=False)
        self.last_norm, self.last = nn.BatchNorm2D(4), nn.Linear(4 * 4, 5)
        self.only_in_training = nn.Linear(5, 3)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        y = nn.functional.relu(self.second(nn.functional.relu(self.norm(self.first(x)))))
        y = nn.functional.relu(self.last_norm(self.third(y)))
        out = self.last(nn.functional.adaptive_avg_pool2d(y, 2).flatten(1))
        return (out, self.only_in_training(out)) if self.training else out


@pytest.fixture
def found() -> tuple[nn.Layer, DygraphSensitivity, list[Call]]:
    paddle.seed(0)
    model = Flattened()
    model.eval()
    random = np.random.default_rng(1)
    # Means that drift from part to part, and are large beside what varies.
    calls = [(paddle.to_tensor(random.normal(number, 0.5, SHAPE).astype("float32")),) for number in range(11)]
    return model, DygraphSensitivity(model, SHAPE), calls


def test_parts_are_neighbours_and_nothing_is_left_out() -> None:
    for length in (1, 2, 7, 8, 9, 48, 100):
        parts = parts_of([(number,) for number in range(length)])
        assert [number for part in parts for (number,) in part] == list(range(length))
        assert len(parts) == min(PARTS, length)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_together_they_are_one_pass(found: tuple[nn.Layer, DygraphSensitivity, list[Call]]) -> None:
    model, ds, calls = found
    analysis = ds._analysis
    whole = calibrate(model, analysis.roles, analysis.groups, calls)
    parts = [calibrate(model, analysis.roles, analysis.groups, part) for part in parts_of(calls)]
    assert len(parts) > 1
    together = merged(parts)
    assert together.readings.keys() == whole.readings.keys()
    assert together.norms == whole.norms
    assert together.norms
    assert together.short == whole.short
    for path, reading in whole.readings.items():
        ours = together.readings[path]
        assert (ours.count, ours.repeat) == (reading.count, reading.repeat), path
        np.testing.assert_allclose(ours.mean, reading.mean, rtol=1e-6, atol=1e-9)
        scale = np.abs(reading.covariance).max()
        np.testing.assert_allclose(ours.covariance, reading.covariance, atol=1e-5 * scale)
    assert any(reading.repeat > 1 for reading in whole.readings.values())


def test_layers_that_only_training_runs_come_from_there(
    found: tuple[nn.Layer, DygraphSensitivity, list[Call]],
) -> None:
    model, ds, calls = found
    analysis = ds._analysis
    first = calibrate(model, analysis.roles, analysis.groups, calls[:1])
    other = calibrate(model, analysis.roles, analysis.groups, calls[1:])
    path = next(iter(first.readings))
    partial = type(first)({name: each for name, each in first.readings.items() if name != path})
    together = merged([partial], other)
    assert together.readings[path] is other.readings[path]
    assert all(together.readings[name] is first.readings[name] for name in partial.readings)
