import math

import numpy as np
import pytest

from dysens.errors import InputError
from dysens.ratios import ratio_key
from dysens.results import Point
from dysens.results._points import under_names

from .common import PATHS, header, point


def test_float_noise_in_a_ratio_is_gone():
    assert point(ratio=0.1 + 0.2).ratio == 0.3
    assert ratio_key(np.float32(0.1) * 3) != ratio_key(0.3)  # that is no noise, that is another ratio
    assert ratio_key(1 / 3) != ratio_key(0.33)


def test_numpy_scalars_become_floats():
    made = point(ratio=np.float64(0.5), metric=np.float32(0.25), loss=np.float64(0.5), seconds=np.int64(2))
    assert [type(value) for value in (made.ratio, made.metric, made.loss, made.seconds)] == [float] * 4


@pytest.mark.parametrize("metric", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_is_no_score(metric):
    made = point(metric=metric, loss=0.1)
    assert made.metric is None
    assert made.loss == math.inf


def test_a_loss_without_metric_stays():
    made = point(metric=None, loss=-0.1)
    assert (made.metric, made.loss) == (None, -0.1)


@pytest.mark.parametrize(
    "changes",
    [
        {"param": ""},
        {"param": None},
        {"param": "\ud800"},
        {"param": "a\0b"},
        {"path": None},
        {"ratio": 1},
        {"ratio": -0.1},
        {"ratio": math.nan},
        {"ratio": "0.3"},
        {"ratio": True},
        {"metric": "high"},
        {"loss": None},
        {"loss": 10**400},
        {"seconds": -1},
        {"seconds": math.inf},
        {"share": 0},
        {"share": 1.5},
        {"share": math.nan},
    ],
)
def test_wrong_values_are_refused_in_words(changes):
    with pytest.raises(InputError, match=r"must be|too large|needs|UTF-8|NUL"):
        point(**changes)


def test_only_the_whole_data_makes_a_full_point():
    assert point().full
    assert not point(share=0.999).full


@pytest.mark.parametrize("baseline", [math.nan, math.inf, None, "0.9"])
def test_a_header_needs_a_baseline(baseline):
    with pytest.raises(InputError, match="baseline"):
        header(baseline=baseline)


def test_differences_are_named():
    other = header(
        weights="beef",
        criterion="l1",
        evaluator="hmean",
        baseline=0.8,
        higher_is_better=False,
        model="BigNet",
    )
    clauses = "; ".join(header().differences(other))
    for word in (
        "c0ffee",
        "beef",
        "fpgm",
        "l1",
        "accuracy",
        "hmean",
        "0.9",
        "0.8",
        "higher",
        "lower",
        "BigNet",
    ):
        assert word in clauses


def test_noise_in_the_baseline_and_another_description_are_no_difference():
    assert header().differences(header(baseline=0.9 + 1e-9, model="TinyNet v2", paths={})) == []


def test_points_take_the_names_of_today():
    old = [
        Point("conv2d_7.w_0", "block.conv.weight", 0.2, 0.8, 0.1),
        Point("conv2d_1.w_0", "stem.0.weight", 0.2, 0.8, 0.2),
        Point("conv2d_0.w_0", "removed.weight", 0.2, 0.8, 0.3),  # this name is now another layer's
        Point("conv2d_9.w_0", "elsewhere.weight", 0.2, 0.8, 0.4),
    ]
    named = [(p.param, p.path, p.loss) for p in under_names(old, PATHS)]
    assert named == [
        ("conv2d_0.w_0", "stem.0.weight", 0.2),
        ("conv2d_1.w_0", "block.conv.weight", 0.1),
        ("conv2d_9.w_0", "elsewhere.weight", 0.4),
    ]
