"""What lies between a filter and the layers that take its channels in: which units come out of it, and that they hold."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
import pytest
from networks import SHAPE, made
from paddle import nn
from states import assert_same, picture

from dysens import DygraphSensitivity
from dysens.groups import CONV_GROUPS, FREE, REARRANGED
from dysens.groups._candidates import EQUAL, SAME

# Of a group: its weight, how many channels that makes, how many units go one by one, and by which rule.
Expected = tuple[str, int, int, str]


def conv(inside: int, out: int, kernel: int = 1, **options) -> nn.Conv2D:
    return nn.Conv2D(inside, out, kernel, padding=kernel // 2, **options)


def shuffled(x: paddle.Tensor, blocks: int = 2) -> paddle.Tensor:
    n, c, h, w = x.shape
    return x.reshape([n, blocks, c // blocks, h, w]).transpose([0, 2, 1, 3, 4]).reshape([n, c, h, w])


class Split(nn.Layer):
    """Two halves with a consumer each: both must keep the same number, whichever."""

    def __init__(self):
        super().__init__()
        self.stem = conv(3, 8)
        self.left, self.right = conv(4, 2), conv(4, 2)

    def forward(self, x):
        left, right = paddle.split(F.relu(self.stem(x)), 2, axis=1)
        return self.left(left), self.right(right)


class Gate(nn.Layer):
    """A gated linear unit: channel i of one half meets channel i of the other, so they are one unit."""

    def __init__(self):
        super().__init__()
        self.stem = conv(3, 12)
        self.head = conv(6, 2)

    def forward(self, x):
        left, right = paddle.chunk(self.stem(x), 2, axis=1)
        return self.head(left * F.sigmoid(right))


class UnevenSplit(nn.Layer):
    """The widths are written into the code: nothing can go."""

    def __init__(self):
        super().__init__()
        self.stem = conv(3, 8)
        self.left, self.right = conv(2, 2), conv(6, 2)

    def forward(self, x):
        left, right = paddle.split(self.stem(x), [2, 6], axis=1)
        return self.left(left), self.right(right)


class Shuffle(nn.Layer):
    """A shuffle, then one consumer: as many as the code can shuffle stay, any of them, in its order."""

    def __init__(self, blocks: int = 2):
        super().__init__()
        self.stem, self.head = conv(3, 4 * blocks), conv(4 * blocks, 2)
        self.blocks = blocks

    def forward(self, x):
        return self.head(shuffled(F.relu(self.stem(x)), self.blocks))


class ShuffledBranches(nn.Layer):
    """Two sources behind each other, shuffled: both must lose the same number."""

    def __init__(self):
        super().__init__()
        self.left, self.right = conv(3, 6), conv(3, 6)
        self.head = conv(12, 2)

    def forward(self, x):
        return self.head(shuffled(paddle.concat([self.left(x), self.right(x)], axis=1)))


class ScaleBehindConcat(nn.Layer):
    """A bare scale along the channels of two sources: it is cut with each, and ties them to nothing."""

    def __init__(self):
        super().__init__()
        self.left, self.right = conv(3, 6), conv(3, 10)
        self.scale = self.create_parameter([1, 16, 1, 1])
        self.head = conv(16, 2)

    def forward(self, x):
        return self.head(paddle.concat([self.left(x), self.right(x)], axis=1) * self.scale)


class PixelShuffle(nn.Layer):
    """Four channels make one: they go together."""

    def __init__(self):
        super().__init__()
        self.expand = conv(3, 24)
        self.norm = nn.BatchNorm2D(6)
        self.head = conv(6, 2)

    def forward(self, x):
        return self.head(self.norm(F.pixel_shuffle(self.expand(x), 2)))


class ScaleBeforePixelShuffle(nn.Layer):
    """A bare scale of which four entries meet in one channel."""

    def __init__(self):
        super().__init__()
        self.expand = conv(3, 24)
        self.scale = self.create_parameter([24, 1, 1])
        self.head = conv(6, 2)

    def forward(self, x):
        return self.head(F.pixel_shuffle(self.expand(x) * self.scale, 2))


class PixelUnshuffle(nn.Layer):
    """One channel makes four."""

    def __init__(self):
        super().__init__()
        self.stem = conv(3, 5)
        self.head = conv(20, 2)

    def forward(self, x):
        return self.head(F.pixel_unshuffle(self.stem(x), 2))


class Recurrent(nn.Layer):
    """Rows of a feature map as the steps of a recurrent layer."""

    def __init__(self, kind=nn.LSTM, **options):
        super().__init__()
        self.stem = nn.Sequential(conv(3, 6), nn.BatchNorm2D(6), nn.ReLU())
        self.rnn = kind(6 * 16, 5, **options)
        self.head = nn.Linear(10 if options.get("direction") == "bidirect" else 5, 3)

    def forward(self, x):
        return self.head(self.rnn(self.stem(x).flatten(1, 2).transpose([0, 2, 1]))[0])


class FlattenLinear(nn.Layer):
    """Every channel fills a stretch of what the linear layer takes in (VGG, AlexNet)."""

    def __init__(self):
        super().__init__()
        self.stem = conv(3, 7)
        self.hidden, self.head = nn.Linear(7 * 16, 9), nn.Linear(9, 3)

    def forward(self, x):
        return self.head(F.relu(self.hidden(F.adaptive_avg_pool2d(F.relu(self.stem(x)), 4).flatten(1))))


class Transposed(nn.Layer):
    """A transposed convolution as consumer and as source, as in the head of DB."""

    def __init__(self, groups: int = 1):
        super().__init__()
        self.stem = conv(3, 8)
        self.up = nn.Conv2DTranspose(8, 12, 2, stride=2, groups=groups)
        self.norm = nn.BatchNorm2D(12)
        self.again = nn.Conv2DTranspose(12, 2, 2, stride=2)

    def forward(self, x):
        return self.again(F.relu(self.norm(self.up(F.relu(self.stem(x))))))


class Gated(nn.Layer):
    """An SE block: the channels that are scaled and those of the scales are the same."""

    def __init__(self):
        super().__init__()
        self.stem = conv(3, 8)
        self.squeeze, self.excite = nn.Linear(8, 3), nn.Linear(3, 8)
        self.head = conv(8, 2)

    def forward(self, x):
        x = F.relu(self.stem(x))
        gate = F.sigmoid(self.excite(F.relu(self.squeeze(x.mean(axis=[2, 3])))))
        return self.head(x * gate.unsqueeze([2, 3]))


class SpatialAttention(nn.Layer):
    """A map that scales all channels alike does not tie them together."""

    def __init__(self):
        super().__init__()
        self.stem, self.attention, self.head = conv(3, 8), conv(3, 1), conv(8, 2)

    def forward(self, x):
        return self.head(F.relu(self.stem(x)) * F.sigmoid(self.attention(x)))


class ScaledByInput(nn.Layer):
    """The picture itself scales all channels alike, and so does what a recurrent layer makes of it."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = conv(3, 8), conv(8, 2)
        self.rnn = nn.GRU(16, 1)

    def forward(self, x):
        gate = self.rnn(x.mean(axis=1))[0].mean(axis=1, keepdim=True).unsqueeze(3)
        return self.head(F.relu(self.stem(x)) * x.mean(axis=1, keepdim=True) * gate)


