"""Allocation: how much goes from which group, so that a budget is met. Several proposals; which one is best, measuring says."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dysens.costs import Costs
from dysens.errors import UnreachableError
from dysens.flags import flag
from dysens.ratios import Curve, ratios_by_flops, ratios_by_params

logger = logging.getLogger(__name__)

BY_LAYERS = "by layer errors"
BY_GRADIENTS = "by gradients"
BY_BOTH = "by layer errors and gradients"
BY_SWEEP = "by the sweep"
BY_TRIAL = "by trial"
UNIFORM = "uniform"

# A layer that keeps less than a fifth of its channels seldom does its work; only a budget that needs it gets it.
_USUAL_DEPTH, _DEEPEST = 0.8, 0.97
_HALVINGS = 40


@dataclass(frozen=True)
class Allocation:
    """One ratio for every group that is cut.

    Attributes:
        name: How they were chosen.
        ratios: By group name.
    """

    name: str
    ratios: Mapping[str, float]


class Allocator:
    """Proposes allocations for any budget.

    Args:
        costs: What the network costs at any ratios.
        curves: By name of the proposal, an error curve for every group.
        what: "flops", "params", or "time" (then the FLOPs in ``costs`` are nanoseconds of layers).
        align: Leave a multiple of so many channels in every group that is cut.
    """

    def __init__(
        self,
        costs: Costs,
        curves: Mapping[str, Mapping[str, Curve]],
        what: str = "flops",
        align: int | None = None,
    ) -> None:
        self._costs = costs
        self._curves = dict(curves)
        self.kind = what
        self._align = align

    @property
    def what(self) -> str:
        """The kind of cost, in words."""
        return {"flops": "FLOPs", "params": "parameters", "time": "layers' time"}[self.kind]

    @property
    def names(self) -> list[str]:
        """The names of all proposals."""
        return [*self._curves, UNIFORM]

    def curves(self, name: str) -> Mapping[str, Curve] | None:
        """The error curves that a proposal is made by; None if there are none of that name."""
        return self._curves.get(name)

    def add(self, name: str, curves: Mapping[str, Curve]) -> None:
        """One more proposal for every budget from now on."""
        self._curves[name] = dict(curves)

    def share_removed(self, ratios: Mapping[str, float]) -> float:
        """The predicted share of the cost that ratios remove."""
        left, whole = (
            (self._costs.params(ratios), self._costs.whole_params)
            if self.kind == "params"
            else (self._costs.flops(ratios), self._costs.whole_flops)
        )
        return 1 - left / whole

    def most(self) -> float:
        """The largest share that any allocation can remove."""
        groups = next(iter(self._curves.values()))
        return self.share_removed({name: max(self._candidates(name), default=0.0) for name in groups})

    def proposals(self, target: float) -> list[Allocation]:
        """All different allocations that remove this share.

        Raises:
            UnreachableError: There is none.
        """
        found: dict[tuple[tuple[str, float], ...], Allocation] = {}
        for name in self.names:
            try:
                ratios = (
                    self._uniform(target) if name == UNIFORM else self.least_error(self._curves[name], target)
                )
            except UnreachableError as error:
                logger.info("no allocation %s: %s", name, error)
                continue
            found.setdefault(tuple(sorted(ratios.items())), Allocation(name, ratios))
        if not found:
            aligned = (
                f" at widths that are multiples of {self._align}" if self._align and self._align > 1 else ""
            )
            raise UnreachableError(
                f"{target:.1%} of the {self.what} cannot be removed: cutting everything that can be cut{aligned} removes "
                f"{self.most():.1%}. Ask for less, skip fewer groups ({flag('skip_vars')}), or lower {flag('align')}."
            )
        return list(found.values())

    def least_error(self, curves: Mapping[str, Curve], target: float) -> dict[str, float]:
        """The ratios with the least sum of errors that remove this share.

        Raises:
            UnreachableError: There are none.
        """
        choose: Callable[..., dict[str, float]] = (
            ratios_by_params if self.kind == "params" else ratios_by_flops
        )
        for depth in (_USUAL_DEPTH, _DEEPEST):
            usable = {
                name: {ratio: error for ratio, error in curve.items() if ratio <= depth}
                for name, curve in curves.items()
            }
            usable = {name: curve for name, curve in usable.items() if curve}
            try:
                return choose(usable, self._costs, target, self._align)
            except UnreachableError:
                if depth == _DEEPEST:
                    raise
        raise AssertionError("unreachable")

    def _candidates(self, name: str) -> list[float]:
        return [r for r in self._costs.group(name).candidates(self._align) if r <= _DEEPEST]

    def _uniform(self, target: float) -> dict[str, float]:
        """The same share everywhere, as far as aligned widths allow."""
        groups = next(iter(self._curves.values()))
        options = {name: np.array([0.0, *self._candidates(name)]) for name in groups}

        def at(ratio: float) -> dict[str, float]:
            near = {name: float(o[np.abs(o - ratio).argmin()]) for name, o in options.items()}
            return {name: value for name, value in near.items() if value > 0}

        low, high = 0.0, 1.0
        if self.share_removed(at(high)) < target:
            raise UnreachableError(f"Equal ratios remove {self.share_removed(at(high)):.1%} at most.")
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self.share_removed(at(middle)) >= target else (middle, high)
        return at(high)
