"""Time as the target: the smallest cut that is really fast enough.

Budgets are made of two kinds. Layers' times, measured one by one, know which layers are slow for their FLOPs, but promise more
than the whole network keeps, and lure the cut into many small layers; FLOPs do not know time at all. Neither is the better one
everywhere, so both go as far as the target asks for, and the outputs decide.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from dysens.compress._decide import Decider
from dysens.compress._latency_target import Stopwatch
from dysens.errors import UnreachableError
from dysens.flags import flag

logger = logging.getLogger(__name__)

_BISECTIONS = 5
# Without knowing better, no budget is larger.
_MOST = 0.9


def for_latency(deciders: Sequence[Decider], share: float, stopwatch: Stopwatch) -> tuple[Decider, float]:
    """Who proposes the cut that takes this share less time with the nearest outputs, and its budget.

    Raises:
        UnreachableError: No cut does; the message says what was reached.
    """
    found: list[tuple[float, Decider, float]] = []
    refusals: list[UnreachableError] = []
    for decider in deciders:
        try:
            budget = _budget(decider, share, stopwatch)
        except UnreachableError as error:
            refusals.append(error)
            continue
        found.append((decider.best(budget).trial.output_error, decider, budget))
    if not found:
        raise refusals[0]
    _, decider, budget = min(found, key=lambda each: each[0])
    return decider, budget


def _budget(decider: Decider, share: float, stopwatch: Stopwatch) -> float:
    """By bisection, the smallest budget whose best cut really takes this share less time."""
    low, high = 0.0, min(_MOST, decider.allocator.most())
    what = decider.allocator.what
    found, most, budget = None, 0.0, 0.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        saved = _saved(decider, middle, stopwatch)
        logger.info("-%.1f%% %s: %.1f%% less time", 100 * middle, what, 100 * saved)
        if saved > most:
            most, budget = saved, middle
        if saved >= share:
            high, found = middle, middle
        else:
            low = middle
    if found is None:
        raise UnreachableError(
            f"No cut that was tried takes {share:.0%} less time; removing {budget:.1%} of the {what} takes {most:.0%} less. "
            f"Ask for less, or skip fewer groups ({flag('skip_vars')})."
        )
    return found


def _saved(decider: Decider, budget: float, stopwatch: Stopwatch) -> float:
    """The share of the time that the best cut for a budget saves."""
    with decider.subject.cut(decider.best(budget).plan):
        whole, now = stopwatch.times()
    decider.timed(budget, now)
    return 1 - now / whole
