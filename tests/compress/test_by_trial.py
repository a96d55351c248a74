"""Allocating by trial: curves are weighed until the whole network's outputs are nearest."""

import math

import numpy as np
import paddle
import pytest
from paddle import nn

from dysens import DygraphSensitivity
from dysens.compress._allocate import Allocator
from dysens.compress._by_trial import MOST, curves_by_trial
from dysens.compress._decide import Decider
from dysens.errors import UnreachableError

CURVES = {name: {ratio: ratio**2 for ratio in (0.25, 0.5, 0.75)} for name in "abc"}


def heaviest_first(curves) -> dict[str, float]:
    """Spare the group whose curve weighs most, cut the lightest most."""
    order = sorted(curves, key=lambda name: -curves[name][0.5])
    return dict(zip(order, (0.25, 0.5, 0.75)))


def test_the_weights_that_come_nearest_are_found():
    wanted = {"c": 0.25, "a": 0.5, "b": 0.75}

    def errors(proposed):
        return [0.1 + sum(abs(ratios[name] - wanted[name]) for name in wanted) for ratios in proposed]

    first = errors([heaviest_first(CURVES)])[0]
    weighed, error = curves_by_trial(CURVES, first, heaviest_first, errors)
    assert first > 0.1
    assert error == pytest.approx(0.1)
    assert heaviest_first(weighed) == wanted


def test_the_same_data_give_the_same_weights():
    def errors(proposed):
        return [math.hypot(*(ratios[name] - 0.1 * ord(name) for name in "abc")) for ratios in proposed]

    assert curves_by_trial(CURVES, math.inf, heaviest_first, errors) == curves_by_trial(
        CURVES, math.inf, heaviest_first, errors
    )


@pytest.mark.parametrize("refuses", [False, True])
def test_where_nothing_is_better_it_ends_early_with_what_was_there(refuses):
    done = []

    def allocate(curves):
        if refuses:
            raise UnreachableError("out of reach")
        return heaviest_first(curves)

    weighed, error = curves_by_trial(
        CURVES, 0.5, allocate, lambda proposed: [0.5 for _ in proposed], done.append
    )
    assert weighed == CURVES
    assert error == 0.5
    assert done[-1] < MOST


class Fragile(nn.Layer):
    """Of two like layers one is multiplied up before the outputs: their own errors, relative as they are, do not tell."""

    def __init__(self) -> None:
        super().__init__()
        self.quiet, self.loud = (self._branch() for _ in range(2))
        self.mix = nn.Conv2D(8, 4, 1)

    def _branch(self) -> nn.Sequential:
        return nn.Sequential(nn.Conv2D(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2D(32, 4, 1), nn.ReLU())

    def forward(self, x):
        return paddle.tanh(self.mix(paddle.concat([0.01 * self.quiet(x), 100 * self.loud(x)], axis=1)))


def compressed(model, **options):
    data = [
        paddle.to_tensor(np.random.default_rng(n).normal(size=(4, 3, 16, 16)).astype("float32"))
        for n in range(6)
    ]
    ds = DygraphSensitivity(model, [1, 3, 16, 16])
    with ds.compressed(data, flops=0.3, align=1, progress=False, **options) as outcome:
        return outcome


def test_it_is_taken_only_where_it_is_much_better(monkeypatch):
    paddle.seed(5)
    model = Fragile()
    model.eval()
    monkeypatch.setattr("dysens.compress._decide._BETTER_BY_TRIAL", 0.0)
    without = compressed(model)
    assert not any("trial" in each.allocation for each in without.tried)
    monkeypatch.setattr("dysens.compress._decide._BETTER_BY_TRIAL", 1.0)
    outcome = compressed(model)
    found = [each for each in outcome.tried if each.allocation == "by trial"]
    assert outcome.output_error <= without.output_error
    assert all(each.output_error <= without.output_error for each in found)  # that of the cut that was taken


def test_it_is_searched_once_and_proposed_for_every_budget(monkeypatch):
    paddle.seed(5)
    model = Fragile()
    model.eval()
    monkeypatch.setattr("dysens.compress._decide._BETTER_BY_TRIAL", math.inf)
    searched = []
    whole = Decider._by_trial
    monkeypatch.setattr(Decider, "_by_trial", lambda *args: searched.append(1) or whole(*args))
    scores = iter([1.0, 0.9, 0.9, 0.9])  # of the whole, and of the cuts for the first budget
    outcome = compressed(model, max_loss=0.05, evaluator=lambda: next(scores, 0.99))
    assert len(searched) == 1
    assert len({each.budget for each in outcome.tried}) > 1
    assert any(each.allocation == "by trial" for each in outcome.tried)


def test_what_was_found_is_proposed_for_other_budgets_too(monkeypatch):
    paddle.seed(5)
    model = Fragile()
    model.eval()
    monkeypatch.setattr("dysens.compress._decide._BETTER_BY_TRIAL", math.inf)
    proposed = []
    whole = Allocator.proposals
    monkeypatch.setattr(
        Allocator, "proposals", lambda self, target: proposed.append(self.names) or whole(self, target)
    )
    scores = iter([1.0, 0.9, 0.9, 0.9])
    compressed(model, max_loss=0.05, evaluator=lambda: next(scores, 0.99))
    assert ["by trial" in names for names in proposed] == [False, *[True] * (len(proposed) - 1)]
    assert len(proposed) > 2
