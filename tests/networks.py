"""Small networks that several tests use, each for one shape of trouble."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

SHAPE = [1, 3, 16, 16]


class ConvBN(nn.Sequential):
    def __init__(self, inside: int, out: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(
            nn.Conv2D(inside, out, 3, stride, padding=1, groups=groups, bias_attr=False),
            nn.BatchNorm2D(out),
            nn.ReLU(),
        )


class SmallNet(nn.Layer):
    """A stem, a residual block, a depthwise block, an SE gate and a flatten-linear head."""

    def __init__(self, classes: int = 4, width: int = 8) -> None:
        super().__init__()
        self.stem = ConvBN(3, width, stride=2)
        self.body = nn.Sequential(ConvBN(width, 12), ConvBN(12, width))
        self.depthwise = ConvBN(width, width, groups=width)
        self.point = nn.Conv2D(width, 16, 1)
        self.squeeze = nn.Conv2D(16, 4, 1)
        self.excite = nn.Conv2D(4, 16, 1)
        self.dropout = nn.Dropout(0.3)
        self.fc = nn.Linear(16 * 4, classes)

    def forward(self, x):
        x = self.stem(x)
        x = F.relu(x + self.body(x))
        x = self.point(self.depthwise(x))
        x = x * F.sigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(x, 1)))))
        return self.fc(self.dropout(F.adaptive_avg_pool2d(x, 2).flatten(1)))


class TinyNet(nn.Layer):
    """As little as can be pruned; for tests that run something hundreds of times."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2D(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2D(4)
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        return self.out(F.relu(self.norm(self.conv(x))).mean(axis=[2, 3]))


class TextNet(nn.Layer):
    """Convolutions that end in an LSTM (CRNN)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(ConvBN(3, 8, stride=2), ConvBN(8, 12))
        self.lstm = nn.LSTM(12 * 8, 10, num_layers=2, direction="bidirect")
        self.fc = nn.Linear(20, 6)

    def forward(self, x):
        x = self.features(x)
        x = x.flatten(1, 2).transpose([0, 2, 1])
        return self.fc(self.lstm(x)[0])


class DictNet(nn.Layer):
    """Takes a dict and a flag, gives back a dict that holds a list, None and numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.image = ConvBN(3, 8)
        self.mask = ConvBN(1, 8)
        self.head = nn.Conv2D(8, 2, 1)

    def forward(self, data, scale=1.0):
        x = self.image(data["image"]) + self.mask(data["more"]["mask"])
        maps = self.head(x) * scale
        return {"maps": [maps, maps.sum()], "boxes": None, "number": 7}


class TwoInputs(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv = ConvBN(3, 8)
        self.fc = nn.Linear(8 + 5, 3)

    def forward(self, image, extra):
        return self.fc(paddle.concat([self.conv(image).mean(axis=[2, 3]), extra], axis=1))


class ResNeXtBlock(nn.Layer):
    """A true grouped convolution between two pointwise ones."""

    def __init__(self) -> None:
        super().__init__()
        self.reduce = nn.Conv2D(3, 16, 1)
        self.grouped = nn.Conv2D(16, 24, 3, padding=1, groups=4)
        self.norm = nn.BatchNorm2D(24)
        self.expand = nn.Conv2D(24, 2, 1)

    def forward(self, x):
        return self.expand(F.relu(self.norm(self.grouped(F.relu(self.reduce(x))))))


class ShuffleNet(nn.Layer):
    """Split, a branch, concat and channel shuffle: removal has to be balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2D(3, 8, 1)
        self.branch = nn.Conv2D(4, 4, 1)
        self.head = nn.Conv2D(8, 2, 1)

    def forward(self, x):
        a, b = paddle.chunk(F.relu(self.stem(x)), 2, axis=1)
        x = paddle.concat([a, self.branch(b)], axis=1)
        n, c, h, w = x.shape
        return self.head(x.reshape([n, 2, c // 2, h, w]).transpose([0, 2, 1, 3, 4]).reshape([n, c, h, w]))


class Unequal(nn.Layer):
    """Two sources of different width side by side, met by a third: one group, whose first weight is only part of it."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow = nn.Conv2D(3, 4, 1)
        self.wide = nn.Conv2D(3, 12, 1)
        self.both = nn.Conv2D(3, 16, 1)
        self.head = nn.Conv2D(16, 2, 1)

    def forward(self, x):
        return self.head(paddle.concat([self.narrow(x), self.wide(x)], axis=1) + self.both(x))


def made(network: type[nn.Layer], seed: int = 0, **options) -> nn.Layer:
    """A network with fixed weights, biases and statistics that are not at their initial values, in eval mode."""
    with paddle.utils.unique_name.guard():
        model = network(**options)
    randomize(model, seed)
    model.eval()
    return model


def randomize(model: nn.Layer, seed: int = 0) -> None:
    """Weights of a size that keeps signals alive; biases and statistics that are neither 0 nor 1."""
    random = np.random.default_rng(seed)
    for name, tensor in model.state_dict().items():
        if name.endswith("_variance"):
            values = random.uniform(0.5, 1.5, tensor.shape)
        elif tensor.ndim <= 1:
            values = random.normal(0.7 if name.endswith("weight") else 0.0, 0.3, tensor.shape)
        else:
            values = random.normal(0.0, 1.4 / np.sqrt(max(1, np.prod(tensor.shape[1:]))), tensor.shape)
        tensor.set_value(values.astype("float32"))


def images(number: int = 4, shape: list[int] = SHAPE, seed: int = 0) -> paddle.Tensor:
    values = np.random.default_rng(seed).standard_normal([number, *shape[1:]])
    return paddle.to_tensor(values.astype("float32"))


def outputs(model: nn.Layer, x: paddle.Tensor | None = None) -> np.ndarray:
    """What the network says in eval mode; its mode is left as it was."""
    modes = [(layer, layer.training) for layer in model.sublayers(include_self=True)]
    model.eval()
    with paddle.no_grad():
        result = model(images() if x is None else x).numpy()
    for layer, training in modes:
        layer.training = training
    return result


def train_step(model: nn.Layer, optimizer, x: paddle.Tensor, y: paddle.Tensor) -> float:
    """One step of classification training; returns the loss."""
    model.train()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    return float(loss)
