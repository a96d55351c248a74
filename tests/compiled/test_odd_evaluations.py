"""Evaluations that do more than call the model and look at its outputs: the losses are those of really cut models."""

from __future__ import annotations

import copy

import numpy as np
import paddle
import pytest
from test_outer_values import cut_losses
from test_trust import RATIOS, SHAPE, Closeness, Net, batches, losses, made, toys_are_compiled, warnings_of

from dysens import DygraphSensitivity
from dysens.evaluators import evaluate

__all__ = ["toys_are_compiled"]

DATA = batches(*[(2, 12)] * 4)


def assert_as_cut(model, score, fast, truth_score=None):
    ds = DygraphSensitivity(model, SHAPE)
    truth = cut_losses(ds, truth_score or score)
    found = ds.sensitive(score, RATIOS, progress=False, fast=fast)
    np.testing.assert_allclose(losses(found), truth, atol=1e-4)
    assert np.abs(truth).max() > 0.02


class WritingIntoBatches(Closeness):
    def measure(self, outputs, batch):
        batch[0].set_value(batch[0] * 0.5)
        return super().measure(outputs, batch)


class WritingIntoArguments(Closeness):
    def arguments(self, batch):
        batch[0].set_value(batch[0] * 0.5)
        return (batch[0],)

    def measure(self, outputs, batch):
        return super().measure(outputs, batch) * (1 + float(batch[0].abs().mean()))


class WritingIntoOutputs(Closeness):
    def measure(self, outputs, batch):
        outputs[outputs < 0] = 0.0
        return super().measure(outputs, batch)


class KeepingOutputs(Closeness):
    """Measures nothing until the end: what a copy returned must not be overwritten by its next call."""

    def measure(self, outputs, batch):
        return outputs

    def score(self, measurements):
        return 1 / (1 + sum(float(o.square().mean()) * (i + 1) for i, o in enumerate(measurements)))


@pytest.mark.parametrize("fast", ["off", "auto"])
@pytest.mark.parametrize(
    "kind", [WritingIntoBatches, WritingIntoArguments, WritingIntoOutputs, KeepingOutputs]
)
def test_evaluators(kind, fast):
    model = made(Net)

    def once():
        return evaluate(model, kind([x.clone() for x in DATA]))

    given = [x.clone() for x in DATA]
    assert_as_cut(model, kind(given), fast, once)
    for mine, before in zip(given, DATA):
        np.testing.assert_array_equal(mine.numpy(), before.numpy())


class Unbatched(Net):
    """Takes one picture without a batch, too."""

    def forward(self, x):
        return super().forward(x.unsqueeze(0) * 0.5 if x.ndim == 3 else x)


def test_pictures_without_a_batch():
    """Put together along the first axis, they would be a picture with more channels."""
    model = made(Unbatched)
    evaluator = Closeness([DATA[0], DATA[1][0], DATA[2], DATA[3][0], DATA[1][1]])
    assert_as_cut(model, evaluator, "auto", lambda: evaluate(model, evaluator))


def of_a_copy(model):
    other = copy.deepcopy(model)
    return sum(float(other(x).square().mean()) for x in DATA)


def of_an_export(model, folder):
    spec = [paddle.static.InputSpec([None, 3, 12, 12], "float32")]
    paddle.jit.save(paddle.jit.to_static(model, input_spec=spec, full_graph=True), str(folder / "net"))
    exported = paddle.jit.load(str(folder / "net"))
    return sum(float(exported(x).square().mean()) for x in DATA)


def of_its_class(model):
    return sum(float(type(model).forward(model, x).square().mean()) for x in DATA)


@pytest.mark.parametrize("fast", ["off", "auto"])
@pytest.mark.parametrize("how", [of_a_copy, of_an_export, of_its_class])
def test_functions_that_take_the_model_elsewhere(how, fast, tmp_path):
    model = made(Net)

    def score():
        with paddle.no_grad():
            return 1 / (1 + (how(model, tmp_path) if how is of_an_export else how(model)))

    assert_as_cut(model, score, fast)


LEFT = {}


class LeavingOutside(Net):
    def forward(self, x):
        LEFT["last"] = super().forward(x)
        return LEFT["last"] * 2


class LeavingInAList(Net):
    def __init__(self):
        super().__init__()
        self.last = []

    def forward(self, x):
        self.last.clear()
        self.last.append(super().forward(x))
        return self.last[0] * 2


@pytest.mark.parametrize("network", [LeavingOutside, LeavingInAList])
def test_what_a_forward_leaves_in_containers_is_there(network, caplog):
    model = made(network)

    def score():
        total = 0.0
        with paddle.no_grad():
            for x in DATA:
                model(x)
                total += float((LEFT["last"] if network is LeavingOutside else model.last[0]).square().mean())
        return 1 / (1 + total)

    assert_as_cut(model, score, "auto")
    assert "leaves tensors in" in caplog.text


class Table(Net):
    """Computes something once, and keeps it."""

    def __init__(self):
        super().__init__()
        self.known = {}

    def between(self, x, h):
        if x.shape[3] not in self.known:
            self.known[x.shape[3]] = paddle.arange(x.shape[3]).astype("float32") * 0.1
        return h * self.known[x.shape[3]]


def test_a_cache_is_no_obstacle(caplog):
    model = made(Table)
    evaluator = Closeness(DATA)
    assert_as_cut(model, evaluator, "auto", lambda: evaluate(model, evaluator))
    assert not [line for line in warnings_of(caplog) if "leaves tensors" in line]


class Averaging(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("average", paddle.zeros([1]))

    def between(self, x, h):
        self.average.set_value(0.9 * self.average + 0.1 * x.mean())
        return h * (1 + self.average)


def test_state_is_not_taken_for_noise(caplog):
    DygraphSensitivity(made(Averaging), SHAPE).sensitive(Closeness(DATA), [0.5], progress=False, fast="off")
    assert not [line for line in warnings_of(caplog) if "noisy" in line]
