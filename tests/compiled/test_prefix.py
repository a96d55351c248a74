"""What lies before the first masked layer is computed once, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from networks import SHAPE, SmallNet, TextNet, images, made

from dysens import DygraphSensitivity
from dysens.compiled import _prefix
from dysens.compiled._calls import UnservableError
from dysens.compiled._prefix import Work, worthwhile_cuts
from dysens.evaluators import Evaluator
from dysens.pruning import plan_for
from dysens.sweep import RunOptions, scorer_of

MANY = 1e6  # evaluations ahead: any copy pays


class Size(Evaluator):
    """How large the outputs are, on batches of two sizes and shapes."""

    name = "size"

    def __init__(self, sizes=((3, 16), (1, 16), (2, 24))):
        self._batches = [[images(n, [1, 3, s, s], seed=n)] for n, s in sizes]

    def batches(self):
        return self._batches

    def measure(self, outputs, batch):
        return float(outputs.abs().mean())

    def score(self, measurements):
        return float(np.mean(measurements))


def plans(ds, ratio=0.5):
    choose = ds._choice()
    return [plan_for(ds._roles, group.removal(choose(group, ratio))) for group in ds.groups]


def scorer(ds, evaluator, cache_gib=1.0, fast="on"):
    made_scorer = scorer_of(
        ds._model, ds._roles, list(ds.groups), evaluator, options=RunOptions(fast=fast, cache_gib=cache_gib)
    )
    made_scorer.score()
    return made_scorer


@pytest.mark.parametrize(
    ("network", "evaluator", "fast"),
    [
        (SmallNet, Size(), "paddle"),
        (SmallNet, Size(), "openvino"),
        (TextNet, Size(((2, 16), (1, 16))), "paddle"),
    ],
    ids=["small", "small with openvino", "text"],
)
def test_same_scores_with_and_without(network, evaluator, fast):
    ds = DygraphSensitivity(made(network), SHAPE)
    alone, sharing = scorer(ds, evaluator, fast=fast), scorer(ds, evaluator, fast=fast)
    assert (alone.runtime, sharing.runtime) == (fast, fast)
    sharing.expect([(plan, MANY) for plan in plans(ds)])
    assert sharing._reuse is not None
    for ratio in (0.3, 0.7):
        for plan in plans(ds, ratio):
            # Twice: what is remembered after the first time must be the same.
            scores = [alone.score(plan), sharing.score(plan), sharing.score(plan)]
            assert scores[1:] == pytest.approx([scores[0]] * 2, rel=1e-4)
    assert sharing.score() == pytest.approx(alone.score(), rel=1e-4)


def test_openvino_takes_parts_out_of_what_it_has(monkeypatch):
    """The model is not traced again, and parts have the masks of their own consumers only."""
    ds = DygraphSensitivity(made(SmallNet), SHAPE)
    sharing = scorer(ds, Size(), fast="openvino")
    monkeypatch.setattr(_prefix, "compiled_forward", None)
    sharing.expect([(plan, MANY) for plan in plans(ds)])
    whole, ends = sharing._reuse.whole, sharing._reuse._ends
    assert ends
    for paths, end in ends:
        masks = {name for name in end._loaded._names if name.startswith("mask_")}
        assert masks == {whole._mask_names[path] for path in paths}
        assert any(name.startswith("step_") for name in end._loaded._names)


def test_a_part_from_a_step_that_is_not_there():
    ds = DygraphSensitivity(made(SmallNet), SHAPE)
    found = scorer(ds, Size(), fast="openvino")
    copy = next(iter(found._fast.copies._accepted.values())).copy
    with pytest.raises(UnservableError, match="does not have the output of step 999"):
        copy.part((), given=[999])


def test_without_room_to_remember():
    """Outputs of layers that do not fit beside the data are computed anew."""
    evaluator = Size(((3, 16), (1, 16)))
    ds = DygraphSensitivity(made(SmallNet), SHAPE)
    data = sum(batch[0].size * 4 for batch in evaluator.batches())
    alone, cramped = scorer(ds, evaluator), scorer(ds, evaluator, cache_gib=(data + 64) / 2**30)
    cramped.expect([(plan, MANY) for plan in plans(ds)])
    for plan in plans(ds):
        assert cramped.score(plan) == pytest.approx(alone.score(plan), rel=1e-4)


def test_nothing_is_compiled_for_little_work():
    ds = DygraphSensitivity(made(SmallNet), SHAPE)
    found = scorer(ds, Size())
    found.expect([(plan, 1.0) for plan in plans(ds)])
    assert found._reuse is None


class TestCuts:
    ELAPSED = (0.1, 0.3, 0.6, 0.8, 1.0)  # share of a forward that is over when each step ends

    def work(self, *firsts, evaluations=100.0):
        return [Work(frozenset({f"layer{first}"}), first, evaluations) for first in firsts]

    def test_late_work_is_worth_a_copy(self):
        assert worthwhile_cuts(self.work(4), self.ELAPSED, 1.0, lambda share: 2.0) == [4]

    def test_early_work_has_nothing_to_share(self):
        assert worthwhile_cuts(self.work(0), self.ELAPSED, 1.0, lambda share: 2.0) == []

    def test_one_copy_serves_all_that_begin_later(self):
        """A second one saves only the difference."""
        assert worthwhile_cuts(self.work(3, 4, evaluations=10.0), self.ELAPSED, 1.0, lambda share: 2.0) == [3]

    def test_more_copies_for_more_work(self):
        assert worthwhile_cuts(self.work(1, 3, 4, evaluations=1e4), self.ELAPSED, 1.0, lambda share: 2.0) == [
            1,
            3,
            4,
        ]

    def test_no_more_is_kept_than_there_is_room_for(self):
        """A second cut saves little, and would let go of half of what the first one begins with."""
        work = self.work(3, 4, evaluations=1e4)
        alone = worthwhile_cuts(
            work, self.ELAPSED, 1.0, lambda share: 1.0, lambda cuts: 1 / max(len(cuts), 1)
        )
        assert alone == [3]
        assert worthwhile_cuts(work, self.ELAPSED, 1.0, lambda share: 1.0) == [3, 4]

    def test_a_part_costs_its_share(self):
        """A late cut is cheap where only what comes after it has to be compiled."""
        work = self.work(3, 4, evaluations=10.0)
        assert worthwhile_cuts(work, self.ELAPSED, 1.0, lambda share: 2.0 * share) == [3, 4]

    def test_compiling_that_costs_more_than_it_saves(self):
        assert worthwhile_cuts(self.work(4), self.ELAPSED, 1.0, lambda share: 1000.0) == []
