"""Networks with a first layer that says everything twice, read in different ways: half of it can go without a loss."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

SHAPE = [2, 3, 8, 8]
KINDS = (
    "bias",
    "norm",
    "bare",
    "linear",
    "flatten",
    "transposed",
    "depthwise",
    "concat",
    "lstm",
    "residual",
    "shared",
    "deep",
)


def twice(layer: nn.Layer, width: int, scale: float = 2.0) -> None:
    """Let the odd filters be multiples of the even ones before them: behind a ReLU they still are."""
    for tensor in (layer.weight, layer.bias):
        if tensor is not None:
            values = tensor.numpy()
            values[1:width:2] = scale * values[0:width:2]
            tensor.set_value(values)


class Twice(nn.Layer):
    """A first convolution with redundant channels, and one kind of consumer."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first = nn.Conv2D(3, 8, 3, padding=1)
        twice(self.first, 8)
        self.first.bias.set_value(self.first.bias + paddle.to_tensor([0.3, 0.6] * 4))
        if kind in ("bias", "norm", "bare"):
            self.second = nn.Conv2D(8, 5, 3, bias_attr=None if kind == "bias" else False)
            self.norm = nn.BatchNorm2D(5)
        elif kind in ("linear", "flatten", "deep"):
            self.second = nn.Linear(8 * (16 if kind == "flatten" else 1), 5)
        elif kind == "transposed":
            self.second = nn.Conv2DTranspose(8, 5, 2, stride=2)
        elif kind == "depthwise":
            self.between = nn.Conv2D(8, 8, 3, groups=8)
            twice(self.between, 8, 1.0)
            self.between.bias.set_value(paddle.zeros([8]))
            self.second = nn.Conv2D(8, 5, 1)
        elif kind == "concat":
            self.other = nn.Conv2D(3, 4, 1)
            self.second = nn.Conv2D(12, 5, 1)
        elif kind == "lstm":
            self.second = nn.LSTM(8 * 4, 5, direction="bidirect")
        elif kind == "residual":
            self.skip = nn.Conv2D(3, 8, 3, padding=1)
            twice(self.skip, 8)
            self.second = nn.Conv2D(8, 5, 1)
            self.third = nn.Conv2D(8, 4, 3)
        elif kind == "shared":
            self.second = nn.Conv2D(8, 5, 1)

    def forward(self, x):
        read = self.first(x)
        if self.kind == "residual":
            read = F.relu(read + self.skip(x))
            return self.second(read), self.third(read)
        read = F.relu(read)
        if self.kind == "norm":
            return F.relu(self.norm(self.second(read)))
        if self.kind in ("linear", "deep"):
            return self.second(read.mean([2, 3]))
        if self.kind == "flatten":
            return self.second(F.adaptive_avg_pool2d(read, 4).flatten(1))
        if self.kind == "depthwise":
            return self.second(F.relu(self.between(read)))
        if self.kind == "concat":
            return self.second(paddle.concat([read, self.other(x)], axis=1))
        if self.kind == "lstm":
            return self.second(F.adaptive_avg_pool2d(read, 4).flatten(1, 2).transpose([0, 2, 1]))[0]
        if self.kind == "shared":
            return self.second(read), self.second(read * 0.5)
        return self.second(read)


class GroupedReader(nn.Layer):
    """A grouped convolution whose groups each read redundant channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2D(3, 16, 1)
        twice(self.first, 16)
        self.second = nn.Conv2D(16, 8, 3, groups=4)

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


def built(kind: str, seed: int = 3) -> nn.Layer:
    paddle.seed(seed)
    with paddle.utils.unique_name.guard():
        model = GroupedReader() if kind == "grouped" else Twice(kind)
    model.eval()
    return model


def batches(number: int = 4, size: int = 6, seed: int = 5) -> list[paddle.Tensor]:
    random = np.random.default_rng(seed)
    return [
        paddle.to_tensor(random.standard_normal([size, *SHAPE[1:]]).astype("float32")) for _ in range(number)
    ]


def flat(outputs) -> np.ndarray:
    parts = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return np.concatenate([part.numpy().ravel() for part in parts])
