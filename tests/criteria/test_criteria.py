from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dysens.criteria import (
    CRITERIA,
    GroupCriterion,
    check_criterion,
    compensates,
    criterion_name,
    fpgm,
    l1,
    l2,
    random,
)
from dysens.criteria._norms import scores_by
from dysens.errors import InputError

weights = arrays.arrays(
    "float32",
    arrays.array_shapes(min_dims=4, max_dims=4, max_side=5),
    elements=st.floats(-100, 100, width=32),
)


def fpgm_by_hand(weight: np.ndarray) -> np.ndarray:
    """As PaddleSlim computes it: a loop over pairs."""
    filters = weight.reshape(len(weight), -1).astype("float64")
    return np.array([sum(np.sqrt(((a - b) ** 2).sum()) for b in filters) for a in filters])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(weights)
def test_fpgm_is_the_sum_of_distances(weight):
    assert np.allclose(fpgm(weight), fpgm_by_hand(weight), rtol=1e-5, atol=1e-3)


def test_fpgm_of_filters_that_differ_little_and_lie_far_out():
    weight = (1000 + np.random.default_rng(0).normal(0, 1e-2, [20, 3, 3, 3])).astype("float32")
    assert np.allclose(fpgm(weight), fpgm_by_hand(weight), rtol=1e-4)


def test_fpgm_of_equal_filters_is_zero():
    assert fpgm(np.full([4, 2, 3, 3], 0.1, "float32")).tolist() == [0.0] * 4


def test_fpgm_prefers_to_keep_what_stands_apart():
    weight = np.zeros([4, 1, 1, 1])
    weight[3] = 5.0
    assert fpgm(weight).argmax() == 3


@settings(max_examples=30, deadline=None, derandomize=True)
@given(weights)
def test_l1_is_a_mean_and_l2_a_length(weight):
    assert np.allclose(l1(weight), np.abs(weight).mean(axis=(1, 2, 3)), rtol=1e-5, atol=1e-6)
    assert np.allclose(
        l2(weight), np.linalg.norm(weight.reshape(len(weight), -1), axis=1), rtol=1e-5, atol=1e-5
    )


def test_chance_is_the_same_at_every_call():
    weight = np.zeros([6, 2, 3, 3])
    assert random(weight).tolist() == random(weight).tolist()
    assert len(set(random(weight))) == 6


@pytest.mark.parametrize("name", CRITERIA)
def test_every_criterion_scores_every_filter(name):
    assert scores_by(name)(np.ones([5, 2, 3, 3])).shape == (5,)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(InputError, match='no criterion "fpmg"; did you mean "fpgm"'):
        scores_by("fpmg")
    with pytest.raises(InputError, match="known are fpgm, l1"):
        scores_by("zzzzzz")


def test_a_function_may_score():
    def first_weight(weight):
        return weight[:, 0, 0, 0]

    assert scores_by(first_weight)(np.arange(3.0).reshape(3, 1, 1, 1)).tolist() == [0, 1, 2]
    assert "first_weight" in criterion_name(first_weight)
    assert criterion_name("l1") == "l1"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            lambda weight: weight.sum(),
            r"one number for each of the 3 filters; it gave an array of shape \[\]",
        ),
        (lambda weight: np.zeros([3, 2]), r"shape \[3, 2\]"),
        (lambda weight: np.full(3, np.nan), "with NaN"),
    ],
)
def test_a_function_that_does_not_score_filters_is_told_so(wrong, said):
    with pytest.raises(InputError, match=said):
        scores_by(wrong)(np.zeros([3, 1, 1, 1]))


def test_anything_else_is_no_criterion():
    with pytest.raises(InputError, match=r"a function or a dysens\.GroupCriterion, not 3"):
        scores_by(3)


class Alike(GroupCriterion):
    def score(self, group, tensors):
        return np.zeros(group.size)


def test_a_group_criterion_is_called_by_its_class():
    """Not by its place in memory, which is another one in the next process."""
    check_criterion(Alike())
    assert criterion_name(Alike()) == "Alike"
    assert not compensates(Alike())
    with pytest.raises(InputError, match="criterion is the class Alike; give an object of it"):
        check_criterion(Alike)
    with pytest.raises(TypeError, match="score"):
        GroupCriterion()
