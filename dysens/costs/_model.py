"""What a model costs at any ratios, as plain data: a journal holds it, so that a report needs no model.

FLOPs and parameters are sums of terms; a term is a coefficient times the widths (numbers of channels left) that it shrinks with.
What a ratio removes from a group depends only on how many of its units go, so a width knows how much it loses by that number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Union

from dysens.errors import InputError, nearest

# Finer steps than this make a search slower, and no choice better.
_STEPS = 40

# Far more than any network has. A file that says more would make a report take all memory.
_MOST = {"groups": 10_000, "widths": 20_000, "terms": 200_000}
_MOST_CHANNELS = 2**20
_MOST_WIDTHS_OF_A_TERM = 16
_MOST_CELLS = 5 * 10**7  # ratios to choose from times widths: what a search holds
_MOST_FLOPS, _MOST_PARAMS = 1e18, 10**15

Losing = Union[int, tuple[int, ...]]
"""Channels that go with every step; or, where units are not all alike, how many are gone after 0, 1, 2 ... steps."""


@dataclass(frozen=True)
class GroupCosts:
    """How ratios become channels in one group.

    Attributes:
        name: The group's name: its first 4-D parameter.
        path: The same parameter by its place in the model.
        channels: How many channels it has.
        steps: How many units there are to remove one by one (in every block at once).
        blocks: How many units go with a step.
        losing: What its channels lose by steps.
    """

    name: str
    path: str
    channels: int
    steps: int
    blocks: int
    losing: Losing

    def step_at(self, ratio: float) -> int:
        """How many steps a ratio takes. PaddleSlim's rule: rounded, and one unit is always left."""
        return min(round(self.steps * ratio), self.steps - 1)

    def channels_left(self, ratio: float) -> int:
        """How many of the group's channels a ratio leaves."""
        return self.channels - lost(self.losing, self.step_at(ratio))

    def candidates(self, align: int | None = None) -> list[float]:
        """The ratios to choose from; with ``align``, those that leave a multiple of so many channels."""
        size = self.steps * self.blocks
        counts = sorted({round(size * i / _STEPS / self.blocks) * self.blocks for i in range(_STEPS)} | {0})
        if align is not None and align > 1:
            width = self.channels / size
            counts = [c for c in range(0, size, self.blocks) if (size - c) * width % align == 0]
        return [count / size for count in counts if count < size]


@dataclass(frozen=True)
class Width:
    """A number of channels that several layers share: what it is in the whole model, and what each group takes from it.

    Attributes:
        size: Channels of the whole model.
        losing: Index of a group to what its steps remove here.
    """

    size: int
    losing: Mapping[int, Losing]


@dataclass(frozen=True)
class Term:
    """A part of the cost: each coefficient times the product of the widths (by index)."""

    flops: float
    params: int
    widths: tuple[int, ...]


@dataclass(frozen=True)
class Costs:
    """FLOPs and parameters for any ratios.

    Attributes:
        groups: The groups, in the order of the model.
        widths: The widths that shrink with them.
        terms: The parts of the cost; one without widths is what no ratio changes.

    Example:
        >>> costs = Costs((GroupCosts("conv2d_0.w_0", "conv.weight", 8, 8, 1, 1),), (Width(8, {0: 1}),), (Term(100, 9, (0,)),))
        >>> costs.flops({"conv2d_0.w_0": 0.25}), costs.params({"conv.weight": 0.25})
        (600, 54)
    """

    groups: tuple[GroupCosts, ...]
    widths: tuple[Width, ...]
    terms: tuple[Term, ...]
    _index: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_path = {group.path: index for index, group in enumerate(self.groups)}
        by_name = {group.name: index for index, group in enumerate(self.groups)}
        object.__setattr__(self, "_index", {**by_path, **by_name})

    def flops(self, ratios: Mapping[str, float]) -> float:
        """FLOPs that remain, for ratios by group name or layer path."""
        return self._sum([term.flops for term in self.terms], ratios)

    def params(self, ratios: Mapping[str, float]) -> int:
        """Parameters that remain."""
        return int(self._sum([term.params for term in self.terms], ratios))

    def _sum(self, coefficients: Sequence[float], ratios: Mapping[str, float]) -> float:
        left = self._left(ratios)
        total: float = 0
        for part, term in zip(coefficients, self.terms):
            for width in term.widths:
                part *= left[width]
            total += part
        return total

    @cached_property
    def whole_flops(self) -> float:
        """FLOPs of the whole model."""
        return self.flops({})

    @cached_property
    def whole_params(self) -> int:
        """Parameters of the whole model."""
        return self.params({})

    def group(self, name: str) -> GroupCosts:
        """A group by its name or layer path."""
        return self.groups[self._place(name)]

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def renamed(self, names: Mapping[str, str]) -> Costs:
        """The same costs under other group names.

        Args:
            names: Layer path to the name that the parameter has now. Other groups keep their names, or are known by their
                path alone if another parameter has that name now.
        """
        taken = set(names.values())
        groups = (
            replace(g, name=names.get(g.path, g.path if g.name in taken else g.name)) for g in self.groups
        )
        return replace(self, groups=tuple(groups))

    def _left(self, ratios: Mapping[str, float]) -> list[int]:
        """What is left of every width."""
        left = [width.size for width in self.widths]
        for name, ratio in ratios.items():
            place = self._place(name)
            step = self.groups[place].step_at(ratio)
            if step:
                for width, losing in self._shrinking[place]:
                    left[width] -= lost(losing, step)
        return left

    @cached_property
    def _shrinking(self) -> list[list[tuple[int, Losing]]]:
        """The widths that each group shrinks."""
        found: list[list[tuple[int, Losing]]] = [[] for _ in self.groups]
        for index, width in enumerate(self.widths):
            for group, losing in width.losing.items():
                found[group].append((index, losing))
        return found

    def _place(self, name: str) -> int:
        if name not in self._index:
            raise InputError(
                f'Nothing is known of what "{name}" costs{nearest(str(name), self._index) or "."}'
            )
        return self._index[name]

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            "groups": [
                [g.name, g.path, g.channels, g.steps, g.blocks, _plain(g.losing)] for g in self.groups
            ],
            "widths": [
                [width.size, [[group, _plain(losing)] for group, losing in width.losing.items()]]
                for width in self.widths
            ],
            "terms": [[term.flops, term.params, list(term.widths)] for term in self.terms],
        }

    @classmethod
    def from_json(cls, data: Any) -> Costs:
        """What `to_json` wrote; every value is checked.

        Raises:
            InputError: It is something else, or speaks of groups and widths that it does not list.
        """
        return _Checked(data).costs()


