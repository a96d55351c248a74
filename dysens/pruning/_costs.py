"""What a cut brought, and what a model would cost at given ratios without cutting it: for budgets and reports.

FLOPs of a layer with weights are proportional to the number of its weights, and a plan says how many remain. Layers without
weights count as unchanged, so the prediction errs a little on the high side; `DygraphSensitivity` checks the final choice by
counting the cut model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import paddle
import pandas as pd
from paddle.nn.layer.conv import _ConvNd

from dysens.costs import Cost, Costs, GroupCosts, Losing, Term, Width
from dysens.display import table_html
from dysens.groups import ChannelGroup, Choice, Role
from dysens.pruning._plan import PrunePlan, plan_for

_NOTHING = "nothing was cut"


@dataclass(frozen=True)
class PruneOutcome:
    """The cost of a model before and after a cut, and what was cut.

    Attributes:
        flops_before: FLOPs of the whole model (one multiply-add is one FLOP, as `paddle.flops` counts).
        flops_after: FLOPs of the cut model.
        params_before: Parameters of the whole model.
        params_after: Parameters of the cut model.
        plan: What was removed from which tensor.
        widths: Per group: name, path, channels before and after.
        counted_by_us: Layers that `paddle.flops` counts as zero, and that dysens counted.
        untried: What the proof could not try, as a sentence; empty if it tried all.
    """

    flops_before: int
    flops_after: int
    params_before: int
    params_after: int
    plan: PrunePlan
    widths: tuple[tuple[str, str, int, int], ...]
    counted_by_us: tuple[str, ...] = ()
    untried: str = ""

    @property
    def flops_removed(self) -> float:
        """The share of the FLOPs that is gone."""
        return 1 - self.flops_after / self.flops_before

    @property
    def params_removed(self) -> float:
        """The share of the parameters that is gone."""
        return 1 - self.params_after / self.params_before

    def to_frame(self) -> pd.DataFrame:
        """One row a group that was cut."""
        return pd.DataFrame(self.widths, columns=["param", "path", "channels before", "channels after"])

    @property
    def totals(self) -> str:
        """FLOPs and parameters before and after, a line each."""
        lines = [
            _line("FLOPs", self.flops_before, self.flops_after),
            _line("parameters", self.params_before, self.params_after),
        ]
        if self.counted_by_us:
            lines.append(
                f"(FLOPs of {', '.join(self.counted_by_us)} counted by dysens; paddle.flops gives 0 for them)"
            )
        if self.untried:
            lines.append(self.untried)
        return "\n".join(lines)

    def __str__(self) -> str:
        table = self.to_frame().to_string(index=False) if self.widths else _NOTHING
        return f"{table}\n{self.totals}"

    def _repr_html_(self) -> str:
        totals = self.totals.splitlines()
        return table_html(self.to_frame(), totals if self.widths else [_NOTHING, *totals])


def _line(what: str, before: int, after: int) -> str:
    share = f"-{(before - after) / before:.1%}" if before else ""
    return f"{what:<12} {before:>16,} -> {after:>16,}  {share}"


Place = tuple[str, int]  # tensor, axis


def describe_costs(
    cost: Cost,
    roles: Mapping[str, Role],
    groups: Sequence[ChannelGroup],
    choose: Choice,
    tensors: Mapping[str, paddle.Tensor],
) -> Costs:
    """The cost of a model for any ratios of its groups, as plain data.

    Args:
        cost: What the whole model costs.
        roles: Its layers with weights.
        groups: What may be cut.
        choose: Which units a ratio removes from a group.
        tensors: Its tensors by path.
    """
    # Once per tensor, not per path: a tied weight is one weight.
    once = {id(tensor): path for path, tensor in reversed(list(tensors.items()))}
    shapes = {path: tuple(tensors[path].shape) for path in once.values()}
    steps = [_Steps(group, roles, choose) for group in groups]
    terms = _Terms(shapes, [each.by_place() for each in steps])
    weights = _weights_by_layer(roles, shapes)
    for layer, flops in cost.by_layer.items():
        before = sum(int(np.prod(shapes[path])) for path in weights.get(layer, ()))
        for path in weights.get(layer, ()) if before else ():
            terms.add(path, flops=flops / before)
        if not before:
            terms.add(None, flops=flops)
    for layer, flops in cost.products.items():
        heads = [g for g in groups if any(rule.block == layer for rule in g.remembered)]
        # Of a group that changes how many heads a block has, its products lose the same share.
        terms.add(None, flops, along=_makes(heads[0]) if len(heads) == 1 else None)
    for path in shapes:
        if tensors[path].persistable:
            terms.add(path, params=1)
    described = (
        GroupCosts(group.name, group.path, group.channels, each.number, len(group.blocks), each.of_channels())
        for group, each in zip(groups, steps)
    )
    return Costs(tuple(described), terms.widths(), terms.terms())


def _makes(group: ChannelGroup) -> Place:
    _, piece = group.scored[0]
    return piece.tensor, piece.axis


def _weights_by_layer(
    roles: Mapping[str, Role], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, list[str]]:
    """The tensors whose size the work of a layer is proportional to: matrices, or the vector of a norm.

    With a convolution's bias: `paddle.flops` counts an addition for each of its entries at every place of the output, as it
    counts a multiply-add for each of the weight's. A linear layer's it leaves out.
    """
    found: dict[str, list[str]] = {}
    for path, role in roles.items():
        own = [f"{path}.{name}" if path else name for name in role.layer._parameters]
        shaped = {name: len(shapes[name]) for name in own if name in shapes}
        most = 1 if isinstance(role.layer, _ConvNd) else max(shaped.values(), default=0)
        found[path] = [name for name, ndim in shaped.items() if ndim >= most]
    return found


class _Steps:
    """What a group loses, one unit of every block after the other."""

    def __init__(self, group: ChannelGroup, roles: Mapping[str, Role], choose: Choice) -> None:
        self._group = group
        self._roles = roles
        self._choose = choose
        self.number = group.size // len(group.blocks)

    def by_place(self) -> dict[Place, Losing]:
        """What every tensor loses along every axis."""
        first, last = self._lengths(1), self._lengths(self.number - 1)
        if self._alike and last == {place: less * (self.number - 1) for place, less in first.items()}:
            return dict(first)
        all_steps = [self._lengths(step) for step in range(self.number)]
        places = {place for lengths in all_steps for place in lengths}
        return {place: tuple(lengths.get(place, 0) for lengths in all_steps) for place in sorted(places)}

    def of_channels(self) -> Losing:
        """What the channels of the group's first weight lose."""
        left = [
            self._group.channels_left(self._units(step))
            for step in ((0, 1) if self._alike else range(self.number))
        ]
        return left[0] - left[1] if self._alike else tuple(self._group.channels - each for each in left)

    @property
    def _alike(self) -> bool:
        """Whether every unit has as many channels as every other, in every layer: then all steps are the same."""
        widths = (np.bincount(u[u >= 0], minlength=self._group.size) for u in self._group.units.values())
        return not self._group.layouts and all((width == width[0]).all() for width in widths)

    def _units(self, step: int) -> np.ndarray:
        return self._choose(self._group, step / self.number)

    def _lengths(self, step: int) -> dict[Place, int]:
        plan = plan_for(self._roles, self._group.removal(self._units(step)))
        return {(cut.tensor, cut.axis): len(cut.removed) // cut.blocks for cut in plan.cuts}


class _Terms:
    """Gathers terms; what shrinks alike is added up."""

    def __init__(
        self, shapes: Mapping[str, tuple[int, ...]], losing: Iterable[Mapping[Place, Losing]]
    ) -> None:
        self._shapes = shapes
        self._losing: dict[Place, dict[int, Losing]] = {}
        for group, places in enumerate(losing):
            for place, less in places.items():
                self._losing.setdefault(place, {})[group] = less
        self._widths: dict[tuple[int, tuple[tuple[int, Losing], ...]], int] = {}
        self._sums: dict[tuple[int, ...], tuple[float, int]] = {}

    def add(self, path: str | None, flops: float = 0.0, params: int = 0, along: Place | None = None) -> None:
        """Adds so much for every entry of a tensor; without a tensor so much in all, maybe in proportion to one's length."""
        places, entries = [], 1.0
        if along is not None and along in self._losing:
            side = self._shapes[along[0]][along[1]]
            entries /= side
            places.append(
                self._widths.setdefault((side, tuple(self._losing[along].items())), len(self._widths))
            )
        for axis, side in enumerate(self._shapes[path] if path is not None else ()):
            losing = self._losing.get((path or "", axis))
            if losing is None:
                entries *= side
            else:
                key = (side, tuple(losing.items()))
                places.append(self._widths.setdefault(key, len(self._widths)))
        widths = tuple(sorted(places))
        before = self._sums.get(widths, (0.0, 0))
        self._sums[widths] = (before[0] + flops * entries, before[1] + int(params * entries))

    def widths(self) -> tuple[Width, ...]:
        return tuple(Width(size, dict(losing)) for size, losing in self._widths)

    def terms(self) -> tuple[Term, ...]:
        return tuple(Term(flops, params, widths) for widths, (flops, params) in self._sums.items())
