"""From loss curves to pruning ratios: by a loss threshold, or by a budget of cost (FLOPs, parameters)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from dysens.errors import InputError
from dysens.pruning.costs import Costs
from dysens.ratios._budget import BudgetSearch
from dysens.ratios._cost_table import AnyCost, CostTable, TermCost
from dysens.results.points import checked_number, ratio_key

Curve = Mapping[float, float]
"""Ratio to loss of one group."""


def monotone_envelope(curve: Curve) -> dict[float, float]:
    """The running maximum of the losses by rising ratio: noise can't make more pruning look cheaper.

    Example:
        >>> monotone_envelope({0.1: 0.02, 0.2: 0.01, 0.3: 0.5})
        {0.1: 0.02, 0.2: 0.02, 0.3: 0.5}
    """
    ratios = sorted(curve)
    return dict(zip(ratios, accumulate((curve[ratio] for ratio in ratios), max)))


def ratios_by_loss(curves: Mapping[str, Curve], threshold: float, monotone: bool = False) -> dict[str, float]:
    """PaddleSlim's choice of ratios for a loss that every single group may cost.

    Per group it is the highest measured ratio whose loss is at or under the threshold, moved towards the next
    measured ratio by linear interpolation.

    Args:
        curves: Loss by ratio, per group.
        threshold: The loss that one group may cost.
        monotone: Use the monotone envelope of each curve, so that one lucky point far out doesn't count.

    Returns:
        Ratio per group; a group whose losses are all above the threshold is left out.

    Example:
        >>> ratios_by_loss({"conv2d_0.w_0": {0.1: 0.0, 0.2: 0.04, 0.4: 0.06}}, 0.05)
        {'conv2d_0.w_0': 0.30000000000000004}
    """
    threshold = checked_number("The loss threshold", threshold)
    if math.isnan(threshold):
        raise InputError("The loss threshold must be a number, not NaN.")
    chosen = {}
    for name, curve in curves.items():
        ratio = _crossing(monotone_envelope(curve) if monotone else curve, threshold)
        if ratio is not None:
            chosen[name] = ratio
    return chosen


def _crossing(curve: Curve, threshold: float) -> float | None:
    points = sorted((float(ratio), float(loss)) for ratio, loss in curve.items())
    admitted = [index for index, (_, loss) in enumerate(points) if loss <= threshold]
    if not admitted:
        return None
    ratio, loss = points[admitted[-1]]
    if admitted[-1] == len(points) - 1:
        return ratio
    next_ratio, next_loss = points[admitted[-1] + 1]
    if not math.isfinite(next_loss):
        return ratio
    return ratio + (threshold - loss) * (next_ratio - ratio) / (next_loss - loss)


def predicted_loss(curve: Curve, ratio: float) -> float:
    """The loss to expect at any ratio: linear between the points of the monotone envelope, which starts at 0
    for 0.

    Beyond the highest measured ratio nothing is known, and the loss is infinite.

    Example:
        >>> predicted_loss({0.2: 0.1, 0.4: 0.3}, 0.1)
        0.05
    """
    below_ratio, below_loss = 0.0, 0.0
    for above_ratio, above_loss in monotone_envelope({**curve, 0.0: 0.0}).items():
        if ratio == above_ratio:
            return above_loss
        if ratio < above_ratio:
            step = (ratio - below_ratio) / (above_ratio - below_ratio)
            return below_loss + step * (above_loss - below_loss)
        below_ratio, below_loss = above_ratio, above_loss
    return math.inf


def ratios_for_budget(
    curves: Mapping[str, Curve],
    cost: Callable[[Mapping[str, float]], float],
    target: float,
    candidates: Mapping[str, Sequence[float]],
) -> dict[str, float]:
    """Ratios that remove a share of the cost at the least sum of predicted losses.

    The search is a heuristic (see `BudgetSearch`) that gives the same answer every time.

    Args:
        curves: Measured loss by ratio, per group; see `predicted_loss`.
        cost: Remaining cost of the network for ratios of all groups in ``candidates``; must not rise with a
            ratio.
        target: Share of the cost to remove, from 0 up to but not including 1.
        candidates: Ratios that each group may take (0 is always allowed). Those beyond the highest measured
            ratio, or with no finite loss, are not used.

    Returns:
        The chosen ratio of every group that is pruned at all.

    Raises:
        UnreachableError: Even the largest usable candidates remove less; the message says how much they do.
    """
    return _searched(curves, candidates, lambda ratios: AnyCost(ratios, cost), target)


def ratios_by_flops(
    curves: Mapping[str, Curve], costs: Costs, target: float, align: int | None = None
) -> dict[str, float]:
    """Ratios that remove this share of the FLOPs at the least sum of predicted losses.

    Args:
        curves: Measured loss by ratio, per group.
        costs: What the model costs at any ratios; it has to know all groups of ``curves``.
        target: Share of the FLOPs to remove, 0.5 for half of them.
        align: Leave a multiple of so many channels in every group that is cut.

    Raises:
        UnreachableError: The measured ratios can't remove so much; the message says how much they do.
    """
    return _by_terms(curves, costs, [term.flops for term in costs.terms], target, align)


def ratios_by_params(
    curves: Mapping[str, Curve], costs: Costs, target: float, align: int | None = None
) -> dict[str, float]:
    """The same for a share of the parameters."""
    return _by_terms(curves, costs, [term.params for term in costs.terms], target, align)


def _by_terms(
    curves: Mapping[str, Curve], costs: Costs, coefficients: Sequence[float], target: float, align: int | None
) -> dict[str, float]:
    candidates = {name: costs.group(name).candidates(align) for name in curves}
    return _searched(curves, candidates, lambda ratios: TermCost(ratios, costs, coefficients), target)


def _searched(
    curves: Mapping[str, Curve],
    candidates: Mapping[str, Sequence[float]],
    table: Callable[[Mapping[str, Sequence[float]]], CostTable],
    target: float,
) -> dict[str, float]:
    target = checked_number("The share to remove", target)
    if not 0 <= target < 1:
        raise InputError(f"The share to remove must be at least 0 and under 1, not {target}.")
    options = {name: _options(name, curves.get(name, {}), allowed) for name, allowed in candidates.items()}
    costs = table({name: [ratio for ratio, _ in pairs] for name, pairs in options.items()})
    ratios = BudgetSearch(options, costs, target).best()
    return {name: ratio for name, ratio in ratios.items() if ratio > 0}


def _options(name: str, curve: Curve, candidates: Sequence[float]) -> list[tuple[float, float]]:
    """The usable ratios of a group, rising, each with its predicted loss; the first is (0, 0)."""
    if not curve:
        raise InputError(
            f"Nothing was measured for {name}, so its loss can't be predicted; leave it out or sweep it."
        )
    ratios = {
        0.0,
        *(ratio_key(checked_number(f"A candidate ratio of {name}", ratio)) for ratio in candidates),
    }
    outside = [ratio for ratio in ratios if not 0 <= ratio < 1]
    if outside:
        raise InputError(f"The candidate ratios of {name} must be at least 0 and under 1, not {outside[0]}.")
    tidy = {ratio_key(ratio): loss for ratio, loss in curve.items()}
    rated = [(ratio, predicted_loss(tidy, ratio)) for ratio in sorted(ratios)]
    return [(ratio, loss) for ratio, loss in rated if math.isfinite(loss)]
