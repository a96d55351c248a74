"""From loss curves to ratios by a loss threshold. Every program, plot and page chooses by the rule in here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import NamedTuple

from dysens.errors import InputError
from dysens.ratios._target import checked_number

Curve = Mapping[float, float]
"""Ratio to loss of one group."""


class Segment(NamedTuple):
    """A range of loss thresholds, and the line that the chosen ratio follows in it.

    Attributes:
        loss: The lowest threshold of the range; the range ends where the next segment begins.
        ratio: The ratio that is chosen there.
        next_loss: Where the line reaches ``next_ratio``; None if the ratio stays.
        next_ratio: The measured ratio that the line leads to.
    """

    loss: float
    ratio: float
    next_loss: float | None = None
    next_ratio: float | None = None

    def at(self, threshold: float) -> float:
        """The ratio that a threshold of this range chooses."""
        if self.next_loss is None or self.next_ratio is None:
            return self.ratio
        step = (threshold - self.loss) * (self.next_ratio - self.ratio)
        return self.ratio + step / (self.next_loss - self.loss)


def monotone_envelope(curve: Curve) -> dict[float, float]:
    """The running maximum of the losses by rising ratio: noise cannot make more pruning look cheaper.

    Example:
        >>> monotone_envelope({0.1: 0.02, 0.2: 0.01, 0.3: 0.5})
        {0.1: 0.02, 0.2: 0.02, 0.3: 0.5}
    """
    ratios = sorted(curve)
    # NaN compares with nothing, so that a maximum would pass it over: no score is an infinite loss.
    losses = (math.inf if math.isnan(curve[ratio]) else curve[ratio] for ratio in ratios)
    return dict(zip(ratios, accumulate(losses, max)))


def threshold_segments(curve: Curve, monotone: bool = True) -> list[Segment]:
    """The ratio that one group gets for any loss threshold, as lines: this is the rule of `ratios_by_loss`.

    Args:
        curve: Loss by ratio.
        monotone: See `ratios_by_loss`.

    Returns:
        Segments by rising threshold. Under the first one the group stays whole.

    Example:
        >>> [tuple(segment) for segment in threshold_segments({0.1: 0.0, 0.2: 0.04})]
        [(0.0, 0.1, 0.04, 0.2), (0.04, 0.2, None, None)]
    """
    used = monotone_envelope(curve) if monotone else curve
    points = sorted((float(ratio), float(loss)) for ratio, loss in used.items())
    segments: list[Segment] = []
    lowest_beyond = math.inf
    for index in range(len(points) - 1, -1, -1):
        ratio, loss = points[index]
        # Where a higher ratio costs no more, no threshold stops here. A point without a score is never chosen.
        if not (math.isfinite(loss) and loss < lowest_beyond):
            continue
        lowest_beyond = loss
        next_ratio, next_loss = points[index + 1] if index + 1 < len(points) else (ratio, math.inf)
        known = math.isfinite(next_loss)
        segments.insert(0, Segment(loss, ratio, next_loss, next_ratio) if known else Segment(loss, ratio))
    return segments


def ratios_by_loss(curves: Mapping[str, Curve], threshold: float, monotone: bool = True) -> dict[str, float]:
    """The ratio of each group for a loss that every single group may cost.

    Per group it is the highest measured ratio whose loss is at or under the threshold, moved towards the next
    measured ratio by linear interpolation.

    Args:
        curves: Loss by ratio, per group.
        threshold: The loss that one group may cost.
        monotone: The cautious rule: go by the monotone envelope of each curve, so that a lucky point beyond a high
            loss does not count. False is PaddleSlim's rule, which goes by the points as they were measured.

    Returns:
        Ratio per group; a group whose losses are all above the threshold is left out.

    Raises:
        InputError: The threshold is not a number.

    Example:
        >>> noisy = {"conv2d_0.w_0": {0.1: 0.0, 0.2: 0.1, 0.4: 0.05, 0.5: 0.3}}
        >>> ratios_by_loss(noisy, 0.05)
        {'conv2d_0.w_0': 0.15000000000000002}
        >>> ratios_by_loss(noisy, 0.05, monotone=False)
        {'conv2d_0.w_0': 0.4}
    """
    threshold = checked_number("The loss threshold", threshold)
    if math.isnan(threshold):
        raise InputError("The loss threshold must be a number, not NaN.")
    chosen = {}
    for name, curve in curves.items():
        reached = [segment for segment in threshold_segments(curve, monotone) if segment.loss <= threshold]
        if reached:
            chosen[name] = reached[-1].at(threshold)
    return chosen


def predicted_curve(curve: Curve) -> dict[float, float]:
    """The points between which `predicted_loss` is linear: the monotone envelope, which starts at 0 for 0."""
    return monotone_envelope({**curve, 0.0: 0.0})


def scatter(curves: Iterable[Curve]) -> float | None:
    """By how much measured losses scatter: the standard deviation of a point around a rising line.

    Each curve is fitted by the closest line that never falls (isotonic regression); what is left is noise of the
    metric. Points that were never measured twice, and curves that rise at every step, say nothing about it.

    Args:
        curves: Loss by ratio, of every group.

    Returns:
        The standard deviation of one point; None if no curve ever falls, so that nothing is known.

    Example:
        >>> round(scatter([{0.1: 0.0, 0.2: 0.02, 0.3: 0.0, 0.4: 0.5}]), 4)
        0.0141
        >>> scatter([{0.1: 0.0, 0.2: 0.1}]) is None
        True
    """
    squares, freedom = 0.0, 0
    for curve in curves:
        losses = [curve[ratio] for ratio in sorted(curve) if math.isfinite(curve[ratio])]
        levels = _rising_levels(losses)
        fitted = [mean for mean, count in levels for _ in range(count)]
        squares += math.fsum((loss - fit) ** 2 for loss, fit in zip(losses, fitted))
        freedom += len(losses) - len(levels)
    return math.sqrt(squares / freedom) if squares > 0 and freedom else None


def _rising_levels(losses: Iterable[float]) -> list[tuple[float, int]]:
    """Isotonic regression by pooling neighbours: the means that rise, and how many points share each."""
    levels: list[tuple[float, int]] = []
    for loss in losses:
        levels.append((loss, 1))
        while len(levels) > 1 and levels[-2][0] >= levels[-1][0]:
            (left, some), (right, more) = levels[-2:]
            levels[-2:] = [((left * some + right * more) / (some + more), some + more)]
    return levels


def predicted_loss(curve: Curve, ratio: float) -> float:
    """The loss to expect at any ratio, by the monotone envelope.

    Beyond the highest measured ratio nothing is known, and the loss is infinite.

    Example:
        >>> predicted_loss({0.2: 0.1, 0.4: 0.3}, 0.1)
        0.05
    """
    return loss_between(predicted_curve(curve), ratio)


def loss_between(known: Curve, ratio: float) -> float:
    """The loss at any ratio on the line between the points of a `predicted_curve`; infinite beyond the last."""
    below_ratio, below_loss = 0.0, 0.0
    for above_ratio, above_loss in known.items():
        if ratio == above_ratio:
            return above_loss
        if ratio < above_ratio:
            step = (ratio - below_ratio) / (above_ratio - below_ratio)
            return below_loss + step * (above_loss - below_loss)
        below_ratio, below_loss = above_ratio, above_loss
    return math.inf
