"""What the plots show, before anything is drawn."""

from __future__ import annotations

import math

import pytest

from dysens import DygraphSensitivity
from dysens.demos.digits import INPUT_SHAPE, DigitNet
from dysens.display import scale_top, short_names, shortened
from dysens.errors import InputError, UnreachableError
from dysens.pruning import PruneOutcome, PrunePlan
from dysens.report import (
    BudgetPoint,
    budget_points,
    curve_panels,
    layer_label,
    loss_table,
    width_table,
)
from dysens.results import Point, Sensitivities


def sens_of(*rows: tuple[str, str, float, float]) -> Sensitivities:
    points = [Point(name, path, ratio, None, loss) for name, path, ratio, loss in rows]
    return Sensitivities(points, baseline=0.9)


TWO = sens_of(
    ("conv2d_0.w_0", "stem.0.weight", 0.5, 0.2),
    ("conv2d_0.w_0", "stem.0.weight", 0.1, 0.0),
    ("conv2d_1.w_0", "block.conv.weight", 0.1, 0.3),
    ("conv2d_1.w_0", "block.conv.weight", 0.9, math.inf),
)


def test_panels_follow_the_model_and_rise() -> None:
    stem, block = curve_panels(TWO)
    assert (stem.label, stem.ratios, stem.losses) == ("stem.0", (0.1, 0.5), (0.0, 0.2))
    assert (block.label, block.ratios, block.unscored) == ("block.conv", (0.1,), (0.9,))


def test_a_threshold_marks_the_ratio_that_it_picks() -> None:
    stem, block = curve_panels(TWO, threshold=0.1)
    assert stem.chosen == pytest.approx(TWO.ratios_by_loss(0.1)["conv2d_0.w_0"])
    assert block.chosen is None
    assert [panel.chosen for panel in curve_panels(TWO)] == [None, None]


def test_the_table_has_a_gap_where_nothing_was_measured() -> None:
    table = loss_table(TWO)
    assert list(table.index) == ["stem.0", "block.conv"]
    assert list(table.columns) == [0.1, 0.5, 0.9]
    assert math.isnan(table.loc["stem.0", 0.9])
    assert math.isinf(table.loc["block.conv", 0.9])


def test_without_paths_the_parameter_names_are_shown() -> None:
    bare = sens_of(("conv2d_0.w_0", "", 0.5, 0.2), ("conv2d_1.w_0", "", 0.5, 0.2))
    assert list(loss_table(bare).index) == ["conv2d_0.w_0", "conv2d_1.w_0"]


@pytest.mark.parametrize("of", [curve_panels, loss_table])
def test_nothing_to_draw_is_said(of) -> None:
    with pytest.raises(InputError, match="no points"):
        of(Sensitivities([]))


@pytest.mark.parametrize(
    ("path", "label"), [("a.weight", "a"), ("a.w", "a.w"), ("weight", "weight"), (".weight", "")]
)
def test_labels_drop_what_all_end_in(path: str, label: str) -> None:
    assert layer_label(path) == label


@pytest.mark.parametrize(
    ("label", "short"),
    [
        ("stem.0", "stem.0"),
        ("ten.letter", "ten.letter"),
        ("backbone.stem.0.conv", "…0.conv"),
        ("a_name_without_dots", "…hout_dots"),
        ("ends_in_a_dot.", "…in_a_dot."),
    ],
)
def test_long_labels_keep_their_end(label: str, short: str) -> None:
    assert shortened(label, 10) == short


@pytest.mark.parametrize(
    ("losses", "top"),
    [([0.2, 0.4], 0.4), ([3.0, 0.1], 1.0), ([math.inf, 0.5], 0.5), ([-0.1], 0.01), ([], 0.01)],
)
def test_the_scale_ends_where_losses_say_something(losses: list[float], top: float) -> None:
    assert scale_top(losses) == top


def test_widths() -> None:
    outcome = PruneOutcome(10, 5, 4, 2, PrunePlan(()), (("conv2d_0.w_0", "stem.weight", 8, 6),))
    assert width_table(outcome).to_dict("records") == [{"layer": "stem", "before": 8, "after": 6}]


def test_widths_of_no_cut_are_said() -> None:
    with pytest.raises(InputError, match="Nothing was cut"):
        width_table(PruneOutcome(10, 10, 4, 4, PrunePlan(()), ()))


@pytest.fixture(scope="module")
def swept() -> tuple[DygraphSensitivity, Sensitivities]:
    """The demo's network with losses made up: the square of the ratio, in every group."""
    ds = DygraphSensitivity(DigitNet(), INPUT_SHAPE)
    rows = [(group.name, group.path, ratio, ratio**2) for group in ds.groups for ratio in (0.2, 0.4, 0.6)]
    return ds, sens_of(*rows)


def test_budgets_reach_what_they_promise(swept: tuple[DygraphSensitivity, Sensitivities]) -> None:
    ds, sens = swept
    points = budget_points(ds, sens, [0.5, 0.2])
    assert [point.removed >= budget for point, budget in zip(points, [0.2, 0.5])] == [True, True]
    assert 0 < points[0].loss < points[1].loss
    with ds.pruned(points[1].ratios) as outcome:
        assert 1 - outcome.flops_after / outcome.flops_before == pytest.approx(points[1].removed)


def test_budgets_out_of_reach_are_left_out(swept: tuple[DygraphSensitivity, Sensitivities]) -> None:
    points = budget_points(*swept, [0.2, 0.99])
    assert len(points) == 1
    assert isinstance(points[0], BudgetPoint)


def test_if_none_is_in_reach_it_is_said(swept: tuple[DygraphSensitivity, Sensitivities]) -> None:
    with pytest.raises(UnreachableError):
        budget_points(*swept, [0.99])


def test_short_names_of_different_layers_differ():
    layers = [
        f"{part}.backbone.stages.{stage}.blocks.0.conv"
        for part in ("Student", "Teacher")
        for stage in range(3)
    ]
    for length in (8, 12, 16, 24, 60):
        assert len(set(short_names(layers, length))) == len(layers)
    assert short_names(layers, 60) == layers
    assert max(map(len, short_names(layers, 30))) <= 30
    assert short_names(["same", "same"], 2) == ["…e", "…e"]
