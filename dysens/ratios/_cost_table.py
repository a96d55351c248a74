"""Costs for a search: what remains for one option per group, and for every option of one group at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from dysens.costs import Costs, lost

OptionIndex = tuple[int, ...]
"""The index of one option per group."""


class CostTable(Protocol):
    """What a search asks for."""

    def of(self, choice: OptionIndex) -> float:
        """What remains for a choice."""

    def along(self, choice: OptionIndex, group: int) -> np.ndarray:
        """What remains for every option of one group, while the others stand still."""


class AnyCost:
    """The table of any function of the ratios; it is called for every option.

    Args:
        ratios: The ratios to choose from, per group.
        cost: Remaining cost for one ratio per group.
    """

    def __init__(
        self, ratios: Mapping[str, Sequence[float]], cost: Callable[[Mapping[str, float]], float]
    ) -> None:
        self._ratios = ratios
        self._cost = cost
        self._known: dict[OptionIndex, float] = {}

    def of(self, choice: OptionIndex) -> float:
        """See `CostTable`."""
        if choice not in self._known:
            named = zip(self._ratios.items(), choice)
            self._known[choice] = float(self._cost({name: options[i] for (name, options), i in named}))
        return self._known[choice]

    def along(self, choice: OptionIndex, group: int) -> np.ndarray:
        """See `CostTable`."""
        options = range(len(list(self._ratios.values())[group]))
        return np.array([self.of((*choice[:group], i, *choice[group + 1 :])) for i in options])


class TermCost:
    """The table of described costs: only the terms that a group touches are computed anew.

    Args:
        ratios: The ratios to choose from, per group; the first is 0.
        costs: What the network costs.
        coefficients: One per term of ``costs``: its FLOPs, or its parameters.
    """

    def __init__(
        self, ratios: Mapping[str, Sequence[float]], costs: Costs, coefficients: Sequence[float]
    ) -> None:
        deepest = max((len(term.widths) for term in costs.terms), default=0)
        one = len(costs.widths)  # a width that never shrinks, to fill terms up with
        self._places = np.array(
            [[*term.widths, *[one] * (deepest - len(term.widths))] for term in costs.terms], dtype=int
        )
        self._coefficients = np.array(coefficients, dtype=float)
        # Whole numbers: what is taken away and given back leaves no rounding behind.
        self._left = np.array([*(width.size for width in costs.widths), 1], dtype=float)
        self._losing = [_losing(costs, name, options) for name, options in ratios.items()]
        self._terms = [
            np.flatnonzero(np.isin(self._places, np.flatnonzero(lose.any(axis=0))).any(axis=1))
            for lose in self._losing
        ]
        self._choice: OptionIndex = (0,) * len(self._losing)
        self._values = self._coefficients * self._left[self._places].prod(axis=1)

    def of(self, choice: OptionIndex) -> float:
        """See `CostTable`."""
        self._move_to(choice)
        return float(self._values.sum())

    def along(self, choice: OptionIndex, group: int) -> np.ndarray:
        """See `CostTable`."""
        self._move_to(choice)
        touched, losing = self._terms[group], self._losing[group]
        left = self._left + losing[choice[group]] - losing
        changing = (self._coefficients[touched] * left[:, self._places[touched]].prod(axis=2)).sum(axis=1)
        fixed = self._values.sum() - self._values[touched].sum()
        return np.asarray(fixed + changing)

    def _move_to(self, choice: OptionIndex) -> None:
        """Searches ask for neighbours of what they asked for last: only what differs is computed anew."""
        if choice == self._choice:
            return
        changed = [g for g, (before, now) in enumerate(zip(self._choice, choice)) if before != now]
        for group in changed:
            losing = self._losing[group]
            self._left += losing[self._choice[group]] - losing[choice[group]]
        self._choice = choice
        touched = np.concatenate([self._terms[group] for group in changed])
        self._values[touched] = self._coefficients[touched] * self._left[self._places[touched]].prod(axis=1)


def _losing(costs: Costs, name: str, ratios: Sequence[float]) -> np.ndarray:
    """What every width (across) loses at every ratio (down)."""
    group = costs.group(name)
    place = costs.groups.index(group)
    table = np.zeros((len(ratios), len(costs.widths) + 1))
    for column, width in enumerate(costs.widths):
        if place in width.losing:
            table[:, column] = [lost(width.losing[place], group.step_at(ratio)) for ratio in ratios]
    return table
