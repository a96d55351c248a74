"""Widths that blocks remember: plain numbers beside the weights that a forward reshapes, splits or slices by.

``reshape(x, [-1, self.channels])`` fails once the channels are fewer, whatever the attribute is called. So where a cut fails,
every whole number and every list of them that could be the group's width, a share of it or a count of its units is tried as
such: a cut with the new value must pass the same trial as any other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Union

import numpy as np
from paddle import nn

from dysens.groups._group import ChannelGroup, Remembered
from dysens.groups._layers import Port, Role

# More would be a search through a large model's whole configuration.
_MOST_CANDIDATES = 24

_SHARE_NAMES = re.compile(
    r"head|chan|width|dim|plane|hidden|split|part|branch|feat|group|scale|(^|_)c$|(^|_)ch$", re.IGNORECASE
)

Trial = Callable[
    [ChannelGroup], Union[str, None]
]  # what goes wrong when a group is cut; None if nothing does


def remembering(
    group: ChannelGroup, model: nn.Layer, roles: Mapping[str, Role], trial: Trial
) -> tuple[ChannelGroup | None, str | None]:
    """The group with the attributes that have to follow its width, or None and what went wrong in the last trial.

    Args:
        group: A group whose cut fails.
        model: The live layer.
        roles: Its layers with weights; they know their widths themselves.
        trial: Cuts the group and says what goes wrong.
    """
    wrong: str | None = None
    exact, shares = candidates_of(group, model, roles)
    for rules in (
        [replace(rule, stays=True) for rule in exact if rule.index is None and not rule.sections],
        *_sets(exact, shares),
    ):
        if not rules:
            continue
        candidate = replace(group, remembered=tuple(rules))
        wrong = trial(candidate)
        if wrong is None:
            return replace(group, remembered=_needed(group, rules, trial)), None
    return None, wrong


def _sets(exact: Sequence[Remembered], shares: Sequence[Remembered]) -> Iterator[list[Remembered]]:
    """What to try together, the likeliest first: one attribute, all that equal the width, then shares beside them."""
    yield from ([rule] for rule in exact)
    if len(exact) > 1:
        yield list(exact)
        for block in dict.fromkeys(rule.block for rule in exact):
            inside = [rule for rule in exact if rule.block == block]
            if 1 < len(inside) < len(exact):
                yield inside
    yield from ([rule] for rule in shares)
    for rule in shares:
        yield from ([rule, other] for other in exact)
        if len(exact) > 1:
            yield [rule, *exact]


def _needed(group: ChannelGroup, rules: Sequence[Remembered], trial: Trial) -> tuple[Remembered, ...]:
    """Those of the attributes without which the cut fails: what only happens to be the same number stays as it is."""
    kept = list(rules)
    for rule in rules:
        fewer = [other for other in kept if other is not rule]
        if fewer and trial(replace(group, remembered=tuple(fewer))) is None:
            kept = fewer
    return tuple(kept)


def candidates_of(
    group: ChannelGroup, model: nn.Layer, roles: Mapping[str, Role]
) -> tuple[list[Remembered], list[Remembered]]:
    """Attributes around the group's layers that may be its width; and those that may be a share of it or a count of units."""
    exact: list[Remembered] = []
    shares: list[Remembered] = []
    for path, block in _around(group, model, roles):
        ports = [port for port in group.units if _is_inside(port.layer, path)] or list(group.units)
        for name, value in vars(block).items():
            if name.startswith("_dysens") or name == "training":
                continue
            for rule, whole in _rules(path, name, value, ports, group):
                (exact if whole else shares).append(rule)
    return exact[:_MOST_CANDIDATES], shares[:_MOST_CANDIDATES]


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
    elif isinstance(value, (list, tuple)) and 1 < len(value) <= 16 and all(_is_number(v) for v in value):
        for size, port in sizes.items():
            if all(_is_width(v) for v in value) and sum(value) == size:
                yield Remembered(path, name, port, sections=True), True
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
