"""A network that has learnt something, and digits to score it with: for tests whose numbers have to mean something."""

from __future__ import annotations

from functools import cache

import numpy as np
import paddle
from paddle import nn

from dysens.data import load_digits
from dysens.demos.digits import train
from dysens.evaluators import MetricEvaluator

SHAPE = [1, 1, 8, 8]


class SmallReader(nn.Sequential):
    """Four convolutions; reads nine digits of ten, and all of the test digits in a tenth of a second."""

    def __init__(self) -> None:
        widths = [1, 12, 16, 16, 24]
        layers: list[nn.Layer] = []
        for step, (inside, out) in enumerate(zip(widths, widths[1:])):
            layers += [nn.Conv2D(inside, out, 3, 1 + step % 2, padding=1), nn.ReLU()]
        super().__init__(*layers, nn.Flatten(), nn.Linear(24 * 4, 10))


@cache
def _weights() -> dict[str, np.ndarray]:
    paddle.seed(0)
    model = SmallReader()
    train(model, load_digits()[0], epochs=8, learning_rate=1e-2)
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def trained() -> SmallReader:
    """Always the same weights; trained once."""
    weights = _weights()
    with paddle.utils.unique_name.guard():
        model = SmallReader()
    model.set_state_dict(weights)
    model.eval()
    return model


def batches(size: int = 30) -> list[list[paddle.Tensor]]:
    """The digits that it was not trained on."""
    test = load_digits()[1]
    parts = np.array_split(np.arange(len(test)), len(test) // size)
    return [[paddle.to_tensor(test.images[p]), paddle.to_tensor(test.labels[p, None])] for p in parts]


def evaluator() -> MetricEvaluator:
    return MetricEvaluator(batches(), paddle.metric.Accuracy())
