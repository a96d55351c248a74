"""Ratios for a budget that the cut model really keeps: predicted by costs, then counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dysens.errors import InputError, UnreachableError
from dysens.results._sensitivities import LossCurve, Sensitivities

# How often a budget that the real count misses by a little is asked for again, slightly higher.
_TRIES = 6
_MARGIN = 1e-4

Ratios = dict[str, float]


def curves_of(sens: Sensitivities, paths: Mapping[str, str]) -> dict[str, LossCurve]:
    """The loss curves of a model's groups, by the names that they have in this process.

    Args:
        sens: What was measured, here or elsewhere.
        paths: The model's groups: name to layer path.

    Raises:
        InputError: None of them was measured.
    """
    named = sens.renamed({path: name for name, path in paths.items()})
    # Automatic names repeat from network to network: where a layer path is known, it has to be the same.
    same = [name for name, path in paths.items() if name in named and named.paths.get(name, path) == path]
    if not same:
        raise InputError(
            "These sensitivities know none of this model's groups; were they measured on another model?"
        )
    return {name: named[name] for name in same}


def recounted(
    choose: Callable[[float], Ratios], removed: Callable[[Ratios], float], target: float, what: str
) -> Ratios:
    """Ratios that remove a share of the cost when the cut model is counted, not only as predicted.

    Args:
        choose: From the share to remove to ratios that are predicted to remove it.
        removed: From ratios to the share that they really remove.
        target: The share to remove.
        what: What is counted, for the message.

    Raises:
        UnreachableError: The count stays under the target.
    """
    aim, most = target, 0.0
    for _ in range(_TRIES):
        ratios = choose(aim)
        share = removed(ratios)
        if share >= target:
            return ratios
        aim, most = aim + target - share + _MARGIN, max(most, share)
    raise UnreachableError(
        f"No ratios remove {target:.1%} of the {what}; the closest found remove {most:.1%}."
    )
