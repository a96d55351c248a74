"""Small networks, and their exports."""

from __future__ import annotations

from pathlib import Path

import paddle
from paddle import nn
from paddle.static import InputSpec

from dysens.programs import uses_pir

PROGRAM = ".json" if uses_pir() else ".pdmodel"


class ConvNet(nn.Layer):
    """Convolutions with batch norm, a residual, a depthwise one, one with a bias, a transposed one, dropout."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.arguments = (width,)
        self.stem = nn.Sequential(
            nn.Conv2D(3, width, 3, padding=1, bias_attr=False), nn.BatchNorm2D(width), nn.ReLU()
        )
        self.deep = nn.Conv2D(width, width, 3, padding=1, groups=width)
        self.norm = nn.BatchNorm2D(width)
        self.point = nn.Conv2D(width, width, 1)
        self.up = nn.Conv2DTranspose(width, 6, 2, 2)
        self.drop = nn.Dropout(0.4)
        self.fc = nn.Linear(6 * 4, 5)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        y = self.stem(x)
        y = y + self.point(nn.functional.hardswish(self.norm(self.deep(y))))
        y = nn.functional.adaptive_avg_pool2d(self.up(y), 2)
        return self.fc(self.drop(y.flatten(1)))


class Reader(nn.Layer):
    """A small CRNN: convolution, LSTM in both directions, GRU, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2D(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2D(8)
        self.lstm = nn.LSTM(8, 6, 2, direction="bidirect")
        self.gru = nn.GRU(12, 5)
        self.fc = nn.Linear(5, 4)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        y = nn.functional.relu(self.norm(self.conv(x))).mean(2).transpose([0, 2, 1])
        return self.fc(self.gru(self.lstm(y)[0])[0])


def export(net: nn.Layer, prefix: Path, *shapes: list[int | None]) -> Path:
    """As users do it."""
    net.eval()
    spec = [InputSpec(shape, "float32", f"x{number}") for number, shape in enumerate(shapes)]
    paddle.jit.save(paddle.jit.to_static(net, input_spec=spec, full_graph=True), str(prefix))
    return prefix


def exported(net: nn.Layer, folder: Path, *shapes: list[int | None]) -> Path:
    """The same for a network that is to stay as it is: exporting leaves a static forward on it."""
    twin = type(net)(*getattr(net, "arguments", ()))
    twin.set_state_dict(net.state_dict())
    names = {path: tensor.name for path, tensor in net.state_dict().items()}
    for path, tensor in twin.state_dict().items():
        tensor.name = names[path]
    return export(twin, folder / "inference", *shapes)
