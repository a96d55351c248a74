"""An evaluation that gives another score for the same model is said to be noisy, with what to do."""

from __future__ import annotations

import logging

import numpy as np
import paddle
import pytest
from networks import SHAPE, SmallNet, TinyNet, images, made

from dysens import DygraphSensitivity
from dysens.evaluators import UpdateEvaluator

MANY = [round(0.04 * step, 2) for step in range(1, 24)]


@pytest.fixture
def said(caplog):
    """What was warned of, about the evaluation."""

    def lines():
        wanted = ("dysens.sweep._measuring", "dysens.compiled._batches")
        return [r.getMessage() for r in caplog.records if r.name in wanted and r.levelno == logging.WARNING]

    return lines


def mean_of(model, x):
    with paddle.no_grad():
        return 1 + float(model(x).abs().mean())


def test_a_function_that_draws_random_numbers(said):
    model, random, x = made(TinyNet), np.random.default_rng(0), images(2)
    ds = DygraphSensitivity(model, SHAPE)
    ds.sensitive(lambda: mean_of(model, x) + random.normal(0, 0.1), MANY, progress=False, fast="off")
    assert len(said()) == 1
    assert "noisy" in said()[0]
    assert "model.eval()" in said()[0]


def test_a_few_points_are_not_worth_scoring_twice(said):
    model, calls, x = made(TinyNet), [], images(2)
    ds = DygraphSensitivity(model, SHAPE)
    ds.sensitive(lambda: calls.append(1) or mean_of(model, x), [0.5], progress=False, fast="off")
    assert len(calls) == 1 + len(ds.groups)
    assert not said()


def test_one_that_repeats_itself(said):
    model, x = made(TinyNet), images(2)
    DygraphSensitivity(model, SHAPE).sensitive(lambda: mean_of(model, x), MANY, progress=False, fast="off")
    assert not said()


def test_training_mode(said):
    model, x = made(SmallNet), images(2)

    def score():
        model.train()
        paddle.seed(0)
        return mean_of(model, x)

    DygraphSensitivity(model, SHAPE).sensitive(score, [0.5], progress=False, fast="off")
    assert len(said()) == 1
    assert "training mode" in said()[0]
    assert "Call model.eval()" in said()[0]


def test_training_inside_of_an_evaluation_that_ends_in_eval_mode(said):
    model, x = made(SmallNet), images(2)

    def score():
        model.train()
        model(x)
        model.eval()
        return mean_of(model, x)

    DygraphSensitivity(model, SHAPE).sensitive(score, [0.5], progress=False, fast="off")
    assert not said()


class Mean:
    def __init__(self):
        self.values = []

    def update(self, outputs, batch):
        self.values.append(float(outputs.abs().mean()) + self.noise())

    def noise(self):
        return 0.0

    def compute(self):
        return 1 + float(np.mean(self.values))


def test_an_evaluator(said):
    random = np.random.default_rng(0)

    class Noisy(Mean):
        def noise(self):
            return random.normal(0, 0.1)

    ds = DygraphSensitivity(made(TinyNet), SHAPE)
    data = [[images(2, seed=n)] for n in range(3)]
    ds.sensitive(UpdateEvaluator(data, Mean), [0.5], progress=False, fast="off")
    assert not said()
    ds.sensitive(UpdateEvaluator(data, Noisy), [0.5], progress=False, fast="off")
    assert "noisy" in said()[0]
    assert "the first batch" in said()[0]


class Augmenting:
    """A loader that gives other data at every pass."""

    def __init__(self):
        self._passes = 0

    def __iter__(self):
        self._passes += 1
        return iter([[images(2, seed=number + 10 * self._passes)] for number in range(3)])


def test_a_loader_that_augments(said):
    ds = DygraphSensitivity(made(TinyNet), SHAPE)
    ds.sensitive(UpdateEvaluator(Augmenting(), Mean), [0.5], progress=False, fast="off", cache_gib=0)
    assert "other data at every pass" in " ".join(said())


def test_a_loader_that_augments_and_is_kept(said):
    ds = DygraphSensitivity(made(TinyNet), SHAPE)
    ds.sensitive(UpdateEvaluator(Augmenting(), Mean), [0.5], progress=False, fast="off")
    assert not said()
