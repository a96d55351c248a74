"""What the plots show, as plain data: `_plots` only draws it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pandas as pd

from dysens.errors import InputError, UnreachableError
from dysens.ratios import predicted_loss, ratios_by_loss
from dysens.results import Sensitivities, losses_by_ratio

if TYPE_CHECKING:
    from dysens.pruning import PruneOutcome


@dataclass(frozen=True)
class Panel:
    """The curve of one group.

    Attributes:
        label: The layer, without the ".weight" that all of them end in.
        ratios: Rising; measured and scored.
        losses: One per ratio.
        unscored: Ratios at which the model gave no finite score.
        chosen: The ratio that a loss threshold picks; None if there is no threshold, or if it leaves the group alone.
    """

    label: str
    ratios: tuple[float, ...]
    losses: tuple[float, ...]
    unscored: tuple[float, ...] = ()
    chosen: float | None = None


@dataclass(frozen=True)
class BudgetPoint:
    """What removing a share of the FLOPs is predicted to cost.

    Attributes:
        removed: Share of the FLOPs that the ratios remove, counted on the cut model.
        loss: Sum of the predicted losses of all groups.
        ratios: The choice of ratios behind it.
    """

    removed: float
    loss: float
    ratios: Mapping[str, float] = field(default_factory=dict)


class Chooser(Protocol):
    """The part of `DygraphSensitivity` that a plot over budgets needs."""

    def ratios_by_flops(self, sens: Sensitivities, target: float) -> dict[str, float]:
        """Ratios that remove this share of the FLOPs."""

    def pruned(self, ratios: Mapping[str, float]) -> AbstractContextManager[PruneOutcome]:
        """The model, cut for a while."""


def layer_label(path: str) -> str:
    """A weight's path as a person would name the layer.

    Example:
        >>> layer_label("backbone.stem.0.weight")
        'backbone.stem.0'
    """
    return path[: -len(".weight")] if path.endswith(".weight") else path


def curve_panels(sens: Sensitivities, threshold: float | None = None, monotone: bool = True) -> list[Panel]:
    """One panel per group, in the order of the model.

    Args:
        sens: What a sweep measured.
        threshold: A loss that picks a ratio in each group.
        monotone: By which rule it does: see `dysens.ratios.ratios_by_loss`.
    """
    _check_any(sens)
    chosen = ratios_by_loss(sens, threshold, monotone) if threshold is not None else {}
    labels = _labels(sens)
    panels = []
    for name, curve in sens.items():
        scored = {ratio: loss for ratio, loss in curve.items() if math.isfinite(loss)}
        unscored = tuple(ratio for ratio in curve if ratio not in scored)
        panels.append(Panel(labels[name], tuple(scored), tuple(scored.values()), unscored, chosen.get(name)))
    return panels


def loss_table(sens: Sensitivities) -> pd.DataFrame:
    """Layers down, ratios across; NaN where nothing was measured, infinite where there was no score."""
    _check_any(sens)
    return losses_by_ratio(sens).rename(index=_labels(sens))


def budget_points(ds: Chooser, sens: Sensitivities, budgets: Iterable[float]) -> list[BudgetPoint]:
    """The least predicted loss for every share of FLOPs to remove; shares out of reach are left out.

    Args:
        ds: The `DygraphSensitivity` that the sensitivities are of.
        sens: What its sweep measured.
        budgets: Shares of the FLOPs to remove, such as 0.1, 0.2 ... 0.7.

    Raises:
        UnreachableError: Not even the smallest share can be reached.
    """

    def removed(ratios: Mapping[str, float]) -> float:
        with ds.pruned(ratios) as outcome:
            return 1 - outcome.flops_after / outcome.flops_before

    return _budget_points(lambda budget: ds.ratios_by_flops(sens, budget), removed, sens, budgets)


def predicted_budget_points(sens: Sensitivities, budgets: Iterable[float]) -> list[BudgetPoint]:
    """The same without the network: FLOPs are predicted from the costs that a journal holds.

    Args:
        sens: From a journal that knows costs.
        budgets: Shares of the FLOPs to remove.

    Raises:
        InputError: Costs are not known.
        UnreachableError: Not even the smallest share can be reached.
    """

    def removed(ratios: Mapping[str, float]) -> float:
        assert sens.costs is not None  # else there were no ratios
        return 1 - sens.costs.flops(ratios) / sens.costs.whole_flops

    return _budget_points(sens.ratios_by_flops, removed, sens, budgets)


def _budget_points(
    choose: Callable[[float], dict[str, float]],
    removed: Callable[[Mapping[str, float]], float],
    sens: Sensitivities,
    budgets: Iterable[float],
) -> list[BudgetPoint]:
    points: list[BudgetPoint] = []
    for budget in sorted(budgets):
        try:
            ratios = choose(budget)
        except UnreachableError:
            if not points:
                raise
            break
        loss = math.fsum(predicted_loss(sens[name], ratio) for name, ratio in ratios.items())
        points.append(BudgetPoint(removed(ratios), loss, ratios))
    return points


def width_table(outcome: PruneOutcome) -> pd.DataFrame:
    """Layer, channels before and after, of every group that was cut."""
    if not outcome.widths:
        raise InputError("Nothing was cut, so there are no widths to draw.")
    rows = [(layer_label(path or name), before, after) for name, path, before, after in outcome.widths]
    return pd.DataFrame(rows, columns=["layer", "before", "after"])


def _check_any(sens: Sensitivities) -> None:
    if not len(sens):
        raise InputError(
            "These sensitivities hold no points, so there is nothing to draw; run a sweep first."
        )


def _labels(sens: Sensitivities) -> dict[str, str]:
    paths = sens.paths
    labels = {name: layer_label(paths.get(name, name)) for name in sens}
    return labels if _distinct(list(labels.values())) else {name: name for name in sens}


def _distinct(labels: Sequence[str]) -> bool:
    return len(set(labels)) == len(labels)
