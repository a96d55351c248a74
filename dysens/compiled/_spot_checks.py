"""Which of the calls that a compiled copy serves are compared with the live model: a small share, at random."""

from __future__ import annotations

import random

# What comparing may cost, as a share of what serving costs.
_BUDGET = 0.008
_LARGEST_SHARE = 0.05


class SpotChecks:
    """Picks calls, the same ones in every run.

    Calls are counted in stretches, and one call of each stretch is picked at random: however many there are, the picks are
    spread over all of them.

    Example:
        >>> checks = SpotChecks(live_seconds=0.2, served_seconds=0.1)
        >>> sum(checks.due() for _ in range(2500))
        10
    """

    def __init__(self, live_seconds: float, served_seconds: float) -> None:
        """Say what a call takes."""
        share = min(_BUDGET * served_seconds / max(live_seconds, 1e-9), _LARGEST_SHARE)
        self._stretch = round(1 / max(share, 1e-6))
        self._random = random.Random(0)
        self._position = 0
        self._pick = self._random.randrange(self._stretch)

    def due(self) -> bool:
        """Whether the next call is one of them."""
        picked = self._position == self._pick
        self._position += 1
        if self._position == self._stretch:
            self._position, self._pick = 0, self._random.randrange(self._stretch)
        return picked
