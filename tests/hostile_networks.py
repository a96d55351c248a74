"""Random networks made of what has led tools astray: ways that depend on values or sizes, channels that meet in a maximum,
state that forwards write, weights that are not where they are used.

`HostileNet(seed)` is one of them, the same for the same seed. Nothing is left out because dysens cannot cut it.
"""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn


class Step(nn.Layer):
    """One step from some channels to some others, at the same size."""

    def __init__(self, inside: int, out: int, random: np.random.Generator) -> None:
        super().__init__()
        self.conv = nn.Conv2D(inside, out, 3, padding=1)
        self.out = out


class Plain(Step):
    def __init__(self, inside, out, random):
        super().__init__(inside, out, random)
        self.norm = nn.BatchNorm2D(out)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class Residual(Step):
    def __init__(self, inside, out, random):
        super().__init__(inside, out, random)
        self.again = nn.Conv2D(out, out, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.conv(x))
        return x + self.again(x)


class ValueBranch(Step):
    """Another layer for what is bright: told by `bool`, `float`, `item` or `numpy`."""

    def __init__(self, inside, out, random):
        super().__init__(inside, out, random)
        self.other = nn.Conv2D(inside, out, 1)
        self.threshold = float(random.uniform(-0.2, 0.6))
        self.told_by = str(random.choice(["bool", "float", "item", "numpy"]))

    def forward(self, x):
        mean = x.mean()
        bright = {
            "bool": lambda: bool(mean > self.threshold),
            "float": lambda: float(mean) > self.threshold,
            "item": lambda: mean.item() > self.threshold,
            "numpy": lambda: mean.numpy() > self.threshold,
        }[self.told_by]()
        return F.relu((self.other if bright else self.conv)(x))


class SizeBranch(Step):
    """Another layer for large pictures, or for large batches."""

    def __init__(self, inside, out, random):
        super().__init__(inside, out, random)
        self.other = nn.Conv2D(inside, out, 1)
        self.axis, self.limit = (2, int(random.choice([6, 10, 14]))) if random.random() < 0.6 else (0, 1)

    def forward(self, x):
        return F.relu((self.other if x.shape[self.axis] > self.limit else self.conv)(x))


class Meeting(Step):
    """A gate from what pooled channels have in common."""

    def __init__(self, inside, out, random):
        super().__init__(inside, out, random)
        self.gate = nn.Linear(1, out)
        self.how = str(random.choice(["max", "min", "topk", "sort", "norm", "mean"]))

    def forward(self, x):
        x = F.relu(self.conv(x))
        pooled = x.mean([2, 3])
        met = {
            "max": lambda: pooled.max(axis=1, keepdim=True),
            "min": lambda: pooled.min(axis=1, keepdim=True),
            "topk": lambda: paddle.topk(pooled, 2, axis=1)[0][:, 1:],
            "sort": lambda: paddle.sort(pooled, axis=1)[:, :1],
            "norm": lambda: paddle.linalg.norm(pooled, float("inf"), axis=1, keepdim=True),
            "mean": lambda: pooled.mean(axis=1, keepdim=True),
        }[self.how]()
        return x * F.sigmoid(self.gate(met * 5)).unsqueeze([2, 3])


class SpatialMax(Step):
    """The maximum over channels at every place, as a map."""

    def __init__(self, inside, out, random):
        super().__init__(inside, out, random)
        self.map = nn.Conv2D(1, 1, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.conv(x))
        return x * F.sigmoid(self.map(x.max(axis=1, keepdim=True)))


class Squeeze(Step):
    """A gate per channel, which can be cut."""

    def __init__(self, inside, out, random):
        super().__init__(inside, out, random)
        self.gate = nn.Linear(out, out)

    def forward(self, x):
        x = F.relu(self.conv(x))
        return x * F.sigmoid(self.gate(x.mean([2, 3]))).unsqueeze([2, 3])


class Buffers(Step):
    """An average and a counter, written in place; one of them matters."""

    def __init__(self, inside, out, random):
        super().__init__(inside, out, random)
        self.register_buffer("average", paddle.zeros([1]))
        self.register_buffer("calls", paddle.zeros([1], dtype="int64"))
        self.always, self.matters = random.random() < 0.5, random.random() < 0.5

    def forward(self, x):
        x = F.relu(self.conv(x))
        if self.training or self.always:
            with paddle.no_grad():
                self.average.set_value(0.9 * self.average + 0.1 * x.mean())
                self.calls.add_(paddle.ones([1], dtype="int64"))
        return x * (1 + self.average) if self.matters else x


class WeightNorm(Step):
    def __init__(self, inside, out, random):
        super().__init__(inside, out, random)
        nn.utils.weight_norm(self.conv)

    def forward(self, x):
        return F.relu(self.conv(x))


class SpectralNorm(Step):
    def __init__(self, inside, out, random):
        super().__init__(inside, out, random)
        nn.utils.spectral_norm(self.conv)

    def forward(self, x):
        return F.relu(self.conv(x))


class FunctionalWeight(Step):
    """A weight of its own, or that of a layer which never runs, given to a function."""

    def __init__(self, inside, out, random):
        super().__init__(inside, out, random)
        self.borrowed = bool(random.random() < 0.5)
        self.kernel = self.create_parameter([out, inside, 1, 1])
        self.scale = self.create_parameter([1, out, 1, 1], default_initializer=nn.initializer.Constant(0.7))

    def forward(self, x):
        weight = self.conv.weight if self.borrowed else self.kernel
        return F.relu(F.conv2d(x, weight, padding=weight.shape[2] // 2) * self.scale)


class Attribute(Step):
    """Plain numbers that matter: one that stays, one that counts calls."""

    def __init__(self, inside, out, random):
        super().__init__(inside, out, random)
        self.temperature, self.calls = 0.8, 0

    def forward(self, x):
        self.calls += 1
        return F.relu(self.conv(x)) * self.temperature


STEPS = (
    Plain,
    Residual,
    ValueBranch,
    SizeBranch,
    Meeting,
    SpatialMax,
    Squeeze,
    Buffers,
    WeightNorm,
    SpectralNorm,
    FunctionalWeight,
    Attribute,
)


class HostileNet(nn.Layer):
    """Two to four steps and a head; maybe one that helps in training, and maybe it writes into its input."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        random = np.random.default_rng(seed)
        paddle.seed(seed)
        width, steps = 3, []
        for _ in range(int(random.integers(2, 5))):
            out = int(random.choice([4, 6, 8, 12]))
            steps.append(STEPS[int(random.integers(len(STEPS)))](width, out, random))
            width = out
        self.steps = nn.LayerList(steps)
        self.head = nn.Conv2D(width, 5, 1)
        self.helper = nn.Conv2D(steps[0].out, 5, 1) if random.random() < 0.3 else None
        self.writes = bool(random.random() < 0.2)
        self.eval()

    def forward(self, x):
        if self.writes:
            x.scale_(0.5)
        helped = None
        for number, step in enumerate(self.steps):
            x = step(x)
            helped = x if number == 0 else helped
        found = self.head(x).mean([2, 3])
        if self.training and self.helper is not None:
            return found, self.helper(helped)
        return found

    def __str__(self) -> str:
        kinds = [f"{type(step).__name__}({step.out})" for step in self.steps]
        return " ".join(
            [*kinds, *(["helper"] if self.helper is not None else []), *(["writes"] if self.writes else [])]
        )
