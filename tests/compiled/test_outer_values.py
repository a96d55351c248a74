"""Values outside of the model that its forward depends on: where they change, the numbers follow."""

from __future__ import annotations

import logging
import sys
import time
import types
from pathlib import Path

import numpy as np
import paddle
import pytest
from test_trust import RATIOS, SHAPE, Closeness, Net, batches, losses, made, toys_are_compiled, warnings_of

from dysens import DygraphSensitivity
from dysens.model import preserved

__all__ = ["toys_are_compiled"]

SETTINGS = """
SCALE = 1.0
TABLE = {"scale": 1.0}

def by_table(h):
    return inside(h)

def inside(h):
    return h * TABLE["scale"]

class Operation:
    def __call__(self, h):
        return h * SCALE
"""


def _module(name, source=SETTINGS):
    module = types.ModuleType(name)
    exec(source, module.__dict__)
    sys.modules[name] = module
    return module


settings, package = _module("outer_settings"), _module("outer_package", "")
package.settings = _module("outer_package.settings")
OPERATION = settings.Operation()
LOCAL = 1.0


def set_scale(model, value):
    settings.SCALE = package.settings.SCALE = value


def set_table(model, value):
    settings.TABLE["scale"] = value


def set_local(model, value):
    globals()["LOCAL"] = value


def by_import(self, x, h):
    from outer_settings import SCALE

    return h * SCALE


class Holding(Net):
    """Has what it calls in containers."""

    def __init__(self):
        super().__init__()
        self.operations = {"all": [settings.Operation()]}
        self.register_buffer("factor", paddle.ones([1]))


WAYS = {
    "a function of a module": (lambda self, x, h: settings.by_table(h), set_table),
    "a module in a package": (lambda self, x, h: h * package.settings.SCALE, set_scale),
    "getattr": (lambda self, x, h: h * getattr(settings, "SCALE"), set_scale),  # noqa: B009
    "sys.modules": (lambda self, x, h: h * sys.modules["outer_settings"].SCALE, set_scale),
    "globals()": (lambda self, x, h: h * globals()["LOCAL"], set_local),
    "an import in the forward": (by_import, set_scale),
    "an object in containers": (lambda self, x, h: self.operations["all"][0](h), set_scale),
    "an object of a module": (lambda self, x, h: OPERATION(h), set_scale),
    "a buffer": (
        lambda self, x, h: h * self.factor,
        lambda model, v: model.factor.set_value(paddle.full([1], v)),
    ),
}


@pytest.fixture(params=WAYS)
def way(request):
    between, change = WAYS[request.param]
    return made(type("Way", (Holding,), {"between": between})), change


def cut_losses(ds, score):
    """Those of really cut models."""
    whole, found = score(), []
    for group in ds.groups:
        for ratio in RATIOS:
            with ds.pruned({group.name: ratio}):
                found.append((whole - score()) / (whole + 1e-3))
    return found


def test_a_function_that_changes_values_between_calls(way):
    model, change = way
    data = batches(*[(2, 12)] * 4)

    def score():
        scores = []
        with paddle.no_grad():
            for number, x in enumerate(data):
                change(model, (1.0, 0.3)[number % 2])
                scores.append(float(model(x).square().mean()))
        change(model, 1.0)
        return 1 / (1 + np.mean(scores))

    ds = DygraphSensitivity(model, SHAPE)
    with preserved(model):
        truth = cut_losses(ds, score)
    np.testing.assert_allclose(losses(ds.sensitive(score, RATIOS, progress=False)), truth, atol=1e-4)


class Changing(Closeness):
    """Sets something for each batch when it gives it out."""

    def __init__(self, data, model, change):
        super().__init__(data)
        self._model, self._change = model, change

    def batches(self):
        for number, batch in enumerate(self._data):
            self._change(self._model, (1.0, 0.3)[number % 2])
            yield batch
        self._change(self._model, 1.0)


@pytest.mark.parametrize("fast", ["off", "auto"])
def test_an_evaluator_that_changes_values_between_batches(way, fast, caplog):
    model, change = way
    evaluator = Changing(batches(*[(2, 12)] * 4), model, change)
    ds = DygraphSensitivity(model, SHAPE)

    def score():
        with preserved(model), paddle.no_grad():
            return evaluator.score([evaluator.measure(model(*b), b) for b in evaluator.batches()])

    truth = cut_losses(ds, score)
    found = ds.sensitive(evaluator, RATIOS, progress=False, fast=fast)
    np.testing.assert_allclose(losses(found), truth, atol=1e-5)
    said = [line for line in warnings_of(caplog) if "changes the model from batch to batch" in line]
    assert len(said) == (fast == "auto")


