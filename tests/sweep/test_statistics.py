"""Deciding from part of the data: how often it errs, and when it refuses to."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dysens.errors import InputError
from dysens.sweep import LOOKS, Comparison
from dysens.sweep._examiner import Bracket, ProbeCosts, likely_answers, next_ratio
from dysens.sweep._statistics import Estimate, student_quantile


@pytest.mark.parametrize(
    ("level", "freedom", "expected"),
    [(0.975, 4, 2.776), (0.975, 9, 2.262), (0.95, 6, 1.943), (0.993, 9, 3.04), (0.995, 30, 2.750)],
)
def test_quantiles_are_those_of_the_tables(level, freedom, expected):
    assert student_quantile(level, freedom) == pytest.approx(expected, rel=0.015)


def accuracy(measurements):
    return float(np.mean(np.concatenate(measurements)))


def hmean(measurements):
    """The metric of text detectors: no mean over samples."""
    labelled, detected, matched = np.sum(np.concatenate(measurements), axis=0)
    return float(2 * matched / (labelled + detected))


def answers(random, lost):
    """Right or wrong for 300 samples in batches of 5: the whole model, and one that loses this share of its answers."""
    whole = random.random((60, 5)) < 0.9
    masked = np.where(random.random((60, 5)) < lost, random.random((60, 5)) < 0.1, whole)
    return whole, masked


def boxes(random, lost):
    labelled = random.integers(2, 9, (60, 5))
    matched = random.binomial(labelled, 0.9)
    detected = matched + random.binomial(2, 0.2, (60, 5))
    gone = random.binomial(matched, lost)
    whole = np.stack([labelled, detected, matched], axis=-1)
    return whole, whole - np.stack([0 * gone, gone, gone], axis=-1)


@pytest.mark.parametrize(("score", "data"), [(accuracy, answers), (hmean, boxes)])
def test_errs_no_more_often_than_it_says(score, data):
    """Of all points that are left early, at most the stated share would have been decided otherwise by all data."""
    target, confidence, early, wrong = 0.02, 0.95, 0, 0
    random = np.random.default_rng(0)
    for trial in range(150):
        whole, masked = data(random, lost=(0.0, 0.01, 0.03, 0.06, 0.15)[trial % 5])
        samples = dict.fromkeys(range(60), 5)
        comparison = Comparison(score, dict(enumerate(whole)), samples, higher_is_better=True)
        truth = comparison.loss(dict(enumerate(masked)), range(60))[1] <= target
        for look in LOOKS:
            seen = {number: masked[number] for number in range(math.ceil(60 * look))}
            estimate = comparison.estimate(seen, target)
            if estimate.decides(target, confidence):
                early += 1
                wrong += (estimate.loss <= target) != truth
                break
    assert early > 40
    assert wrong <= (1 - confidence) * early


def test_all_data_decide_whatever_they_say():
    comparison = Comparison(accuracy, {0: [1.0], 1: [1.0]}, {0: 1, 1: 1}, higher_is_better=True)
    estimate = comparison.estimate({0: [1.0], 1: [0.0]}, 0.02)
    assert (estimate.share, estimate.error, estimate.metric) == (1, 0, 0.5)
    assert estimate.decides(0.02, 0.999)
    assert estimate.interval(0.95) == (estimate.loss, estimate.loss)


def test_a_single_batch_decides_nothing_and_no_metric_of_nothing_is_asked_for():
    def strict(measurements):
        assert measurements, "a metric of nothing was asked for"
        return accuracy(measurements)

    comparison = Comparison(strict, {key: [1.0] for key in range(5)}, dict.fromkeys(range(5), 10), True)
    estimate = comparison.estimate({0: [0.5]}, target=0.1)
    assert (estimate.metric, estimate.share) == (0.5, 0.2)
    assert math.isinf(estimate.error)
    assert not estimate.decides(0.1, confidence=0.95)


def test_few_samples_without_a_difference_prove_nothing():
    whole = {number: [1.0] * 2 for number in range(100)}
    comparison = Comparison(accuracy, whole, dict.fromkeys(whole, 2), higher_is_better=True)
    assert not comparison.estimate({n: whole[n] for n in range(5)}, 0.02).decides(0.02, 0.95)
    assert comparison.estimate(whole, 0.02).decides(0.02, 0.95)


class TestHowMuchIsLostAtOnce:
    """Of a text detector's boxes, one of many in an image; of a classifier's answers, whole samples."""

    def least_error(self, score, data):
        random = np.random.default_rng(1)
        whole, masked = data(random, lost=0.03)
        comparison = Comparison(score, dict(enumerate(whole)), dict.fromkeys(range(60), 5), True)
        same = comparison.estimate(dict(enumerate(whole[:20])), 0.02).error
        for _ in range(50):
            comparison.estimate(dict(enumerate(masked[:40])), 0.02)
        return same, comparison.estimate(dict(enumerate(whole[:20])), 0.02).error

    def test_boxes(self):
        before, after = self.least_error(hmean, boxes)
        assert 0 < after < 0.7 * before

    def test_whole_samples(self):
        before, after = self.least_error(accuracy, answers)
        assert after == pytest.approx(before, rel=0.5)


def test_what_all_data_cannot_tell_is_left_where_it_leans():
    """Nearer to the target than the error of all data: most of them are enough."""
    near = {"metric": 0.88, "loss": 0.0199, "blocks": 20}
    error_of_all = 0.005
    for share, decided in ((0.3, False), (0.6, False), (0.95, True)):
        error = error_of_all * math.sqrt((1 - share) / share)
        estimate = Estimate(error=error, share=share, **near)
        assert estimate.error_of_all == pytest.approx(error_of_all)
        assert estimate.decides(0.02, 0.95) == decided


def test_doubt_is_nearness_to_the_target_in_errors():
    sure = Estimate(metric=0.8, loss=0.10, error=0.01, share=0.2, blocks=8)
    unsure = Estimate(metric=0.8, loss=0.03, error=0.01, share=0.2, blocks=8)
    assert unsure.doubt(0.02) > sure.doubt(0.02)


def test_a_metric_that_some_samples_do_not_define_waits_for_more():
    def picky(measurements):
        if len(measurements) < 4:
            raise InputError("nothing is labelled here")
        return accuracy(measurements)

    whole = {number: [1.0] for number in range(8)}
    comparison = Comparison(picky, whole, dict.fromkeys(whole, 1), higher_is_better=True)
    estimate = comparison.estimate({n: [0.0] for n in range(4)}, 0.02)
    assert math.isnan(estimate.loss)
    assert not estimate.decides(0.02, 0.5)


def test_an_interval_grows_with_the_confidence():
    estimate = Estimate(metric=0.9, loss=0.05, error=0.01, share=0.4, blocks=8)
    low, high = estimate.interval(0.9)
    lower, higher = estimate.interval(0.99)
    assert lower < low < 0.05 < high < higher


class TestStrategy:
    @pytest.mark.parametrize("answer", range(10))
    def test_every_answer_is_found(self, answer):
        bracket, costs, steps = Bracket(0, 10), ProbeCosts(1, 1.0, 1, 1.0), 0
        while not bracket.closed:
            index = next_ratio(bracket, [1.0] * 10, costs)
            assert bracket.low < index < bracket.high
            bracket = bracket.after(index, within=index <= answer)
            steps += 1
        assert bracket.low == answer
        assert steps <= 4  # halving ten answers

    def test_dear_passes_are_avoided(self):
        """Where a pass takes all data and a fail little of it, one begins where fails are likely."""
        cheap_fails = ProbeCosts(1, 1.0, 1, 0.05)
        assert next_ratio(Bracket(0, 10), [1.0] * 10, cheap_fails) > next_ratio(
            Bracket(0, 10), [1.0] * 10, ProbeCosts(1, 1.0, 1, 1.0)
        )

    def test_others_tell_where_to_look(self):
        weights = likely_answers([Bracket(7, 8)] * 20, 9)
        assert np.argmax(weights) == 7
        assert next_ratio(Bracket(0, 10), weights, ProbeCosts(1, 1.0, 1, 1.0)) in (7, 8)

    def test_costs_are_learnt(self):
        costs = ProbeCosts()
        for _ in range(50):
            costs.learn(True, 0.9)
            costs.learn(False, 0.1)
        assert costs.of_a_pass == pytest.approx(0.9, abs=0.01)
        assert costs.of_a_fail == pytest.approx(0.1, abs=0.02)
