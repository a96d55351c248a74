"""What part of the data says about all of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dysens.sweep.deciding import Comparison


def mean(measurements: Sequence[float]) -> float:
    assert measurements, "a metric of nothing was asked for"
    return sum(measurements) / len(measurements)


def test_a_single_batch_decides_nothing_and_no_metric_of_nothing_is_asked_for() -> None:
    comparison = Comparison(mean, dict.fromkeys(range(5), 1.0), dict.fromkeys(range(5), 10), True)
    estimate = comparison.estimate({0: 0.5}, target=0.1)
    assert (estimate.metric, estimate.share) == (0.5, 0.2)
    assert math.isinf(estimate.error)
    assert not estimate.decides(0.1, confidence=0.95)