def lost(losing: Losing, step: int) -> int:
    """The channels that are gone after so many steps."""
    return losing * step if isinstance(losing, int) else losing[step]


def _plain(losing: Losing) -> Any:
    return losing if isinstance(losing, int) else list(losing)


class _Checked:
    """Reads the JSON of costs, and trusts none of it."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def costs(self) -> Costs:
        groups = tuple(map(self._group, self._rows("groups", 6)))
        widths = tuple(self._width(row, groups) for row in self._rows("widths", 2))
        if sum(min(group.steps, _STEPS) for group in groups) * len(widths) > _MOST_CELLS:
            raise InputError("the costs hold more groups and widths than a network can have")
        terms = tuple(self._term(row, len(widths)) for row in self._rows("terms", 3))
        return Costs(groups, widths, terms)

    def _rows(self, name: str, length: int) -> list[list[Any]]:
        rows = self._data.get(name) if isinstance(self._data, dict) else None
        if not isinstance(rows, list) or not all(
            isinstance(row, list) and len(row) == length for row in rows
        ):
            raise InputError(f"The costs need {name}: a list of lists of {length}")
        if len(rows) > _MOST[name]:
            raise InputError(f"the costs hold {len(rows)} {name}, more than a network can have")
        return rows

    def _group(self, row: list[Any]) -> GroupCosts:
        name, path, channels, steps, blocks, losing = row
        if not isinstance(name, str) or not isinstance(path, str):
            raise InputError("a group in the costs needs a name and a path")
        channels, steps, blocks = (_whole(what, 1, _MOST_CHANNELS) for what in (channels, steps, blocks))
        _whole(steps * blocks, 1, _MOST_CHANNELS)
        return GroupCosts(name, path, channels, steps, blocks, _losing(losing, steps, channels))

    def _width(self, row: list[Any], groups: Sequence[GroupCosts]) -> Width:
        size, pairs = _whole(row[0], 1, _MOST_CHANNELS), row[1]
        if not isinstance(pairs, list) or not all(
            isinstance(pair, list) and len(pair) == 2 for pair in pairs
        ):
            raise InputError("a width in the costs needs a list of groups and what they remove")
        known = {_whole(group, 0, len(groups) - 1): losing for group, losing in pairs}
        return Width(
            size, {group: _losing(losing, groups[group].steps, size) for group, losing in known.items()}
        )

    def _term(self, row: list[Any], widths: int) -> Term:
        flops, params, places = row
        if isinstance(flops, bool) or not isinstance(flops, (int, float)) or not 0 <= flops <= _MOST_FLOPS:
            raise InputError(f"the costs hold {flops!r:.40}, which is not a number of FLOPs")
        if not isinstance(places, list) or len(places) > _MOST_WIDTHS_OF_A_TERM:
            raise InputError("a term in the costs needs a short list of widths")
        return Term(
            flops, _whole(params, 0, _MOST_PARAMS), tuple(_whole(place, 0, widths - 1) for place in places)
        )


def _whole(value: Any, least: int, most: int | None = None) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or value < least
        or (most is not None and value > most)
    ):
        raise InputError(f"the costs hold {value!r:.40} where a whole number from {least} on belongs")
    return value


def _losing(value: Any, steps: int, size: int) -> Losing:
    if not isinstance(value, list):
        _whole(_whole(value, 0) * (steps - 1), 0, size)
        return int(value)
    if len(value) != steps:
        raise InputError(f"the costs hold a list of {len(value)} where a group takes {steps} steps")
    return tuple(_whole(each, 0, size) for each in value)
