"""Numbers as they come from users and files, and ratios as keys."""

from __future__ import annotations

from numbers import Real
from typing import Any

from dysens.errors import InputError

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
    """``value`` as a float (it may be a numpy scalar), or a sentence that says what is wrong with it."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{what} must be a number, not {value!r:.80}.")
    try:
        return float(value)
    except OverflowError as error:
        raise InputError(f"{what} is too large a number.") from error
