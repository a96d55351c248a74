"""Figures: that they can be drawn, with one layer and with many, and show what the data says."""

from __future__ import annotations

import gc
import math
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from dysens.errors import InputError
from dysens.pruning import PruneOutcome, PrunePlan
from dysens.report import BudgetPoint, flops_against_loss, heat_map, sensitivity_curves, widths
from dysens.results import Point, Sensitivities


def made_up(groups: int, baseline: float | None = 0.934) -> Sensitivities:
    points = [
        Point(
            f"conv2d_{i}.w_0",
            f"student.backbone.stages.{i // 6}.{i % 6}.conv.weight",
            ratio,
            None,
            i * ratio / 40,
        )
        for i in range(groups)
        for ratio in (0.1, 0.3, 0.5, 0.7, 0.9)
    ]
    return Sensitivities(points, baseline)


def outcome_of(groups: int) -> PruneOutcome:
    rows = tuple((f"conv2d_{i}.w_0", f"layer{i}.conv.weight", 16 + i, 8 + i) for i in range(groups))
    return PruneOutcome(1000, 600, 100, 70, PrunePlan(()), rows)


def saved(figure: Figure, folder: Path) -> int:
    """Draws the figure for real; returns the size of the picture."""
    figure.savefig(folder / "figure.png", dpi=40)
    return (folder / "figure.png").stat().st_size


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for axis in figure.axes for text in axis.texts]


@pytest.mark.parametrize("groups", [1, 2, 7, 60])
def test_a_panel_per_group(groups: int, tmp_path: Path) -> None:
    figure = sensitivity_curves(made_up(groups), threshold=0.05)
    assert len(figure.axes) == groups
    assert figure.axes[0].get_title().endswith(".0.0.conv")
    assert all(axis.get_legend() is None for axis in figure.axes)
    assert saved(figure, tmp_path) > 1000


def test_panels_share_one_scale() -> None:
    figure = sensitivity_curves(made_up(7))
    assert len({axis.get_ylim() for axis in figure.axes}) == 1


@pytest.mark.parametrize("groups", [1, 8, 60])
def test_a_row_per_group(groups: int, tmp_path: Path) -> None:
    figure = heat_map(made_up(groups))
    axis = figure.axes[0]
    assert len(axis.get_yticks()) == groups
    assert [label.get_text() for label in axis.get_xticklabels()] == ["0.1", "0.3", "0.5", "0.7", "0.9"]
    assert len(texts(figure)) == 5 * groups
    assert figure.get_figheight() > 0.2 * groups
    assert saved(figure, tmp_path) > 1000


def test_cells_without_a_score_say_so(tmp_path: Path) -> None:
    sens = Sensitivities(
        [Point("a.w_0", "a.weight", 0.5, None, math.inf), Point("a.w_0", "a.weight", 0.1, 0.9, -0.001)]
    )
    figure = heat_map(sens)
    assert sorted(texts(figure)) == ["0.00", "none"]
    assert saved(figure, tmp_path) > 1000


def test_nothing_scored_at_all_can_be_drawn(tmp_path: Path) -> None:
    sens = Sensitivities([Point("a.w_0", "a.weight", 0.5, None, math.inf)])
    assert saved(sensitivity_curves(sens), tmp_path) > 1000
    assert saved(heat_map(sens), tmp_path) > 1000


def test_losses_beyond_all_is_lost_do_not_flatten_the_rest() -> None:
    sens = Sensitivities(
        [Point("a.w_0", "a.weight", 0.5, 50.0, 400.0), Point("b.w_0", "b.weight", 0.5, 0.1, 0.2)]
    )
    assert sensitivity_curves(sens).axes[0].get_ylim()[1] < 1.2


def test_the_baseline_is_in_the_title_if_it_is_known() -> None:
    assert "0.934" in heat_map(made_up(2)).axes[0].get_title()
    assert "scores" not in heat_map(made_up(2, baseline=None)).axes[0].get_title()


@pytest.mark.parametrize("groups", [1, 60])
def test_a_bar_per_group(groups: int, tmp_path: Path) -> None:
    figure = widths(outcome_of(groups))
    assert texts(figure)[0] == " 16 → 8"
    assert len(texts(figure)) == groups
    assert "40.0%" in figure.axes[0].get_title()
    assert saved(figure, tmp_path) > 1000


def test_budgets_start_at_nothing_removed(tmp_path: Path) -> None:
    figure = flops_against_loss([BudgetPoint(0.4, 0.2), BudgetPoint(0.2, 0.05)])
    line = figure.axes[0].lines[0]
    assert list(line.get_xdata()) == [0, 0.2, 0.4]
    assert list(line.get_ydata()) == [0, 0.05, 0.2]
    assert saved(figure, tmp_path) > 1000


def test_no_budgets_are_said() -> None:
    with pytest.raises(InputError, match="no budgets"):
        flops_against_loss([])


def test_figures_need_no_pyplot_and_are_freed() -> None:
    loaded_before = "matplotlib.pyplot" in sys.modules
    for _ in range(3):
        heat_map(made_up(2))
    assert ("matplotlib.pyplot" in sys.modules) == loaded_before
    gc.collect()
    assert sum(isinstance(thing, Figure) for thing in gc.get_objects()) <= 1
