"""How much is to be pruned, and numbers as they come from users and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from dysens.errors import InputError
from dysens.flags import flag

RATIO_DIGITS = 9
"""Ratios are rounded to this many digits, so that 0.1 + 0.2 and 0.3 are one ratio and 1/3 is not 0.33."""


def ratio_key(ratio: float) -> float:
    """The ratio without its float noise.

    Example:
        >>> ratio_key(0.1 + 0.2)
        0.3
    """
    return round(float(ratio), RATIO_DIGITS)


def checked_number(what: str, value: Any) -> float:
    """``value`` as a float (it may be a NumPy scalar); raise InputError for anything else."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{what} must be a number, not {value!r:.80}.")
    try:
        return float(value)
    except OverflowError as error:
        raise InputError(f"{what} is too large a number.") from error


@dataclass(frozen=True)
class Target:
    """How much is to be pruned: exactly one of the first three, or none after a search.

    Attributes:
        loss: The loss that every single group may cost.
        flops: Share of the FLOPs to remove.
        params: Share of the parameters to remove.
        align: Leave a multiple of so many channels, with ``flops`` or ``params``.
        monotone: With ``loss``: the cautious rule (see `ratios_by_loss`); False is PaddleSlim's.
    """

    loss: float | None = None
    flops: float | None = None
    params: float | None = None
    align: int | None = None
    monotone: bool = True

    def check(self, searched: bool = False) -> None:
        """Raise InputError unless exactly one of loss, FLOPs and parameters is given.

        Args:
            searched: Whether the ratios come from a search for a target loss.

        Raises:
            InputError: It is not so, or an option does not go with the target.
        """
        given = [flag(name) for name in ("loss", "flops", "params") if getattr(self, name) is not None]
        if searched and self.loss is not None:
            raise InputError(
                f"A search for a {flag('target_loss')} finds what each group may lose within it, so {flag('loss')} says it "
                "twice: leave one out."
            )
        if len(given) > 1 or (not given and not searched):
            raise InputError(
                f"Say how much to prune by one of {flag('loss')} (what each group may cost), {flag('flops')} or "
                f"{flag('params')} (share to remove)"
                + (f", not by {' and '.join(given)} at once." if given else ".")
            )
        if self.align is not None and self.flops is None and self.params is None:
            raise InputError(
                f"{flag('align')} goes with {flag('flops')} or {flag('params')}, not with a loss."
            )
        if not self.monotone and self.loss is None:
            raise InputError(f"PaddleSlim's rule is one for a loss: it goes with {flag('loss')} only.")


def by_path(ratios: Mapping[str, float], paths: Mapping[str, str]) -> dict[str, float]:
    """Ratios under layer paths, which are the same in every process, without those of 0.

    Args:
        ratios: By group name.
        paths: Group name to layer path; a group without one keeps its name.

    Raises:
        InputError: Nothing is left.
    """
    chosen = {paths.get(name, name): ratio for name, ratio in ratios.items() if ratio > 0}
    if not chosen:
        raise InputError(
            "No group may lose anything at that target; allow more loss, or measure smaller ratios."
        )
    return chosen
