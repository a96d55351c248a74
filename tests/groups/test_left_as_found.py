"""The analysis leaves the model, and the examples that it was given, as they were: bit for bit."""

from __future__ import annotations

from argparse import Namespace
from collections import deque
from types import SimpleNamespace

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

from dysens import DygraphSensitivity

SHAPE = [2, 3, 8, 8]


class Average(nn.Layer):
    """Keeps an average of what passes, in training only or always, in a buffer that it writes in place."""

    def __init__(self, always: bool):
        super().__init__()
        self.register_buffer("mean", paddle.zeros([1]))
        self.register_buffer("calls", paddle.zeros([1], dtype="int64"), persistable=False)
        self.always = always

    def forward(self, x):
        if self.training or self.always:
            with paddle.no_grad():
                self.mean.set_value(0.9 * self.mean + 0.1 * x.mean())
                self.calls.add_(paddle.ones([1], dtype="int64"))
        return x * (1 + self.mean)


class Memory(nn.Layer):
    """Collects tensors in plain containers, and writes into one of them."""

    def __init__(self):
        super().__init__()
        self.bank = [paddle.zeros([4])]
        self.last = {}
        self.seen = 0

    def forward(self, x):
        self.bank[0].add_(paddle.ones([4]))
        self.bank.append(x.mean())
        self.last["shape"] = list(x.shape)
        self.seen += 1
        return x


class Clipping(nn.Layer):
    """Clips its own weight at every call."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(8, 8, 3, padding=1)

    def forward(self, x):
        with paddle.no_grad():
            self.conv.weight.set_value(self.conv.weight.clip(-0.05, 0.05))
        return self.conv(x)


class OwnNorm(nn.Layer):
    """Batch statistics in buffers of its own, updated by the function."""

    def __init__(self):
        super().__init__()
        self.register_buffer("average", paddle.zeros([8]))
        self.register_buffer("variance", paddle.ones([8]))

    def forward(self, x):
        return F.batch_norm(x, self.average, self.variance, training=self.training)


INSIDE = {
    "spectral norm": lambda: nn.utils.spectral_norm(nn.Conv2D(8, 8, 3, padding=1)),
    "weight norm": lambda: nn.utils.weight_norm(nn.Conv2D(8, 8, 3, padding=1)),
    "spectral norm layer": lambda: Spectral(),
    "batch norm": lambda: nn.BatchNorm2D(8),
    "own batch norm": OwnNorm,
    "average in training": lambda: Average(always=False),
    "average always": lambda: Average(always=True),
    "containers": Memory,
    "clipping": Clipping,
}


class Spectral(nn.Layer):
    """Paddle's layer that divides a weight by its norm."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(8, 8, 3, padding=1)
        self.norm = nn.SpectralNorm(self.conv.weight.shape)

    def forward(self, x):
        return F.conv2d(x, self.norm(self.conv.weight), self.conv.bias, padding=1)


def picture(model: nn.Layer) -> dict[str, object]:
    """Everything that the model holds, in tensors and in plain attributes."""
    found: dict[str, object] = {}
    for path, layer in model.named_sublayers(include_self=True):
        for name, tensor in {**layer._parameters, **layer._buffers}.items():
            if tensor is not None:
                found[f"{path}.{name}"] = tensor.numpy().tobytes()
        for name in ("bank", "last", "seen", "training"):
            value = layer.__dict__.get(name)
            if isinstance(value, list):
                value = [each.numpy().tolist() for each in value]
            found[f"{path}.{name}"] = dict(value) if isinstance(value, dict) else value
    return found


def network(inside: str) -> nn.Layer:
    paddle.seed(1)
    model = nn.Sequential(
        nn.Conv2D(3, 8, 3, padding=1),
        INSIDE[inside](),
        nn.ReLU(),
        nn.Conv2D(8, 6, 1),
        nn.ReLU(),
        nn.Conv2D(6, 4, 1),
    )
    model(paddle.randn(SHAPE))
    model.eval()
    return model


@pytest.mark.parametrize("training", [False, True], ids=["eval", "with train_inputs"])
@pytest.mark.parametrize("inside", INSIDE)
def test_analysis_sweep_and_proof(inside, training):
    model = network(inside)
    x = paddle.randn(SHAPE)
    before = picture(model)
    ds = DygraphSensitivity(model, SHAPE, train_inputs=SHAPE if training else None)
    assert picture(model) == before
    assert ds.groups
    ratios = {ds.groups[-1].name: 0.5}
    ds.verify(ratios)
    ds.costs()
    assert picture(model) == before

    def closeness() -> float:
        model.train()
        with paddle.no_grad():
            return 1 / (1 + float((model(x) ** 2).mean()))

    ds.sensitive(closeness, ratios=[0.5], progress=False)
    assert picture(model) == before
    ds.prune_vars(ratios)
    model(x)
    ds.restore()
    assert picture(model) == before


