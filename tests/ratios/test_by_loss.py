import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from results.common import golden_sensitivities

from dysens.errors import InputError
from dysens.ratios import monotone_envelope, predicted_loss, ratios_by_loss, scatter, threshold_segments

ratios = st.integers(1, 99).map(lambda number: number / 100)
losses = st.floats(-2, 2)
curves = st.dictionaries(ratios, losses, max_size=10)
thresholds = st.floats(-1, 1.5)


@pytest.mark.parametrize("name", ["mobilenet_v1", "tiny_resnet"])
@pytest.mark.parametrize("criterion", ["fpgm", "l1"])
def test_golden_ratios_of_paddleslim(name, criterion):
    sensitivities, expected = golden_sensitivities(name, criterion)
    chosen = ratios_by_loss(sensitivities, 0.05, monotone=False)
    assert chosen == pytest.approx(expected, abs=1e-12)


def test_the_highest_ratio_counts_after_a_bump_only_by_paddleslims_rule():
    bumpy = {0.1: 0.0, 0.2: 0.2, 0.3: 0.04, 0.4: 0.06}
    assert ratios_by_loss({"a": bumpy}, 0.05, monotone=False) == {"a": pytest.approx(0.35)}
    assert ratios_by_loss({"a": bumpy}, 0.05) == {"a": pytest.approx(0.125)}


def test_edges():
    assert ratios_by_loss({"a": {0.1: 0.2}, "b": {}}, 0.1) == {}
    assert ratios_by_loss({"a": {0.1: 0.05}}, 0.05) == {"a": 0.1}
    assert ratios_by_loss({"a": {0.9: 0.01, 0.1: 0.0}}, 0.05) == {"a": 0.9}
    assert ratios_by_loss({"a": {0.1: -0.2, 0.2: 0.1}}, 0.0) == {"a": pytest.approx(0.1 + 0.1 * 2 / 3)}


def test_no_score_admits_nothing_beyond_the_point_before():
    assert ratios_by_loss({"a": {0.1: 0.01, 0.2: math.inf}}, 0.05) == {"a": 0.1}
    assert ratios_by_loss({"a": {0.1: math.inf}}, 0.05) == {}
    for monotone, chosen in ((True, 0.1), (False, 0.3)):
        curve = {0.1: 0.01, 0.2: math.nan, 0.3: 0.02}
        assert ratios_by_loss({"a": curve}, 0.05, monotone) == {"a": chosen}


@pytest.mark.parametrize("threshold", [math.nan, None, "0.05"])
def test_a_threshold_is_a_number(threshold):
    with pytest.raises(InputError, match="threshold"):
        ratios_by_loss({}, threshold)


@given(curves, thresholds)
def test_the_choice_lies_between_measured_points_and_under_the_threshold(curve, threshold):
    for monotone in (False, True):
        used = monotone_envelope(curve) if monotone else curve
        chosen = ratios_by_loss({"a": curve}, threshold, monotone).get("a")
        admitted = [ratio for ratio, loss in used.items() if loss <= threshold]
        assert (chosen is None) == (not admitted)
        if chosen is not None:
            above = [ratio for ratio in used if ratio > max(admitted)]
            assert max(admitted) <= chosen <= min(above, default=max(admitted)) + 1e-12


@given(curves, thresholds)
def test_the_envelope_never_prunes_more(curve, threshold):
    plain, careful = (
        ratios_by_loss({"a": curve}, threshold, monotone).get("a", 0.0) for monotone in (False, True)
    )
    assert careful <= plain + 1e-12


@given(curves, st.booleans())
def test_segments_rise_and_meet_the_measured_points(curve, monotone):
    segments = threshold_segments(curve, monotone)
    assert [segment.loss for segment in segments] == sorted({segment.loss for segment in segments})
    assert [segment.ratio for segment in segments] == sorted({segment.ratio for segment in segments})
    assert bool(segments) == bool(curve)
    for segment in segments:
        assert segment.at(segment.loss) == segment.ratio
        assert segment.ratio in curve
    if segments:
        assert segments[-1].at(math.inf) == max(curve)


@given(curves)
def test_the_envelope_rises_and_covers_the_curve(curve):
    envelope = monotone_envelope(curve)
    assert list(envelope) == sorted(curve)
    assert list(envelope.values()) == sorted(envelope.values())
    assert all(envelope[ratio] >= loss for ratio, loss in curve.items())


@given(curves, st.floats(0, 0.999), st.floats(0, 0.999))
def test_predicted_losses_rise_from_zero(curve, one, other):
    low, high = sorted((one, other))
    assert predicted_loss(curve, 0.0) == 0.0
    assert 0 <= predicted_loss(curve, low) <= predicted_loss(curve, high) + 1e-12
    assert math.isinf(predicted_loss(curve, high)) == (high > max([0.0, *curve]))


def test_predicted_losses_meet_the_measured_ones():
    curve = {0.1: 0.01, 0.5: 0.3}
    assert [predicted_loss(curve, ratio) for ratio in (0.1, 0.5)] == [0.01, 0.3]
    assert predicted_loss(curve, 0.3) == pytest.approx(0.155)
    assert predicted_loss({0.1: 0.01, 0.2: math.inf}, 0.15) == math.inf


class TestAgainstPaddleSlim:
    """The real functions, where PaddleSlim is installed."""

    @pytest.fixture(scope="class")
    def slim_prune(self):
        pytest.importorskip("paddle", reason="PaddleSlim needs Paddle")
        return pytest.importorskip(
            "paddleslim.prune", reason="PaddleSlim 2.6.0 runs on the paddle26 stack only"
        )

    @pytest.fixture(scope="class")
    def slim_pruner(self, slim_prune):
        from paddleslim.dygraph.prune.filter_pruner import FilterPruner

        return FilterPruner

    @settings(deadline=None)
    @given(st.dictionaries(st.sampled_from("abc"), curves), thresholds)
    def test_the_dygraph_rule(self, slim_pruner, sensitivities, threshold):
        theirs = slim_pruner._get_ratios_by_loss(None, sensitivities, threshold)
        assert ratios_by_loss(sensitivities, threshold, monotone=False) == theirs

    @settings(deadline=None)
    @given(st.dictionaries(st.sampled_from("abc"), curves), thresholds)
    def test_the_static_rule(self, slim_prune, sensitivities, threshold):
        from dysens.compat import get_ratios_by_loss

        assert get_ratios_by_loss(sensitivities, threshold) == slim_prune.get_ratios_by_loss(
            sensitivities, threshold
        )

    @settings(deadline=None)
    @given(st.lists(st.dictionaries(st.sampled_from("abc"), curves), min_size=1, max_size=4))
    def test_merging(self, slim_prune, parts):
        from dysens.compat import merge_sensitive

        assert merge_sensitive(parts) == slim_prune.merge_sensitive(parts)


def test_scatter_is_what_a_rising_line_leaves() -> None:
    generator = np.random.default_rng(0)
    ratios = [round(0.01 * step, 2) for step in range(100)]
    curves = [{ratio: ratio + float(generator.normal(0, 0.05)) for ratio in ratios} for _ in range(20)]
    assert scatter(curves) == pytest.approx(0.05, rel=0.15)
    assert scatter([{0.1: 0.0, 0.2: 0.0, 0.3: 0.1}]) is None
    assert scatter([{0.1: 0.2, 0.2: float("inf"), 0.3: 0.1}]) == pytest.approx(0.1 / 2**0.5)
    assert scatter([]) is None
