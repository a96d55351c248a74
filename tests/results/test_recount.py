"""Budgets that the count has to confirm."""

from __future__ import annotations

import pytest

from dysens.errors import InputError, UnreachableError
from dysens.results import Point, Sensitivities, curves_of, recounted


def test_what_the_count_confirms_is_taken():
    asked = []

    def choose(aim):
        asked.append(aim)
        return {"a": aim}

    assert recounted(choose, lambda ratios: ratios["a"], 0.5, "FLOPs") == {"a": 0.5}
    assert asked == [0.5]


def test_a_prediction_that_is_a_little_off_is_raised_until_the_count_is_there():
    ratios = recounted(lambda aim: {"a": aim}, lambda ratios: 0.95 * ratios["a"], 0.5, "FLOPs")
    assert 0.5 <= 0.95 * ratios["a"] < 0.51


def test_a_count_that_never_gets_there_says_how_far_it_gets():
    shares = iter([0.2, 0.3, 0.25, 0.2, 0.2, 0.2])
    with pytest.raises(UnreachableError, match=r"No ratios remove 50\.0% of the FLOPs; .* remove 30\.0%"):
        recounted(lambda aim: {"a": aim}, lambda ratios: next(shares), 0.5, "FLOPs")


def measured(name, path):
    return Sensitivities([Point(name, path, 0.5, 0.9, 0.1, 1.0)], baseline=1.0)


def test_curves_are_found_by_path_where_it_is_known():
    assert list(curves_of(measured("conv2d_7.w_0", "stem.weight"), {"conv2d_0.w_0": "stem.weight"})) == [
        "conv2d_0.w_0"
    ]
    assert list(curves_of(measured("conv2d_0.w_0", ""), {"conv2d_0.w_0": "stem.weight"})) == ["conv2d_0.w_0"]


def test_the_same_name_at_another_path_is_another_group():
    with pytest.raises(InputError, match="know none of this model's groups"):
        curves_of(measured("conv2d_0.w_0", "head.weight"), {"conv2d_0.w_0": "stem.weight"})
