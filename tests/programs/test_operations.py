"""Networks with many kinds of operations: imported, trained a step, written back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.nn import functional as F
from paddle.static import InputSpec
from paddle.vision.ops import DeformConv2D

from dysens import DygraphSensitivity
from dysens.model import in_double_precision
from dysens.programs import ProgramLayer, load_inference, save_inference


class Made(nn.Layer):
    """Layers, and what is done with them."""

    def __init__(self, run: Callable[..., paddle.Tensor], **layers: nn.Layer) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_sublayer(name, layer)
        self.run = run

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.run(self, x)


def norms() -> nn.Layer:
    return Made(
        lambda s, x: s.last(F.gelu(s.layer(s.prelu(s.group(s.instance(s.conv(x)))).flatten(2)))),
        conv=nn.Conv2D(3, 8, 3, padding=1),
        instance=nn.InstanceNorm2D(8),
        group=nn.GroupNorm(2, 8),
        prelu=nn.PReLU(8),
        layer=nn.LayerNorm(64),
        last=nn.Linear(64, 4),
    )


def attention() -> nn.Layer:
    def run(s: nn.Layer, x: paddle.Tensor) -> paddle.Tensor:
        y = s.conv(x).flatten(2).transpose([0, 2, 1])
        return s.block(y).mean(1)

    return Made(run, conv=nn.Conv2D(3, 8, 4, 4), block=nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1))


def shapes() -> nn.Layer:
    def run(s: nn.Layer, x: paddle.Tensor) -> paddle.Tensor:
        y = s.conv(x)
        a, b = paddle.split(y, 2, axis=1)
        y = paddle.concat([a * F.sigmoid(b), y[:, 2:6]], axis=1)
        y = F.interpolate(F.pixel_shuffle(y, 2), size=x.shape[2:], mode="bilinear")
        n, c, h, w = y.shape
        return s.last(paddle.stack([y, y], axis=1).reshape([n, 2 * c, h, w])).max(axis=[2, 3])

    return Made(run, conv=nn.Conv2D(3, 8, 3, padding=1), last=nn.Conv2D(4, 3, 1))


def deformed() -> nn.Layer:
    def run(s: nn.Layer, x: paddle.Tensor) -> paddle.Tensor:
        y = s.first(x)
        return s.last(s.deform(y, s.offset(y)))

    return Made(
        run,
        first=nn.Conv2D(3, 8, 3, padding=1),
        offset=nn.Conv2D(8, 18, 3, padding=1),
        deform=DeformConv2D(8, 8, 3, padding=1, bias_attr=False),
        last=nn.Conv2D(8, 2, 1),
    )


def other_dimensions() -> nn.Layer:
    def run(s: nn.Layer, x: paddle.Tensor) -> paddle.Tensor:
        y = s.one(x.flatten(2))
        return s.last(s.three(y.reshape([-1, 8, 4, 4, 4])).flatten(1))

    return Made(run, one=nn.Conv1D(3, 8, 3, padding=1), three=nn.Conv3D(8, 4, 3), last=nn.Linear(32, 2))


def last_channels() -> nn.Layer:
    layout = "NHWC"
    return Made(
        lambda s, x: s.second(F.relu(s.norm(s.first(x.transpose([0, 2, 3, 1]))))).mean([1, 2]),
        first=nn.Conv2D(3, 8, 3, data_format=layout),
        norm=nn.BatchNorm2D(8, data_format=layout),
        second=nn.Conv2D(8, 4, 1, data_format=layout),
    )


@pytest.mark.parametrize("make", [norms, attention, shapes, deformed, other_dimensions, last_channels])
def test_a_network_of(make: Callable[[], nn.Layer], tmp_path: Path) -> None:
    paddle.seed(0)
    network = make()
    network.eval()
    spec = [InputSpec([None, 3, 8, 8], "float32", "x")]
    paddle.jit.save(
        paddle.jit.to_static(network, input_spec=spec, full_graph=True), str(tmp_path / "inference")
    )
    model = load_inference(tmp_path)
    ds = DygraphSensitivity(model, [2, 3, 8, 8], layers="all" if make is other_dimensions else "filters")
    ds.prune_vars({group.name: 0.25 for group in ds.groups})
    assert save_inference(model, tmp_path / "small").difference < 1e-4
    trained(model)


def trained(model: ProgramLayer) -> None:
    model.train()
    parameters = [each for each in model.parameters() if not each.stop_gradient]
    x = paddle.to_tensor(np.random.default_rng(0).uniform(-1, 1, (2, 3, 8, 8)).astype("float32"))
    (model(x) ** 2).mean().backward()
    assert [each.name for each in parameters if each.grad is None] == []


def test_whole_numbers_as_input(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 4))
    network.eval()
    spec = [InputSpec([None, 6], "int64", "words")]
    paddle.jit.save(
        paddle.jit.to_static(network, input_spec=spec, full_graph=True), str(tmp_path / "inference")
    )
    model = load_inference(tmp_path)
    assert save_inference(model, tmp_path / "again").difference < 1e-6
    words = paddle.to_tensor(np.arange(12).reshape(2, 6))
    np.testing.assert_allclose(model(words).numpy(), network(words).numpy(), atol=1e-6)


CHOSEN = [1, 0, 2]


@pytest.mark.parametrize(
    "run",
    [
        lambda y: y.argmax(1),
        lambda y: y.argmin(1, keepdim=True),
        lambda y: y.argmax(),
        lambda y: y.argmax(1, dtype="int32"),
        lambda y: paddle.logsumexp(y, 1),
        lambda y: y.index_select(paddle.to_tensor(CHOSEN), 1),
        lambda y: y * paddle.to_tensor([0.5, 1.5]).reshape([1, 2, 1, 1]).tile([1, 4, 1, 1]),
        lambda y: y[:, :1].expand_as(y) + y,
    ],
)
def test_an_operation_that_is_called_in_a_form_of_its_own(run: Callable[..., Any], tmp_path: Path) -> None:
    """As this Paddle's eager functions take it, not as the program has it."""
    paddle.seed(0)
    network = Made(
        lambda s, x: run(s.second(s.first(x))), first=nn.Conv2D(3, 4, 3), second=nn.Conv2D(4, 8, 3)
    )
    network.eval()
    spec = [InputSpec([None, 3, 8, 8], "float32", "x")]
    paddle.jit.save(
        paddle.jit.to_static(network, input_spec=spec, full_graph=True), str(tmp_path / "inference")
    )
    model = load_inference(tmp_path)
    ds = DygraphSensitivity(model, [2, 3, 8, 8])
    ds.prune_vars({group.name: 0.5 for group in ds.groups})
    assert [p.shape[0] for p in model.parameters() if p.ndim == 4] == [2, 8]
    assert save_inference(model, tmp_path / "small").difference < 1e-4


def test_in_double_precision(tmp_path: Path) -> None:
    """Numbers that a program holds follow: so the proof can tell rounding from a wrong cut where boxes are picked by score."""

    def run(s: Any, x: paddle.Tensor) -> paddle.Tensor:
        y = s.conv(x).flatten(2)
        places = paddle.arange(36, dtype="float32") + paddle.full([1], 0.5)
        return y * places + paddle.to_tensor([0.25, 0.75]).sum() + (y > 0).astype("float32")

    network = Made(run, conv=nn.Conv2D(3, 4, 3))
    network.eval()
    spec = [InputSpec([None, 3, 8, 8], "float32", "x")]
    paddle.jit.save(
        paddle.jit.to_static(network, input_spec=spec, full_graph=True), str(tmp_path / "inference")
    )
    model = load_inference(tmp_path)
    x = paddle.to_tensor(np.random.default_rng(0).uniform(-1, 1, (2, 3, 8, 8)).astype("float32"))
    expected = network(x).numpy()
    with in_double_precision(model):
        found = model(x.astype("float64"))
    assert found.dtype == paddle.float64
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-4)
    assert model(x).dtype == paddle.float32
