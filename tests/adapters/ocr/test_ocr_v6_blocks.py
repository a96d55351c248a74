"""Blocks like those of PP-OCRv6's backbone and neck, as networks of our own: what a checkout builds of them can be cut."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn

from dysens import DygraphSensitivity


class Conv(nn.Sequential):
    """A convolution with its batch norm."""

    def __init__(
        self, inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1, dilation: int = 1
    ) -> None:
        padding = dilation * (size - 1) // 2
        conv = nn.Conv2D(
            inputs, outputs, size, stride, padding, dilation=dilation, groups=groups, bias_attr=False
        )
        super().__init__(conv, nn.BatchNorm2D(outputs))


class DilatedBranches(nn.Layer):
    """A large depthwise kernel beside smaller ones that are dilated to its size; `rep` fuses all of them into one 7x7."""

    BRANCHES = ((5, 1), (3, 2), (3, 3))

    def __init__(self, width: int) -> None:
        super().__init__()
        self.large = Conv(width, width, 7, groups=width)
        self.small = nn.LayerList(
            [Conv(width, width, size, groups=width, dilation=step) for size, step in self.BRANCHES]
        )
        self.fused: nn.Layer | None = None
        self.width = width

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        if self.fused is not None:
            return self.fused(x)
        return self.large(x) + sum(branch(x) for branch in self.small)

    def rep(self) -> None:
        """Fuse the branches."""
        kernel, bias = self._of(self.large)
        for branch, (size, step) in zip(self.small, self.BRANCHES):
            own, shift = self._of(branch)
            wide = np.zeros_like(kernel)
            first = (7 - (step * (size - 1) + 1)) // 2
            wide[:, :, first : 7 - first : step, first : 7 - first : step] = own
            kernel, bias = kernel + wide, bias + shift
        width = kernel.shape[0]
        self.fused = nn.Conv2D(width, width, 7, padding=3, groups=width)
        self.fused.weight.set_value(kernel)
        self.fused.bias.set_value(bias)

    @staticmethod
    def _of(branch: nn.Layer) -> tuple[np.ndarray, np.ndarray]:
        conv, norm = branch[0], branch[1]
        scale = norm.weight.numpy() / np.sqrt(norm._variance.numpy() + norm._epsilon)
        return conv.weight.numpy() * scale[
            :, None, None, None
        ], norm.bias.numpy() - norm._mean.numpy() * scale


class Block(nn.Layer):
    """A token mixer (depthwise, with squeeze and excitation) and a channel mixer around which the input is added."""

    def __init__(self, width: int, large: bool) -> None:
        super().__init__()
        self.token_mixer = DilatedBranches(width) if large else Conv(width, width, 3, groups=width)
        self.squeeze = nn.Conv2D(width, width // 4, 1)
        self.excite = nn.Conv2D(width // 4, width, 1)
        self.expand = Conv(width, 2 * width, 1)
        self.project = Conv(2 * width, width, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = self.token_mixer(x)
        gate = nn.functional.relu(self.squeeze(x.mean([2, 3], keepdim=True)))
        x = x * nn.functional.hardsigmoid(self.excite(gate))
        return x + self.project(nn.functional.gelu(self.expand(x)))


class Network(nn.Layer):
    """A stem, stages of blocks, a neck with a large kernel, and a head that runs in training only."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Conv(3, 16, 3, 2)
        self.first = nn.Sequential(Block(16, False), Block(16, True))
        self.down = Conv(16, 24, 3, 2)
        self.second = nn.Sequential(Block(24, True), Block(24, False))
        self.lateral = nn.Conv2D(16, 24, 1)
        self.neck = DilatedBranches(24)
        self.head = nn.Conv2D(24, 1, 1)
        self.guide = nn.Sequential(nn.Conv2D(24, 12, 3, padding=1), nn.ReLU(), nn.Conv2D(12, 1, 1))

    def forward(self, x: paddle.Tensor) -> dict[str, paddle.Tensor]:
        high = self.first(nn.functional.relu(self.stem(x)))
        low = self.second(nn.functional.relu(self.down(high)))
        joined = self.lateral(high) + nn.functional.interpolate(low, scale_factor=2)
        joined = self.neck(joined)
        maps = {"maps": nn.functional.sigmoid(self.head(joined))}
        if self.training:
            maps["guide"] = self.guide(joined)
        return maps


@pytest.fixture
def network() -> Network:
    paddle.seed(3)
    built = Network()
    built.train()
    for _ in range(2):  # batch norms that have seen data
        built(paddle.randn([2, 3, 64, 64]))
    built.eval()
    return built


@pytest.mark.parametrize("fused", [False, True])
def test_every_width_can_be_cut(network: Network, fused: bool) -> None:
    if fused:
        whole = network(paddle.ones([1, 3, 64, 64]))["maps"].numpy()
        for layer in network.sublayers():
            if isinstance(layer, DilatedBranches):
                layer.rep()
                layer.large = layer.small = None
        np.testing.assert_allclose(network(paddle.ones([1, 3, 64, 64]))["maps"].numpy(), whole, atol=1e-5)
    ds = DygraphSensitivity(network, [1, 3, 64, 64], train_inputs=[2, 3, 64, 64])
    layers = {layer for group in ds.groups for layer in group.layers}
    # Channels of both stages, what the mixers expand to, the gates, and the head that only training runs.
    for wanted in ("stem.0", "down.0", "first.0.expand.0", "second.1.expand.0", "first.1.squeeze", "guide.0"):
        assert wanted in layers, wanted
    ratios = {group.path: 0.25 for group in ds.groups}
    assert ds.verify(ratios) < 1e-3
    before = sum(parameter.size for parameter in network.parameters())
    ds.prune_vars(ratios)
    assert sum(parameter.size for parameter in network.parameters()) < 0.8 * before
    network.train()
    outputs = network(paddle.randn([2, 3, 64, 64]))
    (outputs["maps"].mean() + outputs["guide"].mean()).backward()
    assert network.stem[0].weight.grad is not None


def test_branches_fuse_after_a_cut_as_before(network: Network) -> None:
    ds = DygraphSensitivity(network, [1, 3, 64, 64])
    ds.prune_vars({group.path: 0.25 for group in ds.groups})
    network.eval()
    image = paddle.ones([1, 3, 64, 64])
    expected = network(image)["maps"].numpy()
    for layer in network.sublayers():
        if isinstance(layer, DilatedBranches):
            layer.rep()
    np.testing.assert_allclose(network(image)["maps"].numpy(), expected, atol=1e-5)