class Modes(Closeness):
    """Some batches in training mode."""

    def __init__(self, data, model):
        super().__init__(data)
        self._model = model

    def batches(self):
        for number, batch in enumerate(self._data):
            self._model.train() if number % 2 else self._model.eval()
            yield batch
        self._model.eval()


def test_an_evaluator_that_changes_the_mode():
    class Dimmed(Net):
        def between(self, x, h):
            return h * 0.3 if self.training else h

    model = made(Dimmed)
    evaluator = Modes(batches(*[(2, 12)] * 4), model)
    ds = DygraphSensitivity(model, SHAPE)

    def score():
        with preserved(model), paddle.no_grad():
            return evaluator.score([evaluator.measure(model(*b), b) for b in evaluator.batches()])

    truth = cut_losses(ds, score)
    np.testing.assert_allclose(losses(ds.sensitive(evaluator, RATIOS, progress=False)), truth, atol=1e-5)


class Recalling(Net):
    """Keeps what it saw in a list, and depends on it, once it is told to."""

    def __init__(self):
        super().__init__()
        self.seen, self.recalls = [1.0], False

    def between(self, x, h):
        if not self.recalls:
            return h
        self.seen.append(0.5 * self.seen[-1] + float(x.mean()))
        return h * self.seen[-1]


@pytest.mark.parametrize("fast", ["off", "auto"])
def test_what_is_carried_on_in_a_list(fast):
    model = made(Recalling)
    evaluator = Closeness(batches(*[(2, 12)] * 5))
    ds = DygraphSensitivity(model, SHAPE)
    model.recalls = True

    def score():
        with preserved(model), paddle.no_grad():
            return evaluator.score([evaluator.measure(model(*b), b) for b in evaluator.batches()])

    truth = cut_losses(ds, score)
    found = ds.sensitive(evaluator, RATIOS, progress=False, fast=fast)
    np.testing.assert_allclose(losses(found), truth, atol=1e-5)


def clock(self, x, h):
    return h * (1.0 + 0.0 * time.time())


def file(self, x, h):
    return h * len(Path(__file__).read_bytes()[:1])


REFUSED = {
    "asks for the time": clock,
    "looks at files": file,
    "stop_gradient of a tensor": lambda self, x, h: h if x.stop_gradient else h * 0.5,
    "persistable of a tensor": lambda self, x, h: h * 0.5 if x.persistable else h,
    "name of a tensor": lambda self, x, h: h if x.name else h * 0.5,
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_watched_is_said(why, caplog):
    model = made(type("Looking", (Net,), {"between": REFUSED[why]}))
    DygraphSensitivity(model, SHAPE).sensitive(Closeness(batches((2, 12))), [0.5], progress=False)
    said = [line for line in warnings_of(caplog) if "runs the live model" in line]
    assert len(said) == 1
    assert why in said[0]
    assert "in Looking" in said[0]


def test_messages_of_a_forward_are_no_obstacle(caplog):
    def noting(self, x, h):
        logging.getLogger("somebody").warning("forward")
        return h

    model = made(type("Noting", (Net,), {"between": noting}))
    DygraphSensitivity(model, SHAPE).sensitive(Closeness(batches((2, 12))), [0.5], progress=False, fast="on")
    assert sys.getprofile() is None


def test_an_input_with_attributes_of_its_own(caplog):
    model, x = made(Net), batches((2, 12))[0]
    try:
        x.factor = 0.5
    except AttributeError:
        pytest.skip("tensors of Paddle 2.6 take none")

    def score():
        return float(model(x).abs().mean())

    DygraphSensitivity(model, SHAPE).sensitive(score, [0.5], progress=False)
    assert 'attributes of its own ("factor")' in caplog.text


ROWS = {
    "list": lambda self, x, h: h * sum(list(x.mean(axis=[1, 2, 3]))),
    "star": lambda self, x, h: h * sum([*x.mean(axis=[1, 2, 3])]),
    "zip": lambda self, x, h: h * sum(a * b for a, b in zip(x.mean(axis=[1, 2, 3]), x.max(axis=[1, 2, 3]))),
}


@pytest.mark.parametrize("sizes", [[(2, 12), (2, 12)], [(2, 12), (3, 12), (1, 16)]])
@pytest.mark.parametrize("rows", ROWS)
def test_rows_of_a_tensor_come_to_an_end(rows, sizes):
    """Paddle traces such a loop for ever."""
    model = made(type("Rows", (Net,), {"between": ROWS[rows]}))
    ds, evaluator = DygraphSensitivity(model, SHAPE), Closeness(batches(*sizes))
    found = ds.sensitive(evaluator, RATIOS, progress=False)
    live = ds.sensitive(evaluator, RATIOS, progress=False, fast="off")
    np.testing.assert_allclose(losses(found), losses(live), atol=1e-4)
