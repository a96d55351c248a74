"""What a whole grid of losses says about the largest ratio within a target loss."""

from __future__ import annotations

from collections.abc import Mapping

TARGET = 0.02
RATIOS = [round(0.1 * step, 1) for step in range(10)]
Losses = Mapping[str, float]  # ratio, as JSON has it: loss


def last_before_the_first_beyond(losses: Losses) -> float:
    """The cautious choice: no smaller ratio loses more than the target."""
    beyond = min((float(ratio) for ratio, loss in losses.items() if loss > TARGET), default=1.0)
    return max((float(ratio) for ratio in losses if float(ratio) < beyond), default=0.0)


def largest_of_all(losses: Losses) -> float:
    """PaddleSlim's choice: the largest ratio that was measured within the target, whatever lies before it."""
    return max((float(ratio) for ratio, loss in losses.items() if loss <= TARGET), default=0.0)


def steps_between(one: float, other: float) -> int:
    """How many steps of the grid two ratios are apart."""
    return abs(RATIOS.index(round(one, 1)) - RATIOS.index(round(other, 1)))
