"""What a model would cost at given ratios, without cutting it: for searching ratios that fit a budget.

FLOPs of a layer with weights are proportional to the number of its weights, and a plan says how many remain. Layers without
weights count as unchanged, so the prediction errs a little on the high side; `DygraphSensitivity` checks the final choice by
counting the cut model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import paddle

from dysens.cost import Cost
from dysens.groups.group import ChannelGroup, Choice
from dysens.groups.roles import Role
from dysens.pruning.plan import plan_for

# Finer steps than this make a search slower, and no choice better.
_STEPS = 40

Shrinking = tuple[tuple[tuple[str, int], int], ...]  # ((tensor, axis), how much shorter), ...


def candidate_ratios(group: ChannelGroup, align: int | None = None) -> list[float]:
    """The ratios that a group may take; with ``align``, those that leave a multiple of so many channels."""
    step = len(group.blocks)
    counts = sorted({round(group.size * i / _STEPS / step) * step for i in range(_STEPS)} | {0})
    if align is not None and align > 1:
        width = group.channels / group.size
        counts = [count for count in range(0, group.size, step) if (group.size - count) * width % align == 0]
    return [count / group.size for count in counts if count < group.size]


class Budget:
    """Predicts FLOPs and parameters for any ratios of a model's groups."""

    def __init__(
        self,
        cost: Cost,
        roles: Mapping[str, Role],
        groups: Sequence[ChannelGroup],
        choose: Choice,
        tensors: Mapping[str, paddle.Tensor],
    ) -> None:
        self._cost = cost
        self._roles = roles
        self._groups = {group.name: group for group in groups}
        self._choose = choose
        # Once per tensor, not per path: a tied weight is one weight.
        once = {id(tensor): path for path, tensor in reversed(list(tensors.items()))}
        self._shapes = {path: tuple(tensors[path].shape) for path in once.values()}
        self._parameters = {path for path in self._shapes if tensors[path].persistable}
        self._weights = self._weights_by_layer(tensors)
        self._shrinking = lru_cache(maxsize=None)(self._shrinking_of)

    def flops(self, ratios: Mapping[str, float]) -> float:
        """FLOPs that remain."""
        shorter = self._shorter(ratios)
        return sum(
            flops * self._share(self._weights.get(layer, ()), shorter)
            for layer, flops in self._cost.by_layer.items()
        )

    def params(self, ratios: Mapping[str, float]) -> float:
        """Parameters that remain."""
        shorter = self._shorter(ratios)
        return float(sum(self._size(path, shorter) for path in self._parameters))

    def _weights_by_layer(self, tensors: Mapping[str, paddle.Tensor]) -> dict[str, list[str]]:
        """The tensors whose size the work of a layer is proportional to: matrices, or the vector of a norm."""
        found: dict[str, list[str]] = {}
        for path, role in self._roles.items():
            own = [f"{path}.{name}" if path else name for name in role.layer._parameters]
            shaped = {name: len(self._shapes[name]) for name in own if name in self._shapes}
            most = max(shaped.values(), default=0)
            found[path] = [name for name, ndim in shaped.items() if ndim == most]
        return found

    def _share(self, weights: Sequence[str], shorter: Mapping[tuple[str, int], int]) -> float:
        before = sum(self._size(path, {}) for path in weights)
        return sum(self._size(path, shorter) for path in weights) / before if before else 1.0

    def _size(self, path: str, shorter: Mapping[tuple[str, int], int]) -> int:
        size = 1
        for axis, side in enumerate(self._shapes[path]):
            size *= side - shorter.get((path, axis), 0)
        return size

    def _shorter(self, ratios: Mapping[str, float]) -> dict[tuple[str, int], int]:
        total: dict[tuple[str, int], int] = {}
        for name, ratio in ratios.items():
            for place, less in self._shrinking(name, ratio):
                total[place] = total.get(place, 0) + less
        return total

    def _shrinking_of(self, name: str, ratio: float) -> Shrinking:
        group = self._groups[name]
        removal = group.removal(self._choose(group, ratio))
        plan = plan_for(self._roles, removal)
        return tuple(((cut.tensor, cut.axis), len(cut.removed) // cut.blocks) for cut in plan.cuts)
