"""The search behind `ratios_for_budget`: one option per group, least loss, cost under a limit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dysens.errors import UnreachableError
from dysens.ratios._cost_table import Choice, CostTable

EPSILON = 1e-12

MAX_SWEEPS = 20
MAX_PRICES = 40
MAX_SWAPS = 1_500
"""Swapping looks at all pairs of groups; on a large network it stops after this many."""


class BudgetSearch:
    """Chooses one option per group.

    The cost of a group depends on what its neighbours keep (a conv costs inputs times outputs), so groups
    can't be weighed one by one. A price per share of cost is bisected; at each price every group in turn
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
        self._nothing: Choice = (0,) * len(self._names)
        self._everything: Choice = tuple(len(choices) - 1 for choices in self._options)
        self._full_cost = costs.of(self._nothing)
        self._limit = self._full_cost * (1 - target + EPSILON)
        if not self._fits(self._everything):
            reachable = 1 - costs.of(self._everything) / self._full_cost
            raise UnreachableError(
                f"A share of {target:.4g} of the cost can't be removed: the largest ratios that are allowed "
                f"and measured remove {reachable:.4g}. Ask for less, measure higher ratios, or skip fewer "
                "groups."
            )

    def best(self) -> dict[str, float]:
        """The ratio of every group in the best choice found."""
        below, above = self._bisect_price()
        starts = {above, self._complete(below), self._by_threshold()}
        trimmed = sorted({self._trim(start) for start in starts}, key=self._rank)
        return self._ratios_of(min((self._swap(start) for start in trimmed), key=self._rank))

    def _rank(self, choice: Choice) -> tuple[float, float, Choice]:
        """What is least in the best choice: the loss, then how much is pruned for it."""
        pruned = math.fsum(options[index][0] for options, index in zip(self._options, choice))
        return (round(self._loss_of(choice), 12), pruned, choice)

    def _ratios_of(self, choice: Choice) -> dict[str, float]:
        return {name: options[index][0] for name, options, index in zip(self._names, self._options, choice)}

    def _loss_of(self, choice: Choice) -> float:
        return math.fsum(options[index][1] for options, index in zip(self._options, choice))

    def _fits(self, choice: Choice) -> bool:
        return self._costs.of(choice) <= self._limit

    def _bisect_price(self) -> tuple[Choice, Choice]:
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

    def _at_price(self, price: float, choice: Choice) -> Choice:
        """Gives each group its best option at this price, until none changes."""
        for _ in range(MAX_SWEEPS):
            before = choice
            for group in range(len(choice)):
                choice = self._best_move(choice, group, price)
            if choice == before:
                break
        return choice

    def _best_move(self, choice: Choice, group: int, price: float) -> Choice:
        paid = self._losses[group] + price * self._costs.along(choice, group) / self._full_cost
        return _moved(choice, group, int(paid.argmin()))

    def _complete(self, choice: Choice) -> Choice:
        """Raises one group at a time, where cost goes for the least loss, until the target is met."""
        while not self._fits(choice):
            choice = min(self._priced_steps(choice))[1]
        return choice

    def _priced_steps(self, choice: Choice) -> Iterable[tuple[float, Choice]]:
        """The best way to raise each group, with the loss that it takes for each bit of cost that goes."""
        for group, index in enumerate(choice):
            if index + 1 < len(self._losses[group]):
                costs = self._costs.along(choice, group)
                removed = costs[index] - costs[index + 1 :]
                more = self._losses[group][index + 1 :] - self._losses[group][index]
                prices = np.divide(more, removed, out=np.full(len(more), math.inf), where=removed > 0)
                yield float(prices.min()), _moved(choice, group, index + 1 + int(prices.argmin()))

    def _by_threshold(self) -> Choice:
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

    def _under(self, threshold: float) -> Choice:
        return tuple(sum(loss <= threshold for _, loss in options) - 1 for options in self._options)

    def _trim(self, choice: Choice) -> Choice:
        """Lowers groups as long as the target is still met, the dearest first."""
        for group in sorted(range(len(choice)), key=lambda g: (-self._options[g][choice[g]][1], g)):
            choice = self._lowered(choice, group)
        return choice

    def _lowered(self, choice: Choice, group: int) -> Choice:
        """The choice with one group as low as the target allows."""
        fitting = np.flatnonzero(self._costs.along(choice, group)[: choice[group]] <= self._limit)
        return _moved(choice, group, int(fitting[0])) if len(fitting) else choice

    def _swap(self, choice: Choice) -> Choice:
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

    def _swaps(self, choice: Choice) -> Iterable[tuple[Choice, float]]:
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


def _moved(choice: Choice, group: int, index: int) -> Choice:
    return (*choice[:group], index, *choice[group + 1 :])
