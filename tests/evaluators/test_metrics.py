from __future__ import annotations

import math

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dysens.errors import InputError
from dysens.evaluators import checked_baseline, metric_of, relative_loss


@pytest.mark.parametrize(
    "value",
    [
        0.25,
        np.float64(0.25),
        np.float16(0.25),
        np.array(0.25),
        np.array([[0.25]]),
        paddle.to_tensor(0.25),
        [0.25],
    ],
)
def test_one_number_in_any_clothes(value):
    assert metric_of(value) == 0.25


@pytest.mark.parametrize(
    "value", [None, "1", b"1", True, np.ones(2), [], {}, object(), [1, 2], paddle.ones([3])]
)
def test_what_is_not_one_number(value):
    with pytest.raises(InputError, match="The evaluation returned"):
        metric_of(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0, 0.0, -1e-9])
def test_baselines_that_no_loss_can_be_relative_to(value):
    with pytest.raises(InputError, match="The whole model scores"):
        checked_baseline(value)


@given(st.floats(1e-3, 1e3), st.floats(-10, 1e3))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_losses_are_paddleslims(baseline, metric):
    assert relative_loss(baseline, metric) == pytest.approx((baseline - metric) / (baseline + 1e-3))
    assert relative_loss(baseline, metric, higher_is_better=False) == -relative_loss(baseline, metric)
