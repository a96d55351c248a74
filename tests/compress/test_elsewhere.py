"""Cuts that are compared by other processes: the same decision as in one."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn

import dysens
from dysens.errors import InputError, WorkerError

SHAPE = [4, 3, 16, 16]


def network():
    random = np.random.default_rng(0)
    with paddle.utils.unique_name.guard():
        widths = [3, 16, 24, 16]
        convs = [
            layer
            for inside, out in zip(widths, widths[1:])
            for layer in (nn.Conv2D(inside, out, 3, padding=1), nn.ReLU())
        ]
        model = nn.Sequential(*convs, nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.Linear(16, 5))
    for tensor in model.state_dict().values():
        tensor.set_value(random.normal(0, 0.2, tensor.shape).astype("float32"))
    model.eval()
    return model


def data():
    random = np.random.default_rng(1)
    return [(paddle.to_tensor(random.standard_normal(SHAPE).astype("float32")),) for _ in range(6)]


def without_weights():
    paddle.seed(9)
    with paddle.utils.unique_name.guard():
        model = network()
    for tensor in model.parameters():
        tensor.set_value(paddle.zeros_like(tensor))
    return model, lambda: 1.0


def another_network():
    return nn.Sequential(nn.Conv2D(3, 4, 3)), lambda: 1.0


def decided(**options):
    """All that was decided, and the weights that folding gave."""
    model = network()
    ds = dysens.DygraphSensitivity(model, SHAPE)
    with ds.compressed(data(), flops=0.3, align=None, progress=False, **options) as outcome:
        tried = [(t.allocation, t.removed, t.output_error) for t in outcome.tried]
        weights = {path: tensor.numpy().tobytes() for path, tensor in model.state_dict().items()}
        return outcome.ratios, tried, outcome.output_error, weights


def test_two_workers_calibrate_and_decide_as_one_process_does():
    alone = decided()
    assert decided(workers=2, build=without_weights) == alone
    assert len(alone[1]) > 2


@pytest.mark.once("test-all")
def test_a_ray_cluster_calibrates_and_decides_as_one_process_does():
    pytest.importorskip("ray")
    assert decided(workers=2, build=without_weights, executor=dysens.Ray("auto")) == decided()


def test_workers_that_build_something_else():
    ds = dysens.DygraphSensitivity(network(), SHAPE)
    with pytest.raises(WorkerError, match="differs from the one that is measured"):
        ds.compress(data(), flops=0.3, progress=False, workers=2, build=another_network)
    with pytest.raises(InputError, match="Workers need models of their own: give build"):
        ds.compress(data(), flops=0.3, progress=False, workers=2)
