"""Random small networks for property tests: what people build, and what they should not.

A network is a list of `Block`s and a head, plain data that hypothesis draws, shrinks and prints. `RandomNet(spec)` builds
it; every spec builds, whatever widths and options were drawn. Nothing is left out because dysens cannot cut it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from paddle import nn

WIDTHS = (4, 6, 8, 12, 16)
ACTIVATIONS = (nn.ReLU, nn.Hardswish, nn.ReLU6, nn.Sigmoid, nn.LeakyReLU, nn.Identity)
LARGEST_SIDE = 16


def drawn(count: int) -> settings:
    """So many networks, the same ones in every run: what passes here passes on every machine.

    `make test-all` sets DYSENS_RANDOM_NETWORKS, and so many others are drawn anew each time.
    """
    many = int(os.environ.get("DYSENS_RANDOM_NETWORKS") or 0)
    return settings(
        max_examples=many or count,
        derandomize=not many,
        deadline=None,
        database=None,
        print_blob=True,
        phases=(Phase.explicit, Phase.generate),  # specs are short; shrinking them takes minutes
        suppress_health_check=list(HealthCheck),
    )


@dataclass(frozen=True)
class Block:
    """One step: what, how wide, in which variant, and for branches what is inside."""

    kind: str
    width: int = 8
    variant: int = 0
    inner: tuple[Block, ...] = ()


@dataclass(frozen=True)
class Spec:
    """A whole network."""

    blocks: tuple[Block, ...]
    head: str = "pool_linear"
    side: int = 8
    training: bool = False
    seed: int = 0


def conv(inside: int, out: int, kernel: int = 3, **options: Any) -> nn.Conv2D:
    return nn.Conv2D(inside, out, kernel, padding=kernel // 2, **options)


def divisor(*numbers: int) -> int:
    """The smallest number above 1 that divides all of these, or 1."""
    return next((d for d in (2, 3, 4) if all(n % d == 0 for n in numbers)), 1)


class ConvBNAct(nn.Sequential):
    def __init__(self, c: int, width: int, variant: int, **options: Any) -> None:
        kernel = 1 if variant % 2 else 3
        layers = [conv(c, width, kernel, bias_attr=None if variant % 3 else False, **options)]
        if variant % 4 != 3:
            layers.append(nn.BatchNorm2D(width))
        super().__init__(*layers, ACTIVATIONS[variant % len(ACTIVATIONS)]())


class Strided(ConvBNAct):
    def __init__(self, c: int, width: int, variant: int) -> None:
        super().__init__(c, width, variant, stride=2)


class Grouped(ConvBNAct):
    """A true grouped convolution; as many groups as fit, or one that is depthwise with several outputs a channel."""

    def __init__(self, c: int, width: int, variant: int) -> None:
        groups, width = (c, 2 * c) if variant == 7 else (divisor(c, width), width)
        super().__init__(c, width, variant, groups=groups)


class Depthwise(ConvBNAct):
    def __init__(self, c: int, width: int, variant: int) -> None:
        super().__init__(c, c, variant, groups=c)


class Residual(nn.Layer):
    """The body plus the input, projected where it has to be; plus, product or maximum."""

    def __init__(self, c: int, width: int, variant: int, body: nn.Layer, out: int) -> None:
        super().__init__()
        self.body = body
        self.short = conv(c, out, 1) if c != out else nn.Identity()
        self.how = variant % 4

    def forward(self, x):
        y, x = self.body(x), self.short(x)
        if self.how == 2:
            return x * F.sigmoid(y)
        if self.how == 3:
            return paddle.maximum(x, y)
        return F.relu(x + y)


class Concat(nn.Layer):
    """Two branches side by side, or the input beside a branch (dense nets)."""

    def __init__(self, c: int, width: int, variant: int, body: nn.Layer, out: int) -> None:
        super().__init__()
        self.body = body
        self.other = ConvBNAct(c, width, variant) if variant % 2 else nn.Identity()
        self.first = variant % 4 < 2

    def forward(self, x):
        parts = [self.body(x), self.other(x)]
        return paddle.concat(parts if self.first else parts[::-1], axis=1)


class Split(nn.Layer):
    """Chunk, treat one half, and put it back: with concat (ShuffleNet, C2f), sum or gate; or gate it as it is (GLU)."""

    def __init__(self, c: int, width: int, variant: int) -> None:
        super().__init__()
        c = c // 2
        self.conv = ConvBNAct(c, c, variant)
        self.how = variant % 5

    def forward(self, x):
        half = x.shape[1] // 2
        a, b = (
            (x[:, :half], x[:, half : 2 * half])
            if self.how == 1
            else paddle.chunk(x[:, : 2 * half], 2, axis=1)
        )
        if self.how == 4:
            return a * F.sigmoid(b)
        b = self.conv(b)
        if self.how == 2:
            return a + b
        return a * F.sigmoid(b) if self.how == 3 else paddle.concat([a, b], axis=1)


class Shuffle(nn.Layer):
    """Channel shuffle: interleaves the channels of two or three blocks."""

    def __init__(self, c: int, width: int, variant: int) -> None:
        super().__init__()
        self.groups = divisor(c)

    def forward(self, x):
        n, _, h, w = x.shape
        return x.reshape([n, self.groups, -1, h, w]).transpose([0, 2, 1, 3, 4]).reshape([n, -1, h, w])


class Squeeze(nn.Layer):
    """Squeeze and excitation, with convolutions or with linear layers."""

    def __init__(self, c: int, width: int, variant: int) -> None:
        super().__init__()
        self.linear = variant % 2 == 1
        make = nn.Linear if self.linear else (lambda i, o: conv(i, o, 1))
        self.down, self.up = make(c, max(2, c // 2)), make(max(2, c // 2), c)

    def forward(self, x):
        s = F.adaptive_avg_pool2d(x, 1)
        if self.linear:
            return x * F.sigmoid(self.up(F.relu(self.down(s.flatten(1))))).unsqueeze([2, 3])
        return x * F.hardsigmoid(self.up(F.relu(self.down(s))))


class SpatialGate(nn.Layer):
    """A map that scales all channels alike, from the channels or from their mean."""

    def __init__(self, c: int, width: int, variant: int) -> None:
        super().__init__()
        self.from_mean = variant % 2 == 1
        self.map = conv(1 if self.from_mean else c, 1)

    def forward(self, x):
        seen = x.mean(axis=1, keepdim=True) if self.from_mean else x
        return x * F.sigmoid(self.map(seen))


class Upsample(nn.Layer):
    def __init__(self, c: int, width: int, variant: int) -> None:
        super().__init__()
        self.mode = ("nearest", "bilinear")[variant % 2]

    def forward(self, x):
        return F.interpolate(x, scale_factor=2, mode=self.mode) if x.shape[2] < LARGEST_SIDE else x


class Transposed(nn.Layer):
    def __init__(self, c: int, width: int, variant: int) -> None:
        super().__init__()
        groups = divisor(c, width) if variant % 2 else 1
        self.up = nn.Conv2DTranspose(c, width, 2, stride=2, groups=groups)
        self.norm = nn.BatchNorm2D(width)

    def forward(self, x):
        return F.relu(self.norm(self.up(F.max_pool2d(x, 2) if x.shape[2] > 1 else x)))


class PixelShuffle(nn.Layer):
    def __init__(self, c: int, width: int, variant: int) -> None:
        super().__init__()
        self.expand = conv(c, 4 * 4, 1)

    def forward(self, x):
        return F.pixel_shuffle(self.expand(F.avg_pool2d(x, 2) if x.shape[2] > 1 else x), 2)


class Scale(nn.Layer):
    """Bare parameters: a scale along channels, an offset of another shape, or one number for all."""

    def __init__(self, c: int, width: int, variant: int) -> None:
        super().__init__()
        self.scale = self.create_parameter([1, 1, 1, 1] if variant % 4 == 3 else [1, c, 1, 1])
        self.offset = self.create_parameter([c, 1, 1] if variant % 2 else [1], is_bias=True)

    def forward(self, x):
        return x * self.scale + self.offset


class SharedTwice(nn.Layer):
    """One convolution called twice: one after the other, or on two paths that meet."""

    def __init__(self, c: int, width: int, variant: int) -> None:
        super().__init__()
        self.conv = ConvBNAct(c, c, variant)
        self.parallel = variant % 2 == 1

    def forward(self, x):
        if self.parallel:
            return self.conv(x) + self.conv(F.avg_pool2d(x, 3, stride=1, padding=1))
        return self.conv(self.conv(x))


class Tied(nn.Layer):
    """Two convolutions with one weight."""

    def __init__(self, c: int, width: int, variant: int) -> None:
        super().__init__()
        self.first = conv(c, c if variant % 2 else width, 1)
        self.second = conv(c, c if variant % 2 else width, 1)
        self.second.weight = self.first.weight
        self.chained = variant % 2 == 1

    def forward(self, x):
        if self.chained:
            return self.second(F.relu(self.first(x)))
        return paddle.concat([self.first(x), self.second(F.relu(x))], axis=1)


class Functional(nn.Layer):
    """A convolution, or a depthwise one, with a parameter that belongs to no convolution layer."""

    def __init__(self, c: int, width: int, variant: int) -> None:
        super().__init__()
        self.depthwise = variant % 2 == 1
        self.kernel = self.create_parameter([c, 1, 3, 3] if self.depthwise else [width, c, 1, 1])

    def forward(self, x):
        if self.depthwise:
            return F.conv2d(x, self.kernel, padding=1, groups=x.shape[1])
        return F.conv2d(x, self.kernel)


class ChannelLast(nn.Layer):
    """A linear layer over the last axis of a transposed map (ConvNeXt, MLP blocks)."""

    def __init__(self, c: int, width: int, variant: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(c) if variant % 3 == 2 else nn.Identity()
        self.linear = nn.Linear(c, width)

    def forward(self, x):
        return F.relu(self.linear(self.norm(x.transpose([0, 2, 3, 1])))).transpose([0, 3, 1, 2])


class Mixing(nn.Layer):
    """Operations that mix channels: nothing behind a filter can be cut through these."""

    def __init__(self, c: int, width: int, variant: int) -> None:
        super().__init__()
        self.how = variant % 5
        self.group_norm = nn.GroupNorm(divisor(c), c)
        self.attention = nn.Conv2D(2, 1, 3, padding=1)

    def forward(self, x):
        if self.how == 0:
            return F.softmax(x, axis=1)
        if self.how == 1:
            return self.group_norm(x)
        if self.how == 2:  # spatial attention
            seen = paddle.concat([x.mean(axis=1, keepdim=True), x.max(axis=1, keepdim=True)], axis=1)
            return x * F.sigmoid(self.attention(seen))
        if self.how == 3:
            return paddle.cumsum(x, axis=1)
        return x - x.mean(axis=1, keepdim=True)


class Normal(nn.Layer):
    """Norms and activations with weights of their own."""

    def __init__(self, c: int, width: int, variant: int) -> None:
        super().__init__()
        kinds = (nn.InstanceNorm2D, nn.BatchNorm, nn.BatchNorm2D)
        self.norm = nn.PReLU(c) if variant % 4 == 3 else kinds[variant % 4](c)
        self.act = nn.PReLU(1)

    def forward(self, x):
        return self.act(self.norm(x))


class Rearranged(nn.Layer):
    """Channels moved about, padded, repeated or partly dropped, without weights."""

    def __init__(self, c: int, width: int, variant: int) -> None:
        super().__init__()
        self.how = variant % 6

    def forward(self, x):
        half = x.shape[1] // 2
        if self.how == 0:
            return paddle.flip(x, axis=[1])
        if self.how == 1:
            return paddle.roll(x, 1, axis=1)
        if self.how == 2:
            return x[:, : x.shape[1] - 1]
        if self.how == 3:
            return paddle.concat([x, x], axis=1)
        if self.how == 4:
            return x[:, ::2]
        return paddle.concat([x[:, half:], F.relu(x[:, :half])], axis=1)


class Aside(nn.Layer):
    """A layer that never runs, and dropout."""

    def __init__(self, c: int, width: int, variant: int) -> None:
        super().__init__()
        self.unused = conv(c, width)
        self.dropout = nn.Dropout2D(0.3)

    def forward(self, x):
        return F.dropout(self.dropout(x), 0.2, training=self.training)


PLAIN = {"conv": ConvBNAct, "grouped": Grouped, "depthwise": Depthwise, "se": Squeeze, "scale": Scale}
BRANCHES = {"residual": Residual, "concat": Concat}
SINGLE = {
    **PLAIN,
    "strided": Strided,
    "split": Split,
    "shuffle": Shuffle,
    "spatial_gate": SpatialGate,
    "upsample": Upsample,
    "transposed": Transposed,
    "pixel_shuffle": PixelShuffle,
    "shared": SharedTwice,
    "tied": Tied,
    "functional": Functional,
    "channel_last": ChannelLast,
    "mixing": Mixing,
    "normal": Normal,
    "rearranged": Rearranged,
    "aside": Aside,
}
HEADS = ("pool_linear", "flatten_linear", "lstm", "gru", "dense", "dict")


class Head(nn.Layer):
    """Turns a feature map into what the network returns."""

    def __init__(self, kind: str, shape: list[int]) -> None:
        super().__init__()
        self.kind = kind
        _, c, h, w = shape
        if kind in ("lstm", "gru"):
            recurrent = nn.LSTM if kind == "lstm" else nn.GRU
            self.rnn = recurrent(c, 6, num_layers=2 if kind == "gru" else 1, direction="bidirect")
            self.fc = nn.Linear(12, 5)
        elif kind in ("dense", "dict"):
            self.out = conv(c, 3, 1)
            self.aux = conv(c, 2, 1)
        else:
            self.fc = nn.Linear(c * h * w if kind == "flatten_linear" else c, 5)

    def forward(self, x):
        if self.kind == "pool_linear":
            return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))
        if self.kind == "flatten_linear":
            return self.fc(x.flatten(1))
        if self.kind in ("lstm", "gru"):
            return self.fc(self.rnn(x.mean(axis=2).transpose([0, 2, 1]))[0])
        if self.kind == "dense":
            return self.out(x)
        return {"map": self.out(x), "none": None, "more": [F.sigmoid(self.aux(x)), 3]}


class RandomNet(nn.Layer):
    """The network that a spec describes, with weights that are not at their initial values."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        paddle.seed(spec.seed)
        shape = [1, 3, spec.side, spec.side]
        self.blocks = nn.LayerList()
        with paddle.no_grad():
            for block in (Block("conv", 8, spec.seed), *spec.blocks):
                layer = _built(block, shape[1])
                self.blocks.append(layer)
                shape = layer(paddle.zeros(shape)).shape
        self.head = Head(spec.head, shape)
        _set_weights(self, spec.seed)
        self.train() if spec.training else self.eval()

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def _built(block: Block, c: int) -> nn.Layer:
    if block.kind in BRANCHES:
        layers, out = [], c
        for inner in block.inner or (Block("conv", block.width),):
            layers.append(_built(inner, out))
            out = layers[-1](paddle.zeros([1, out, 4, 4])).shape[1]
        return BRANCHES[block.kind](c, block.width, block.variant, nn.Sequential(*layers), out)
    if c < 2:  # too narrow for anything that divides channels
        return ConvBNAct(c, block.width, block.variant)
    return SINGLE[block.kind](c, block.width, block.variant)


