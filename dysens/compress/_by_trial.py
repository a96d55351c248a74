"""Allocating by trial: how much the error of each layer counts is tried out on the whole network.

Estimates look at one layer at a time, or at small errors. Where a network amplifies what some of its layers get wrong, as
recognisers of text do, none of them foresees which, and the cut that they propose is much worse than it has to be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dysens.errors import UnreachableError
from dysens.ratios import Curve

Curves = Mapping[str, Curve]
Ratios = Mapping[str, float]

# An evolution strategy: in every generation a few children of the best, drawn at some distance; the distance grows with success.
_GENERATIONS, _CHILDREN = 10, 4
_DISTANCE, _FARTHER, _NEARER = 0.7, 1.3, 0.75
# So many generations without success end it: most networks have nothing to be found.
_PATIENCE = 3

MOST = _GENERATIONS * _CHILDREN
"""So many cuts are compared at most."""


def curves_by_trial(
    start: Curves,
    error: float,
    allocate: Callable[[Curves], Ratios],
    errors: Callable[[Sequence[Ratios]], Sequence[float]],
    advance: Callable[[int], None] = lambda done: None,
) -> tuple[dict[str, Curve], float]:
    """Weigh the curves of groups so that the allocation by them comes nearest to the whole network's outputs.

    Args:
        start: A curve for every group.
        error: What the allocation by these reaches.
        allocate: The ratios for the budget by some curves; an UnreachableError if there are none.
        errors: Of the cuts with some ratios.
        advance: Called with the number of cuts compared so far.

    Returns:
        The weighed curves, and the error that is reached by them.
    """
    random = np.random.default_rng(0)  # the same data give the same cut
    best, distance, in_vain = np.zeros(len(start)), _DISTANCE, 0
    for generation in range(_GENERATIONS):
        proposed: list[tuple[np.ndarray, Ratios]] = []
        for child in best + distance * random.standard_normal((_CHILDREN, len(start))):
            try:
                proposed.append((child, allocate(_weighed(start, child))))
            except UnreachableError:
                continue
        found = errors([ratios for _, ratios in proposed])
        nearest = min(found, default=math.inf)
        if nearest < error:
            best, error = proposed[list(found).index(nearest)][0], nearest
            distance, in_vain = distance * _FARTHER, 0
        else:
            distance, in_vain = distance * _NEARER, in_vain + 1
        advance((generation + 1) * _CHILDREN)
        if in_vain == _PATIENCE:
            break
    return _weighed(start, best), error


def _weighed(curves: Curves, logarithms: np.ndarray) -> dict[str, Curve]:
    """Every curve times its weight."""
    return {
        name: {ratio: value * math.exp(weight) for ratio, value in curve.items()}
        for (name, curve), weight in zip(curves.items(), logarithms)
    }