class AddedToInput(nn.Layer):
    """The picture is added channel by channel: those channels stay."""

    def __init__(self):
        super().__init__()
        self.stem, self.back, self.head = conv(3, 8), conv(8, 3), conv(3, 2)

    def forward(self, x):
        return self.head(x + self.back(F.relu(self.stem(x))))


class DepthwiseMultiplied(nn.Layer):
    """A grouped convolution with one input and two outputs a group: an input channel goes with both its outputs."""

    def __init__(self):
        super().__init__()
        self.stem = conv(3, 6)
        self.grouped = conv(6, 12, 3, groups=6)
        self.head = conv(12, 2)

    def forward(self, x):
        return self.head(F.relu(self.grouped(F.relu(self.stem(x)))))


CASES = [
    (Split, {}, [("stem.weight", 8, 8, EQUAL.format(2))]),
    (Gate, {}, [("stem.weight", 12, 6, FREE)]),
    (UnevenSplit, {}, []),
    (Shuffle, {}, [("stem.weight", 8, 8, REARRANGED.format(3))]),
    (Shuffle, {"blocks": 3}, [("stem.weight", 12, 12, REARRANGED.format(3))]),
    (ShuffledBranches, {}, [("left.weight", 6, 6, SAME.format(2))]),
    (ScaleBehindConcat, {}, [("left.weight", 6, 6, FREE), ("right.weight", 10, 10, FREE)]),
    (PixelShuffle, {}, [("expand.weight", 24, 6, FREE)]),
    (ScaleBeforePixelShuffle, {}, [("expand.weight", 24, 6, FREE)]),
    (PixelUnshuffle, {}, [("stem.weight", 5, 5, FREE)]),
    (Recurrent, {}, [("stem.0.weight", 6, 6, FREE)]),
    (Recurrent, {"kind": nn.GRU, "num_layers": 2, "direction": "bidirect"}, [("stem.0.weight", 6, 6, FREE)]),
    (Recurrent, {"kind": nn.SimpleRNN}, [("stem.0.weight", 6, 6, FREE)]),
    (FlattenLinear, {}, [("stem.weight", 7, 7, FREE)]),
    (Transposed, {}, [("stem.weight", 8, 8, FREE), ("up.weight", 12, 12, FREE)]),
    (Transposed, {"groups": 4}, [("stem.weight", 8, 4, CONV_GROUPS)]),
    (Gated, {}, [("stem.weight", 8, 8, FREE)]),
    (SpatialAttention, {}, [("stem.weight", 8, 8, FREE)]),
    (ScaledByInput, {}, [("stem.weight", 8, 8, FREE)]),
    (AddedToInput, {}, [("stem.weight", 8, 8, FREE)]),
    (DepthwiseMultiplied, {}, [("stem.weight", 6, 6, CONV_GROUPS)]),
]


@pytest.mark.parametrize(("network", "options", "expected"), CASES)
def test_units_of_structures(network, options, expected: list[Expected]):
    model = made(network, **options)
    before = picture(model)
    ds = DygraphSensitivity(model, SHAPE, criterion="l1")
    print(ds.groups, ds.unprunable, sep="\n")
    assert [(g.path, g.channels, g.size, g.rule) for g in ds.groups] == expected
    for ratio in (0.3, 0.6, 0.9) if expected else ():
        assert ds.verify({group.name: ratio for group in ds.groups}) < 1e-5
    assert_same(before, picture(model))


def test_what_is_added_to_the_input_is_told():
    ds = DygraphSensitivity(made(AddedToInput), SHAPE)
    assert ds.explain("back.weight").endswith("it is joined with the network's own input at layer 'head'.")
