"""Widths that blocks remember: plain numbers beside the weights that a forward reshapes, splits or slices by.

``reshape(x, [-1, self.channels])`` fails once the channels are fewer, whatever the attribute is called. So where a cut fails,
every whole number and every list of them that could be the group's width, a share or a part of it or a count of its units is
tried as such: a cut with the new value must pass the same trial as any other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, islice
from typing import Any, Union

import numpy as np
from paddle import nn

from dysens.groups._group import ChannelGroup, Remembered
from dysens.groups._layers import Port, Role
from dysens.groups._probe import Wrong

# How many attributes are tried where a cut fails, pairs of them, blocks like one that was found; how often it may come further.
_MOST_CANDIDATES = 12
_MOST_PAIRS = 8
_MOST_ALIKE = 3
_MOST_STEPS = 48

_SHARE_NAMES = re.compile(
    r"head|chan|width|dim|plane|hidden|split|part|branch|feat|group|scale|(^|_)c$|(^|_)ch$", re.IGNORECASE
)

Trial = Callable[
    [ChannelGroup], Union[Wrong, None]
]  # what goes wrong when a group is cut; None if nothing does
Step = tuple[list[Remembered], Union[Wrong, None]]


def remembering(
    group: ChannelGroup, model: nn.Layer, roles: Mapping[str, Role], trial: Trial
) -> tuple[ChannelGroup | None, str | None]:
    """The group with the attributes that have to follow its width, or None and what went wrong in the last trial.

    An attribute is taken if with it the cut model's forward comes further than without; then the next one is looked for,
    around the layer where it fails now.

    Args:
        group: A group whose cut fails.
        model: The live layer.
        roles: Its layers with weights, in the order in which they run; they know their widths themselves.
        trial: Cuts the group and says what goes wrong.
    """
    search = _Search(group, model, roles, trial)
    if not search.candidates:
        return None, None
    wrong = trial(group)
    rules = list(group.remembered)
    for _ in range(_MOST_STEPS):
        step = search.step(rules, wrong) if wrong is not None else None
        if step is None:
            return None, wrong
        rules, wrong = step
        if wrong is None:
            return replace(group, remembered=_needed(group, rules, trial)), None
    return None, wrong


class _Search:
    """Looks for attributes that have to follow a group's width, one by one."""

    def __init__(self, group: ChannelGroup, model: nn.Layer, roles: Mapping[str, Role], trial: Trial) -> None:
        self._group, self._trial = group, trial
        self._blocks = dict(model.named_sublayers(include_self=True))
        self._order = {path: number for number, path in enumerate(roles)}
        self._helped: dict[frozenset[object], None] = {}  # in the order in which they did
        self.candidates = candidates_of(group, model, roles)

    def step(self, rules: list[Remembered], wrong: Wrong) -> Step | None:
        """The attributes so far and some more with which the cut comes further, and what goes wrong then."""
        for some in self._proposals(rules, wrong):
            now = _with(rules, some)
            found = self._tried(now)
            if not _further(found, wrong):
                continue
            if not any(rule.stays for rule in some):
                self._helped.setdefault(frozenset(map(self._manner, some)))
            if len(some) == 1 and found is not None:
                return self._furthest(rules, some[0], found)
            return now, found
        return None

    def _furthest(self, rules: list[Remembered], one: Remembered, wrong: Wrong) -> Step:
        """Of all ways in which an attribute that helps may follow, the one with which the cut comes furthest."""
        best: Step = (_with(rules, [one]), wrong)
        for other in self.candidates:
            if _what(other) == _what(one) and other is not one:
                now = _with(rules, [other])
                found = self._tried(now)
                best = (now, found) if _further(found, best[1]) else best
        return best

    def _tried(self, rules: Sequence[Remembered]) -> Wrong | None:
        return self._trial(replace(self._group, remembered=tuple(rules)))

    def _proposals(self, rules: Sequence[Remembered], wrong: Wrong) -> Iterator[list[Remembered]]:
        """What to try beside the attributes so far: what lies nearest to where the cut fails first."""
        taken = {_what(rule) for rule in rules if not rule.stays}
        staying = [
            replace(rule, stays=True)
            for rule, whole in self.candidates.items()
            if whole and rule.index is None and not rule.sections
        ]
        if staying and not rules:
            yield staying
        apart = {
            rule: self._distance(rule, wrong.layer) for rule in self.candidates if _what(rule) not in taken
        }
        free = sorted(apart, key=lambda rule: (apart[rule][0], not self.candidates[rule], apart[rule][1]))
        yield from self._alike(free)
        near = [rule for rule in free if apart[rule][0] <= 1][:_MOST_CANDIDATES]
        yield from ([rule] for rule in near)
        pairs = [[*pair] for pair in combinations(near, 2) if len({_what(rule) for rule in pair}) == 2]
        pairs.sort(key=lambda pair: (pair[0].block != pair[1].block, not self._adds_up(pair)))
        yield from pairs[:_MOST_PAIRS]

    def _adds_up(self, pair: Sequence[Remembered]) -> bool:
        """Whether two numbers of a block make up a width, as the parts of a split do."""
        values = [vars(self._blocks[rule.block])[rule.name] for rule in pair]
        return all(map(_is_width, values)) and sum(values) in {port.size for port in self._group.units}

    def _distance(self, rule: Remembered, layer: str) -> tuple[int, int]:
        """How far a block lies from the layer after which a cut fails, and how large the block is."""
        block = rule.block
        inside = [number for path, number in self._order.items() if _is_inside(path, block)]
        while not inside:
            block = block.rpartition(".")[0]
            inside = [number for path, number in self._order.items() if _is_inside(path, block)]
        at = self._order.get(layer, inside[0])
        apart = min(max(inside[0] - each, each - inside[-1], 0) for each in (at, at + 1))
        return apart, len(inside)

    def _alike(self, free: Sequence[Remembered]) -> Iterator[list[Remembered]]:
        """What helped in another block, in the nearest ones of the same kind: blocks of one kind remember alike."""
        for manners in self._helped:
            found: dict[str, dict[object, Remembered]] = {}
            for rule in free:
                if (manner := self._manner(rule)) in manners:
                    found.setdefault(rule.block, {}).setdefault(manner, rule)
            whole = (list(rules.values()) for rules in found.values() if len(rules) == len(manners))
            yield from islice(whole, _MOST_ALIKE)

    def _manner(self, rule: Remembered) -> object:
        first = rule.part is not None and rule.part[0] == 0
        kind = type(self._blocks[rule.block])
        return kind, rule.name, rule.index, rule.sections, rule.stays, rule.part is None, first