def _set_weights(model: nn.Layer, seed: int) -> None:
    """Biases, scales and statistics that are neither 0 nor 1, so that a channel that is left out is missed."""
    random = np.random.default_rng(seed)
    for name, tensor in model.state_dict().items():
        if name.endswith("_variance"):
            values = random.uniform(0.5, 1.5, tensor.shape)
        elif tensor.ndim <= 1 or "scale" in name:
            values = random.normal(0.6 if "weight" in name or "scale" in name else 0.0, 0.3, tensor.shape)
        else:
            values = random.normal(0.0, 1.4 / np.sqrt(max(1, np.prod(tensor.shape[1:]))), tensor.shape)
        tensor.set_value(values.astype("float32"))


def blocks(kinds: tuple[str, ...]) -> st.SearchStrategy[Block]:
    single = st.builds(Block, st.sampled_from(kinds), st.sampled_from(WIDTHS), st.integers(0, 7), st.just(()))
    inside = st.lists(
        st.builds(
            Block, st.sampled_from(tuple(PLAIN)), st.sampled_from(WIDTHS), st.integers(0, 7), st.just(())
        ),
        min_size=1,
        max_size=2,
    ).map(tuple)
    branch = st.builds(
        Block, st.sampled_from(tuple(BRANCHES)), st.sampled_from(WIDTHS), st.integers(0, 7), inside
    )
    return st.one_of(single, branch)


def specs(kinds: tuple[str, ...] = tuple(SINGLE), heads: tuple[str, ...] = HEADS) -> st.SearchStrategy[Spec]:
    """Networks of two to five blocks."""
    return st.builds(
        Spec,
        st.lists(blocks(kinds), min_size=2, max_size=5).map(tuple),
        st.sampled_from(heads),
        st.just(8),
        st.booleans(),
        st.integers(0, 5),
    )
