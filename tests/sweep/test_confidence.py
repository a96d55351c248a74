"""The stated confidence of a search holds, also where losses sit in few samples or whole batches: by simulation."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from dysens import DygraphSensitivity
from dysens.evaluators import UpdateEvaluator
from dysens.sweep import Comparison
from dysens.sweep._statistics import Estimate

from .digits import SHAPE, batches, evaluator, trained

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "search_confidence.py"
spec = importlib.util.spec_from_file_location("search_confidence", PROGRAM)
simulation = importlib.util.module_from_spec(spec)
sys.modules["search_confidence"] = simulation  # its dataclasses look there
spec.loader.exec_module(simulation)

TRIALS = 40
# Of 40 trials, an error rate of 5 % gives more than this many in one case of a hundred.
MOST_WRONG = 5


@pytest.mark.parametrize("case", simulation.CASES, ids=lambda case: case.name)
def test_wrong_decisions_are_rare_where_the_answer_is_clear(case):
    counts = simulation.simulate(case, TRIALS, seed=1)
    assert counts.clear_wrong <= MOST_WRONG


def test_over_all_cases_the_stated_share_holds():
    found = [simulation.simulate(case, 12, learnt=True, seed=2) for case in simulation.CASES]
    early, wrong = (sum(getattr(counts, name) for counts in found) for name in ("clear_early", "clear_wrong"))
    assert early > 60  # it does decide early
    assert wrong <= (1 - simulation.CONFIDENCE) * early


class TestBatchesThatWereNotSeen:
    def estimate(self, **changes):
        plain = {"metric": 0.9, "loss": 0.0, "error": 1e-4, "share": 0.5, "blocks": 20}
        return Estimate(**{**plain, "at_most": 0.001, "at_least": 0.001, **changes})

    def test_small_ones_cannot_turn_a_decision(self):
        assert self.estimate().batches_to_turn(0.02) > 20
        assert self.estimate().decides(0.02, 0.95)

    def test_large_ones_can(self):
        assert self.estimate(at_most=0.05).batches_to_turn(0.02) <= 3
        assert not self.estimate(at_most=0.05).decides(0.02, 0.95)

    def test_an_error_without_bound_waits_for_nearly_all_data(self):
        unbounded = self.estimate(at_most=math.inf)
        assert unbounded.batches_to_turn(0.02) == 2
        assert not self.estimate(at_most=math.inf, share=0.8).decides(0.02, 0.95)
        assert self.estimate(at_most=math.inf, share=0.9).decides(0.02, 0.95)

    def test_a_loss_beyond_the_target_can_only_fall_by_what_is_left_to_gain(self):
        assert self.estimate(loss=0.5, at_most=math.inf).decides(0.02, 0.95)

    def test_what_batches_can_do_comes_from_the_whole_model(self):
        whole = {0: [1.0] * 6, 1: [1.0] * 2, 2: [0.0] * 2}
        comparison = Comparison(
            lambda found: float(np.mean(np.concatenate(found))),
            whole,
            {0: 6, 1: 2, 2: 2},
            higher_is_better=True,
        )
        rise, fall = comparison._swing({0: whole[0]})
        assert rise == pytest.approx(0.2 / 0.8)  # the two right answers of batch 1
        assert fall == pytest.approx(0.2 / 0.8)  # the two wrong ones of batch 2


def test_few_samples_cannot_tell_and_that_is_said(caplog):
    few = [[x[:2], label[:2]] for x, label in batches()[:6]]
    scorer = evaluator()
    scorer._loader = few
    found = DygraphSensitivity(trained(), SHAPE).search(
        scorer, 0.02, progress=False, fast="off", spot_checks=0
    )
    assert found.samples == 12
    pruned = [group for group in found.groups if group.ratio > 0]
    assert pruned
    assert found.untold
    assert found.told_ratios.keys() == found.ratios.keys() - {group.name for group in found.untold}
    assert set(found.untold) <= set(pruned)
    # What twelve samples can tell is a gain, never a small loss.
    assert all(group.loss < -0.05 for group in pruned if group.told)
    assert "12 samples cannot tell a loss of 0.02" in str(found)
    assert "12 samples cannot tell" in caplog.text
    assert list(found.to_frame()["told"]) == [group.told for group in found.groups]


def test_many_samples_can_tell():
    found = DygraphSensitivity(trained(), SHAPE).search(
        evaluator(), 0.3, target_vars="4.*", progress=False, fast="off", spot_checks=0
    )
    assert all(group.told for group in found.groups)
    assert "cannot tell" not in str(found)


class Rare:
    """A metric of single values."""

    def __init__(self):
        self._values = []

    def update(self, outputs, batch):
        self._values.append(float(outputs.abs().mean()))

    def compute(self):
        return float(np.mean(self._values))


def test_data_that_are_not_all_in_memory_are_seen_as_a_whole():
    """Those that are kept are the first ones, not a random part."""
    ds = DygraphSensitivity(trained(), SHAPE)
    scorer = UpdateEvaluator(batches(), Rare)
    found = ds.search(
        scorer, 0.1, target_vars="0.*", progress=False, fast="off", spot_checks=0, cache_gib=1e-5
    )
    assert found.passes == round(found.passes)
