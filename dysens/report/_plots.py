"""Plots of sensitivities, budgets and cuts. Each returns a matplotlib `Figure`; nothing is shown or written.

    heat_map(sens).savefig("heat_map.png")

Figures are made without pyplot, so they need no display, and are freed like any other object.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from dysens.display import loss_text, scale_top, short_names
from dysens.errors import InputError
from dysens.progress import in_notebook
from dysens.report._plot_data import BudgetPoint, Panel, curve_panels, loss_table, width_table
from dysens.results import Sensitivities

if TYPE_CHECKING:
    from dysens.pruning import PruneOutcome

_BLUE = "#1f5fa8"
_LIGHT = "#c9d7e8"
_RED = "#c0392b"
_GREY = "#8a8a8a"
_PANEL_COLUMNS = 6
_PANEL_LABEL = 26  # characters that fit above a panel
_ROW_INCHES = 0.24  # a row of a heat map or bar chart, high enough for its label


def sensitivity_curves(sens: Sensitivities, threshold: float | None = None, monotone: bool = True) -> Figure:
    """Loss against ratio, a small panel per group, all on one scale.

    Args:
        sens: What a sweep measured.
        threshold: Draw this loss as a line, and mark the ratio that it picks in each group.
        monotone: By which rule it does: the cautious one, or PaddleSlim's; see `dysens.ratios.ratios_by_loss`.
    """
    panels = curve_panels(sens, threshold, monotone)
    columns = min(_PANEL_COLUMNS, math.ceil(math.sqrt(len(panels))))
    rows = math.ceil(len(panels) / columns)
    figure = _new_figure(max(2.1 * columns, 4.5), 1.5 * rows + 0.8)
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat
    losses = [loss for panel in panels for loss in panel.losses]
    top = scale_top(losses)
    titles = short_names([panel.label for panel in panels], _PANEL_LABEL)
    for axis, panel, title in zip(axes, panels, titles):
        _draw_panel(axis, panel, title, top, threshold)
    for axis in axes[len(panels) :]:
        axis.remove()
    # The panels of the last row may have no neighbour below to carry the numbers.
    for axis in axes[max(len(panels) - columns, 0) : len(panels)]:
        axis.tick_params(labelbottom=True)
    lowest = min([0.0, *losses])
    axes[0].set(xlim=(0, 1), ylim=(max(lowest, -top) - 0.05 * top, 1.08 * top))
    marks = "" if threshold is None else f"\nred: a loss of {threshold:g}, and the ratio that it picks"
    figure.suptitle(f"Sensitivity by group{_baseline(sens)}{marks}", fontsize=10)
    figure.supxlabel("share of channels removed", fontsize=9)
    figure.supylabel("relative loss", fontsize=9)
    return figure


def _draw_panel(axis: Axes, panel: Panel, title: str, top: float, threshold: float | None) -> None:
    axis.axhline(0, color=_GREY, linewidth=0.5)
    axis.plot(panel.ratios, panel.losses, color=_BLUE, linewidth=1.4, marker="o", markersize=2.5)
    axis.fill_between(panel.ratios, 0, panel.losses, color=_BLUE, alpha=0.12, linewidth=0)
    axis.plot(panel.unscored, [top] * len(panel.unscored), "x", color=_RED, markersize=4)
    if threshold is not None:
        axis.axhline(threshold, color=_RED, linewidth=0.7, linestyle="--")
    if panel.chosen is not None:
        axis.axvline(panel.chosen, color=_RED, linewidth=0.9)
    axis.set_title(title, fontsize=7, pad=3)
    axis.tick_params(labelsize=6, length=2)
    axis.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    _quiet(axis)


def heat_map(sens: Sensitivities) -> Figure:
    """Loss by layer (down) and ratio (across): pale can go, dark has to stay."""
    table = loss_table(sens)
    labels, ratios = [str(label) for label in table.index], [float(ratio) for ratio in table.columns]
    values = table.to_numpy()
    top = scale_top(values.ravel())
    width = max(0.52 * len(ratios) + 0.075 * max(map(len, labels)) + 1.6, 4.5)
    figure = _new_figure(width, _ROW_INCHES * len(labels) + 1.3)
    axis = figure.subplots()
    # An unscored point is infinite, and gets the darkest colour; NaN (not measured) stays grey.
    axis.set_facecolor("#e6e6e6")
    picture = axis.imshow(values.clip(max=top), cmap="YlOrRd", vmin=0, vmax=top, aspect="auto")
    for row, losses in enumerate(values):
        for column, loss in enumerate(losses):
            if not math.isnan(loss):
                colour = "white" if loss > 0.6 * top else "black"
                axis.text(column, row, loss_text(loss), ha="center", va="center", fontsize=6, color=colour)
    axis.set_xticks(range(len(ratios)), [f"{ratio:g}" for ratio in ratios], fontsize=7)
    axis.set_yticks(range(len(labels)), labels, fontsize=7)
    axis.tick_params(length=0)
    axis.set_xlabel("share of channels removed", fontsize=9)
    axis.set_title(f"Relative loss{_baseline(sens)}", fontsize=10)
    for side in axis.spines.values():
        side.set_visible(False)
    bar = figure.colorbar(picture, ax=axis, fraction=0.05, pad=0.02, aspect=30)
    bar.ax.tick_params(labelsize=7)
    bar.outline.set_visible(False)
    return figure


def flops_against_loss(points: Sequence[BudgetPoint]) -> Figure:
    """Predicted loss against the share of FLOPs removed: where the curve turns up is where to stop.

    Args:
        points: From `plot_data.budget_points`.
    """
    if not points:
        raise InputError("There are no budgets to draw; budget_points(ds, sens, [0.1, 0.2, 0.3]) makes some.")
    figure = _new_figure(6, 3.8)
    axis = figure.subplots()
    ordered = sorted(points, key=lambda point: point.removed)
    removed = [0.0, *(point.removed for point in ordered)]
    losses = [0.0, *(point.loss for point in ordered)]
    axis.plot(removed, losses, color=_BLUE, linewidth=1.6, marker="o", markersize=4)
    axis.axhline(0, color=_GREY, linewidth=0.5)
    axis.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axis.set_xlim(left=0)
    axis.set_xlabel("FLOPs removed", fontsize=9)
    axis.set_ylabel("predicted loss (sum over groups)", fontsize=9)
    axis.set_title("What a FLOPs budget costs, before fine-tuning", fontsize=10)
    axis.tick_params(labelsize=8)
    axis.grid(color="#e3e3e3", linewidth=0.6)
    _quiet(axis)
    return figure


def widths(outcome: PruneOutcome) -> Figure:
    """Channels of every group that was cut, before (pale) and after (dark)."""
    table = width_table(outcome)
    labels = [str(label) for label in table["layer"]]
    rows = range(len(labels))
    figure = _new_figure(0.075 * max(map(len, labels)) + 6, _ROW_INCHES * len(labels) + 1.3)
    axis = figure.subplots()
    axis.barh(rows, table["before"], color=_LIGHT, height=0.72, label="before")
    axis.barh(rows, table["after"], color=_BLUE, height=0.72, label="after")
    for row, (before, after) in enumerate(zip(table["before"], table["after"])):
        axis.text(before, row, f" {before} → {after}", va="center", fontsize=6.5, color="#444444")
    axis.set_yticks(rows, labels, fontsize=7)
    axis.set_ylim(len(labels) - 0.4, -0.6)
    axis.set_xlim(0, 1.18 * max(table["before"]))
    axis.tick_params(axis="x", labelsize=7)
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel("channels", fontsize=9)
    saved = 1 - outcome.flops_after / outcome.flops_before if outcome.flops_before else 0.0
    axis.set_title(f"Widths before and after: {saved:.1%} fewer FLOPs", fontsize=10)
    axis.legend(fontsize=7, frameon=False, loc="best")
    _quiet(axis)
    return figure


def _new_figure(width: float, height: float) -> Figure:
    if in_notebook():
        # The notebook's own backend teaches it to show figures, and is not loaded before it is switched to.
        from matplotlib import pyplot

        pyplot.switch_backend(pyplot.get_backend())
    return Figure(figsize=(width, height), dpi=120, layout="constrained")


def _quiet(axis: Axes) -> None:
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _baseline(sens: Sensitivities) -> str:
    return "" if sens.baseline is None else f" (the whole model scores {sens.baseline:.4g})"