@pytest.mark.parametrize("training", [False, True], ids=["eval", "training"])
def test_a_forward_that_writes_into_its_input(training):
    class InPlace(nn.Layer):
        def __init__(self):
            super().__init__()
            self.stem, self.head = nn.Conv2D(3, 8, 3), nn.Conv2D(8, 4, 1)

        def forward(self, batch):
            batch["image"].scale_(0.5)
            batch["image"][:, 0] = 1.0
            batch["done"] = True
            return self.head(F.relu(self.stem(batch["image"])))

    model = InPlace()
    model.eval()
    batch = {"image": paddle.randn([1, 3, 16, 16]), "mean": np.zeros([1], "float32")}
    values = batch["image"].numpy().copy()
    ds = DygraphSensitivity(model, batch, train_inputs=batch if training else None)
    assert [group.path for group in ds.groups] == ["stem.weight"]
    ds.verify({"stem.weight": 0.5})
    ds.prune_vars({"stem.weight": 0.5})
    assert np.array_equal(batch["image"].numpy(), values)
    assert set(batch) == {"image", "mean"}


class Helped(nn.Layer):
    """Segmentation in the manner of BiSeNet: an auxiliary head that runs in training only."""

    def __init__(self, returns_features: bool = False):
        super().__init__()
        self.stem, self.body = nn.Conv2D(3, 8, 3, padding=1), nn.Conv2D(8, 6, 3, padding=1)
        self.norm = nn.BatchNorm2D(8)
        self.head, self.helper = nn.Conv2D(6, 4, 1), nn.Conv2D(8, 4, 1)
        self.returns_features = returns_features

    def forward(self, x, labels=None):
        early = F.relu(self.norm(self.stem(x)))
        found = self.head(F.relu(self.body(early)))
        if not self.training:
            return found
        if self.returns_features:
            return found, early
        return found, self.helper(early)


@pytest.mark.parametrize("features", [False, True])
def test_an_auxiliary_head_survives_a_cut_without_train_inputs(features):
    model = Helped(features)
    model.eval()
    ds = DygraphSensitivity(model, [1, 3, 16, 16])
    assert [group.path for group in ds.groups] == ["stem.weight", "body.weight"]
    outcome = ds.prune_vars({group.name: 0.5 for group in ds.groups})
    assert not outcome.untried
    model.train()
    model(paddle.randn([2, 3, 16, 16]))


def test_a_training_forward_that_needs_more_is_said_not_to_be_tried():
    class Needy(Helped):
        def forward(self, x, labels=None):
            found = super().forward(x)
            return found if not self.training else F.mse_loss(found[0], labels)

    model = Needy()
    model.eval()
    ds = DygraphSensitivity(model, [1, 3, 16, 16])
    outcome = ds.prune_vars({"body.weight": 0.5})
    assert "The training forward was not tried" in outcome.untried
    assert "train_inputs" in str(outcome)
    ds.restore()
    tried = DygraphSensitivity(
        model, [1, 3, 16, 16], train_inputs=(paddle.randn([1, 3, 16, 16]), paddle.randn([1, 4, 16, 16]))
    )
    assert not tried.prune_vars({"body.weight": 0.5}).untried


class Noting(nn.Layer):
    """Writes down, wherever it can, that it was called."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Conv2D(3, 6, 3), nn.Conv2D(6, 2, 1)
        self.notes = {"calls": [[], {"deep": [0]}], "last": (deque(), set())}
        self.bag = SimpleNamespace(calls=0, inner=Namespace(names=[]))
        self.table = np.zeros(3)
        self.tensors = [[paddle.zeros([1])]]

    def forward(self, x):
        calls = self.notes["calls"]
        calls[0].append(x.shape[0])
        calls[1]["deep"][0] += 1
        self.notes["last"][0].append(1)
        self.notes["last"][1].add(calls[1]["deep"][0])
        self.bag.calls += 1
        self.bag.inner.names.append("x")
        self.table += 1
        self.tensors[0][0].add_(paddle.ones([1]))
        return self.head(self.stem(x))

    def everything(self):
        values = (self.notes, vars(self.bag)["calls"], self.bag.inner.names, self.table, self.tensors)
        return repr(values)


def test_what_a_forward_notes_in_nested_containers():
    model = Noting()
    before = model.everything()
    ds = DygraphSensitivity(model, [1, 3, 8, 8])
    assert len(ds.groups) == 1
    assert model.everything() == before
    x = paddle.ones([1, 3, 8, 8])
    ds.sensitive(lambda: 1 / (1 + float(model(x).abs().mean())), [0.5], progress=False)
    assert model.everything() == before