def _what(rule: Remembered) -> tuple[str, str]:
    return rule.block, rule.name


def _with(rules: Iterable[Remembered], some: Sequence[Remembered]) -> list[Remembered]:
    """Attributes and some more; what was to stay may follow after all."""
    new = {_what(rule) for rule in some}
    return [*(rule for rule in rules if _what(rule) not in new), *some]


def _further(found: Wrong | None, wrong: Wrong | None) -> bool:
    """Whether a trial came further than another."""
    return wrong is not None and (found is None or found.progress > wrong.progress)


def _needed(group: ChannelGroup, rules: Sequence[Remembered], trial: Trial) -> tuple[Remembered, ...]:
    """Those of the attributes without which the cut fails: what only happens to be the same number stays as it is."""
    kept = list(rules)
    for rule in rules:
        fewer = [other for other in kept if other is not rule]
        if fewer and trial(replace(group, remembered=tuple(fewer))) is None:
            kept = fewer
    return tuple(kept)


def candidates_of(group: ChannelGroup, model: nn.Layer, roles: Mapping[str, Role]) -> dict[Remembered, bool]:
    """Attributes around the group's layers that may follow its width, and whether they are a whole width; those first."""
    found: dict[Remembered, bool] = {}
    for path, block in _around(group, model, roles):
        ports = [port for port in group.units if _is_inside(port.layer, path)] or list(group.units)
        for name, value in vars(block).items():
            if not name.startswith("_dysens") and name != "training":
                found.update(dict(_rules(path, name, value, ports, group)))
    return dict(sorted(found.items(), key=lambda item: not item[1]))


def _around(group: ChannelGroup, model: nn.Layer, roles: Mapping[str, Role]) -> list[tuple[str, nn.Layer]]:
    """The blocks around the group's layers, innermost first, and what lies in those blocks and has no weights."""
    blocks = dict(model.named_sublayers(include_self=True))
    parents = list(dict.fromkeys(parent for layer in group.layers for parent in _parents(layer)))
    parents.sort(key=lambda path: -path.count(".") if path else 1)
    found: dict[str, nn.Layer] = {
        path: blocks[path] for path in parents if path in blocks and path not in roles
    }
    for path, block in blocks.items():
        bare = path not in roles and not block.parameters()
        if bare and path.rpartition(".")[0] in found:
            found.setdefault(path, block)
    return list(found.items())


def _parents(path: str) -> Iterator[str]:
    while path:
        path = path.rpartition(".")[0]
        yield path


def _is_inside(layer: str, block: str) -> bool:
    return not block or layer.startswith(f"{block}.")


def _rules(
    path: str, name: str, value: Any, ports: Iterable[Port], group: ChannelGroup
) -> Iterator[tuple[Remembered, bool]]:
    """How an attribute may follow one of the ports, and whether it is a whole width; each way once."""
    sizes: dict[int, Port] = {}
    for port in ports:
        sizes.setdefault(port.size, port)
    if _is_width(value):
        for size, port in sizes.items():
            if size == value:
                yield Remembered(path, name, port), True
            elif value > 1 and size % value == 0 and may_be_share(name) and _counts(value, size, group):
                yield Remembered(path, name, port), False
        # Where a part of the channels is split off: the first ones, or the rest.
        wide = [port for size, port in sizes.items() if size > value]
        wide = wide or [port for port in {p.size: p for p in group.units}.values() if port.size > value]
        for port in wide if value > 1 and may_be_share(name) else ():
            for part in ((0, value), (port.size - value, port.size)):
                yield Remembered(path, name, port, part=part), False
    elif isinstance(value, (list, tuple)) and 1 < len(value) <= 16 and all(_is_number(v) for v in value):
        whole = [port for port in (*sizes.values(), *group.units) if port.size == sum(value)]
        if whole and all(_is_width(v) for v in value):
            yield Remembered(path, name, whole[0], sections=True), True
        for size, port in sizes.items():
            for index, element in enumerate(value):
                if element == size:
                    yield Remembered(path, name, port, index=index), True


def may_be_share(name: str) -> bool:
    """Whether an attribute of this name may be a part of a width, or a number of parts; small numbers mean too many things."""
    return _SHARE_NAMES.search(name) is not None


def _counts(value: int, size: int, group: ChannelGroup) -> bool:
    """Whether a number that divides a width may have to do with the group: so many blocks, units, or a block's width."""
    return (
        value in (group.size, size // group.size if size % group.size == 0 else -1)
        or (len(group.blocks) > 1 and value in (len(group.blocks), size // len(group.blocks)))
        or size // value <= 8
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_width(value: Any) -> bool:
    return _is_number(value) and value > 0
