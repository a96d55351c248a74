"""Ratios for a budget of cost (FLOPs, parameters): one option per group, least loss, cost under a limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from dysens.costs import Costs
from dysens.errors import InputError, UnreachableError
from dysens.flags import flag
from dysens.ratios._by_loss import Curve, loss_between, predicted_curve
from dysens.ratios._cost_table import AnyCost, CostTable, OptionIndex, TermCost
from dysens.ratios._target import checked_number, ratio_key

EPSILON = 1e-12

MAX_SWEEPS = 20
MAX_PRICES = 40
MAX_SWAPS = 1_500
"""Swapping looks at all pairs of groups; on a large network it stops after this many."""


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
        UnreachableError: The measured ratios cannot remove so much; the message says how much they do.
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
            f"Nothing was measured for {name}, so its loss cannot be predicted; leave it out or sweep it."
        )
    ratios = {
        0.0,
        *(ratio_key(checked_number(f"A candidate ratio of {name}", ratio)) for ratio in candidates),
    }
    outside = [ratio for ratio in ratios if not 0 <= ratio < 1]
    if outside:
        raise InputError(f"The candidate ratios of {name} must be at least 0 and under 1, not {outside[0]}.")
    known = predicted_curve({ratio_key(ratio): loss for ratio, loss in curve.items()})
    rated = [(ratio, loss_between(known, ratio)) for ratio in sorted(ratios)]
    return [(ratio, loss) for ratio, loss in rated if math.isfinite(loss)]


class BudgetSearch:
    """Chooses one option per group.

    The cost of a group depends on what its neighbours keep (a conv costs inputs times outputs), so groups
    cannot be weighed one by one. A price per share of cost is bisected; at each price every group in turn
    takes the option that is best while the others stand still. The choice that just meets the target is then
    improved by raising one group so that another can be lowered by more. PaddleSlim's choice, one loss
    threshold for all groups, is a second start, so the result is never worse than that.

    Args:
        options: Per group the (ratio, loss) pairs to choose from; both rise, and the first is (0, 0).
        costs: What remains for one option per group; must not rise with a ratio.
        target: Share of the cost to remove.
    """

    def __init__(
        self, options: Mapping[str, Sequence[tuple[float, float]]], costs: CostTable, target: float
    ) -> None:
        self._names = list(options)
        self._options = list(options.values())
        self._losses = [np.array([loss for _, loss in choices]) for choices in self._options]
        self._costs = costs
        self._nothing: OptionIndex = (0,) * len(self._names)
        self._everything: OptionIndex = tuple(len(choices) - 1 for choices in self._options)
        self._full_cost = costs.of(self._nothing)
        self._limit = self._full_cost * (1 - target + EPSILON)
        if not self._fits(self._everything):
            reachable = 1 - costs.of(self._everything) / self._full_cost
            raise UnreachableError(
                f"{target:.1%} of the cost cannot be removed: the largest ratios that are allowed "
                f"and measured remove {reachable:.1%}. Ask for less, measure higher ratios (they are added to the same "
                f"journal), or skip fewer groups ({flag('skip_vars')})."
            )

    def best(self) -> dict[str, float]:
        """The ratio of every group in the best choice found."""
        below, above = self._bisect_price()
        starts = {above, self._complete(below), self._by_threshold()}
        trimmed = sorted({self._trim(start) for start in starts}, key=self._rank)
        return self._ratios_of(min((self._swap(start) for start in trimmed), key=self._rank))

    def _rank(self, choice: OptionIndex) -> tuple[float, float, OptionIndex]:
        """What is least in the best choice: the loss, then how much is pruned for it."""
        pruned = math.fsum(options[index][0] for options, index in zip(self._options, choice))
        return (round(self._loss_of(choice), 12), pruned, choice)

    def _ratios_of(self, choice: OptionIndex) -> dict[str, float]:
        return {name: options[index][0] for name, options, index in zip(self._names, self._options, choice)}

    def _loss_of(self, choice: OptionIndex) -> float:
        return math.fsum(options[index][1] for options, index in zip(self._options, choice))

    def _fits(self, choice: OptionIndex) -> bool:
        return self._costs.of(choice) <= self._limit

    def _bisect_price(self) -> tuple[OptionIndex, OptionIndex]:
        """The last choice that misses the target and the best that meets it, as the price narrows."""
        below, above = self._nothing, self._everything
        cheap, price, dear = 0.0, 1.0, math.inf
        for _ in range(MAX_PRICES):
            choice = self._at_price(price, below)
            if self._fits(choice):
                dear, above = price, min(above, choice, key=self._rank)
            else:
                cheap, below = price, choice
            if dear - cheap < dear / 1000:
                break
            price = _between(cheap, dear)
        return below, above

    def _at_price(self, price: float, choice: OptionIndex) -> OptionIndex:
        """Gives each group its best option at this price, until none changes."""
        for _ in range(MAX_SWEEPS):
            before = choice
            for group in range(len(choice)):
                choice = self._best_move(choice, group, price)
            if choice == before:
                break
        return choice

    def _best_move(self, choice: OptionIndex, group: int, price: float) -> OptionIndex:
        paid = self._losses[group] + price * self._costs.along(choice, group) / self._full_cost
        return _moved(choice, group, int(paid.argmin()))

    def _complete(self, choice: OptionIndex) -> OptionIndex:
        """Raises one group at a time, where cost goes for the least loss, until the target is met."""
        while not self._fits(choice):
            choice = min(self._priced_steps(choice))[1]
        return choice

    def _priced_steps(self, choice: OptionIndex) -> Iterable[tuple[float, OptionIndex]]:
        """The best way to raise each group, with the loss that it takes for each bit of cost that goes."""
        for group, index in enumerate(choice):
            if index + 1 < len(self._losses[group]):
                costs = self._costs.along(choice, group)
                removed = costs[index] - costs[index + 1 :]
                more = self._losses[group][index + 1 :] - self._losses[group][index]
                prices = np.divide(more, removed, out=np.full(len(more), math.inf), where=removed > 0)
                yield float(prices.min()), _moved(choice, group, index + 1 + int(prices.argmin()))

    def _by_threshold(self) -> OptionIndex:
        """The choice under the lowest common loss threshold that meets the target."""
        losses = sorted({loss for options in self._options for _, loss in options})
        low, high = 0, len(losses) - 1
        while low < high:
            middle = (low + high) // 2
            if self._fits(self._under(losses[middle])):
                high = middle
            else:
                low = middle + 1
        return self._under(losses[low]) if losses else self._nothing

    def _under(self, threshold: float) -> OptionIndex:
        return tuple(sum(loss <= threshold for _, loss in options) - 1 for options in self._options)

    def _trim(self, choice: OptionIndex) -> OptionIndex:
        """Lowers groups as long as the target is still met, the dearest first."""
        for group in sorted(range(len(choice)), key=lambda g: (-self._options[g][choice[g]][1], g)):
            choice = self._lowered(choice, group)
        return choice

    def _lowered(self, choice: OptionIndex, group: int) -> OptionIndex:
        """The choice with one group as low as the target allows."""
        fitting = np.flatnonzero(self._costs.along(choice, group)[: choice[group]] <= self._limit)
        return _moved(choice, group, int(fitting[0])) if len(fitting) else choice

    def _swap(self, choice: OptionIndex) -> OptionIndex:
        """Raises one group so that another can be lowered by more, until no pair gains."""
        tried, improved = 0, True
        while improved:
            improved, rank = False, self._rank(choice)
            for swapped, gain in self._swaps(choice):
                tried += 1
                if tried > MAX_SWAPS:
                    return choice
                if gain > -EPSILON and self._rank(swapped) < rank:
                    choice, improved = self._trim(swapped), True
                    break
        return choice

    def _swaps(self, choice: OptionIndex) -> Iterable[tuple[OptionIndex, float]]:
        """Choices with one group raised and another lowered, and how much less they lose."""
        raised = [
            (float(losses[higher] - losses[index]), group, higher)
            for group, (index, losses) in enumerate(zip(choice, self._losses))
            for higher in range(index + 1, len(losses))
        ]
        now = [options[index][1] for options, index in zip(self._options, choice)]
        for extra, group, higher in sorted(raised):
            step = _moved(choice, group, higher)
            for other, loss in enumerate(now):
                if other != group and loss > extra:
                    swapped = self._lowered(step, other)
                    yield swapped, loss - self._options[other][swapped[other]][1] - extra


def _between(cheap: float, dear: float) -> float:
    """The next price to try: doubled or cut to a quarter while only one side is known, then the middle."""
    if math.isinf(dear):
        return cheap * 2
    return (cheap + dear) / 2 if cheap else dear / 4


def _moved(choice: OptionIndex, group: int, index: int) -> OptionIndex:
    return (*choice[:group], index, *choice[group + 1 :])
