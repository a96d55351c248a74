"""Which ratio to try next: halving a grid, where a pass and a fail need not cost the same and some answers are likelier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache


@dataclass(frozen=True)
class Bracket:
    """What is known of one group.

    Attributes:
        low: The index of the largest ratio known to be within the target; 0 stands for removing nothing.
        high: The index of the smallest ratio known to be beyond it; one past the grid stands for none.
    """

    low: int
    high: int

    @property
    def closed(self) -> bool:
        """Whether nothing is left to try."""
        return self.high - self.low <= 1

    def after(self, index: int, within: bool) -> Bracket:
        """What is known once a ratio was tried."""
        return replace(self, low=index) if within else replace(self, high=index)


@dataclass
class ProbeCosts:
    """What trying a ratio takes, in passes over the data: learnt from what was tried."""

    passes: int = 1
    pass_cost: float = 1.0
    fails: int = 1
    fail_cost: float = 0.5

    def learn(self, within: bool, cost: float) -> None:
        """Note what a ratio took."""
        if within:
            self.passes += 1
            self.pass_cost += cost
        else:
            self.fails += 1
            self.fail_cost += cost

    @property
    def of_a_pass(self) -> float:
        """The mean cost of finding a ratio within the target."""
        return self.pass_cost / self.passes

    @property
    def of_a_fail(self) -> float:
        """The mean cost of finding a ratio beyond it."""
        return self.fail_cost / self.fails


def likely_answers(brackets: Iterable[Bracket], length: int) -> list[float]:
    """How likely each answer (index of the largest ratio within the target) is, going by all groups together."""
    weights = [1.0] * (length + 1)
    for bracket in brackets:
        for index in range(bracket.low, bracket.high):
            weights[index] += 1 / (bracket.high - bracket.low)
    return weights


def next_ratio(bracket: Bracket, weights: Sequence[float], costs: ProbeCosts) -> int:
    """The index to try next, so that the expected cost of closing the bracket is least.

    Example:
        >>> next_ratio(Bracket(0, 10), [1.0] * 10, ProbeCosts(1, 1.0, 1, 1.0))
        4
    """

    @cache
    def best(low: int, high: int) -> tuple[float, int]:
        if high - low <= 1:
            return 0.0, low
        whole = sum(weights[low:high])
        options = []
        for index in range(low + 1, high):
            within = sum(weights[index:high]) / whole
            passed = costs.of_a_pass + best(index, high)[0]
            failed = costs.of_a_fail + best(low, index)[0]
            options.append((within * passed + (1 - within) * failed, index))
        return min(options)

    return best(bracket.low, bracket.high)[1]
