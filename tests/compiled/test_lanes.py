"""Forwards that run side by side give what they give one by one, in the same order; failures come where they always did."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import pytest
from networks import SHAPE, SmallNet, images, made

from dysens import DygraphSensitivity
from dysens.compiled import PartialEvaluation, _copies
from dysens.compiled._batches import Lanes, ThreadPlan, thread_plan
from dysens.compiled._copy import CompiledForward
from dysens.evaluators import Evaluator
from dysens.pruning import plan_for
from dysens.sweep import RunOptions, scorer_of

BATCHES = 12


class Noting(Evaluator):
    """Keeps the outputs as they are, and notes in which thread and order it was asked."""

    name = "noting"

    def __init__(self):
        # Four rows each: one batch is one chunk.
        self._batches = [[images(4, seed=number), number] for number in range(BATCHES)]
        self.threads, self.order = set(), []

    def batches(self):
        return self._batches

    def measure(self, outputs, batch):
        self.threads.add(threading.get_ident())
        self.order.append(batch[1])
        return outputs.numpy()

    def score(self, measurements):
        return float(np.mean([np.abs(values).mean() for values in measurements]))


@pytest.fixture(params=["paddle", "openvino"])
def scorer(request, monkeypatch):
    """Makes a scorer with so many lanes, and plans for every group."""

    def made_scorer(lanes, evaluator):
        monkeypatch.setattr(_copies, "thread_plan", lambda *given: ThreadPlan(lanes, 1))
        ds = DygraphSensitivity(made(SmallNet), SHAPE)
        options = RunOptions(fast=request.param)
        found = scorer_of(ds._model, ds._roles, list(ds.groups), evaluator, options=options)
        found.score()
        assert found.runtime == request.param
        choose = ds._choice()
        return found, [plan_for(ds._roles, group.removal(choose(group, 0.5))) for group in ds.groups]

    return made_scorer


def test_bit_for_bit_what_one_lane_gives(scorer):
    one, plans = scorer(1, Noting())
    three, same_plans = scorer(3, Noting())
    for _ in range(3):
        for plan, same in zip(plans, same_plans):
            expected, found = (
                one.measurements(PartialEvaluation(plan)),
                three.measurements(PartialEvaluation(same)),
            )
            assert list(found) == list(expected)
            assert all(np.array_equal(found[number], expected[number]) for number in expected)


def test_reuse_in_lanes(scorer):
    one, plans = scorer(1, Noting())
    three, same_plans = scorer(3, Noting())
    three.expect([(plan, 1e6) for plan in same_plans])
    assert three._reuse is not None
    for plan, same in zip(plans, same_plans):
        assert three.score(same) == pytest.approx(one.score(plan), rel=1e-5)


def test_an_evaluator_is_asked_in_one_thread_and_always_in_the_same_order(scorer):
    evaluator = Noting()
    found, plans = scorer(3, evaluator)
    orders = []
    for plan in plans[:3]:
        evaluator.order.clear()
        found.score(plan)
        orders.append(list(evaluator.order))
    assert evaluator.threads == {threading.get_ident()}
    assert orders[0] == orders[1] == orders[2]
    assert sorted(orders[0]) == list(range(BATCHES))


def test_what_comes_next_changes_no_number(scorer, monkeypatch):
    """Guessed right, guessed wrong, or not at all."""
    plain, plans = scorer(3, Noting())
    expected = [plain.score(plan) for plan in plans]
    guessing, same_plans = scorer(3, Noting())
    runs, arrays = [], CompiledForward.arrays
    monkeypatch.setattr(CompiledForward, "arrays", lambda *given: runs.append(1) or arrays(*given))
    following = [*same_plans[1:], same_plans[0]]
    assert [guessing.score(plan, then) for plan, then in zip(same_plans, following)] == expected
    # Each chunk ran once for every plan; those that are ahead of the last one were for nobody.
    assert len(plans) * BATCHES <= len(runs) <= len(plans) * BATCHES + 6
    assert [guessing.score(plan, same_plans[0]) for plan in same_plans] == expected


def test_stopping_early(scorer):
    found, plans = scorer(3, Noting())
    some = found.measurements(PartialEvaluation(plans[0], share=2 / BATCHES))
    assert len(some) == 2
    more = found.measurements(PartialEvaluation(plans[0], some, 2.5 / BATCHES))
    assert list(more)[:2] == list(some)
    assert len(more) == 3
    whole = found.measurements(PartialEvaluation(plans[0], more))
    assert len(whole) == BATCHES
    assert found.evaluator.score(list(whole.values())) == pytest.approx(found.score(plans[0]), rel=1e-6)


def test_a_forward_that_fails(scorer, monkeypatch):
    found, plans = scorer(3, Noting())
    before = found.score(plans[0])
    arrays, calls = CompiledForward.arrays, []

    def failing(self, *arguments):
        calls.append(1)
        if len(calls) == 5:
            raise RuntimeError("out of memory")
        return arrays(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(CompiledForward, "arrays", failing)
        with pytest.raises(RuntimeError, match="out of memory"):
            found.score(plans[0])
    assert found.score(plans[0]) == before


def test_an_evaluator_that_is_interrupted(scorer, monkeypatch):
    evaluator = Noting()
    found, plans = scorer(3, evaluator)
    before = found.score(plans[0])
    with monkeypatch.context() as patch:

        def interrupted(outputs, batch):
            raise KeyboardInterrupt

        patch.setattr(evaluator, "measure", interrupted)
        with pytest.raises(KeyboardInterrupt):
            found.score(plans[0])
    assert found.score(plans[0]) == before


def numbered(*jobs):
    return dict(enumerate(jobs))


class TestInOrder:
    def test_jobs_run_at_the_same_time(self):
        """Two jobs that wait for each other: one after the other, they would wait in vain."""
        meeting = threading.Barrier(2, timeout=60)
        assert sorted(Lanes(2).in_order(numbered(meeting.wait, meeting.wait))) == [0, 1]

    def test_results_in_order_whichever_is_first(self):
        second_is_done = threading.Event()

        def first():
            assert second_is_done.wait(60)
            return 1

        def second():
            second_is_done.set()
            return 2

        assert list(Lanes(2).in_order(numbered(first, second, lambda: 3))) == [1, 2, 3]

    def test_an_exception_comes_in_its_turn(self):
        results = Lanes(2).in_order(numbered(lambda: 1, lambda: 1 // 0, lambda: 3))
        assert next(results) == 1
        with pytest.raises(ZeroDivisionError):
            next(results)

    def test_what_is_not_begun_is_left_out(self):
        done = []
        lanes = Lanes(2)
        results = lanes.in_order(numbered(*(partial(done.append, number) for number in range(100))))
        next(results)
        results.close()
        list(lanes.in_order(numbered(lambda: None, lambda: None)))
        assert len(done) <= 5

    def test_one_lane_is_the_caller(self):
        lanes = Lanes(1)
        assert not lanes.side_by_side
        assert list(lanes.in_order({"a": threading.get_ident}, {"b": pytest.fail})) == [threading.get_ident()]


class TestThen:
    def test_is_begun_while_the_caller_looks_at_results_and_not_again_when_it_is_asked_for(self):
        lanes, begun, times = Lanes(2), threading.Event(), []

        def later():
            begun.set()
            times.append(1)
            return "later"

        for found in lanes.in_order({"now": lambda: "now"}, {"later": later}):
            assert found == "now"
            assert begun.wait(60)
        assert list(lanes.in_order({"first": lambda: "first", "later": later})) == ["first", "later"]
        assert times == [1]

    def test_is_forgotten_if_nobody_asks_for_it(self):
        lanes, times = Lanes(2), []
        list(lanes.in_order({"now": lambda: 0}, {"later": partial(times.append, 1)}))
        list(lanes.in_order({"other": lambda: 0}))
        assert list(lanes.in_order({"later": lambda: "anew"})) == ["anew"]

    def test_fails_where_it_is_asked_for(self):
        lanes = Lanes(2)
        assert list(lanes.in_order({"now": lambda: 0}, {"later": lambda: 1 // 0})) == [0]
        with pytest.raises(ZeroDivisionError):
            list(lanes.in_order({"later": lambda: 1 // 0}))

    def test_no_more_is_begun_than_keeps_the_lanes_busy(self):
        lanes, done = Lanes(2), []
        list(lanes.in_order({"now": lambda: 0}, {n: partial(done.append, n) for n in range(100)}))
        list(lanes.in_order(numbered(lambda: None, lambda: None)))
        assert len(done) <= 4


class TestThreadPlan:
    def test_few_batches_share_all_cores(self):
        assert thread_plan(0, 4) == thread_plan(1, 4) == thread_plan(3, 4) == ThreadPlan(1, 4)

    def test_many_batches(self):
        assert thread_plan(100, 2) == ThreadPlan(2, 1)
        assert thread_plan(100, 64) == ThreadPlan(8, 8)
        assert thread_plan(100, 1) == ThreadPlan(1, 1)

    def test_threads_do_not_help_where_a_runtime_keeps_pythons_lock(self):
        assert thread_plan(100, 64, side_by_side=False) == ThreadPlan(1, 64)
