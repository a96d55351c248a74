"""Narrower forms of channels that are rearranged on their way: how many of each kind are kept, and in which order.

Where a network splits and shuffles its channels again and again (ShuffleNetV2), no choice of channels is right as long as
they stay in order: at a smaller width the same code sends other places to other layers. But it does send some to each. So
keep as many channels of every kind as the narrower code has places for, and lay them out in its order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from dysens.errors import ForwardError
from dysens.groups._bits import Bits
from dysens.groups._group import ChannelGroup, Layout, Units
from dysens.groups._layers import Port, Role
from dysens.groups._probe import Movement, Probe


def layout(whole: Units, size: int, narrow: Units, narrow_size: int) -> Layout | None:
    """Fit a narrower network's units to those of the whole one; None if it has places for other kinds, or for more.

    Args:
        whole: The units of the whole network.
        size: How many there are.
        narrow: Those of the narrower one, at the same ports.
        narrow_size: How many there are.
    """
    if any((narrow[port] < 0).sum() != (whole[port] < 0).sum() for port in whole):
        return None  # some channels are the group's in one of them only
    kind_of: dict[bytes, int] = {}
    members: list[list[int]] = []
    for unit, signature in enumerate(_signatures(whole, whole, size)):
        kind = kind_of.setdefault(signature, len(members))
        members += [[]] if kind == len(members) else []
        members[kind].append(unit)
    places: list[list[int]] = [[] for _ in members]
    for unit, signature in enumerate(_signatures(narrow, whole, narrow_size)):
        if signature not in kind_of:
            return None
        places[kind_of[signature]].append(unit)
    if any(len(some) > len(units) for some, units in zip(places, members)):
        return None
    number = np.full(narrow_size + 1, -1)  # one more, so that -1 stays -1
    number[[unit for some in places for unit in some]] = np.arange(narrow_size)
    return Layout(
        removed=size - narrow_size,
        kinds=tuple(np.array(units) for units in members),
        kept=tuple(map(len, places)),
        units={port: number[units] for port, units in narrow.items()},
    )


def _signatures(units: Units, ports: Units, size: int) -> list[bytes]:
    """For every unit, how many channels it has in every port."""
    counts = [np.bincount(units[port][units[port] >= 0], minlength=size) for port in ports]
    return [row.tobytes() for row in np.stack(counts, axis=1)]


_MOST_WIDTHS = 10  # how many narrower widths of a group are looked for
_MOST_TURNS = 64  # how many probes may be needed to tell the channels of one width apart


def layouts(group: ChannelGroup, probes: list[Probe], roles: Mapping[str, Role]) -> list[Layout]:
    """The narrower forms of a group whose channels are rearranged on their way; all its makers lose the same number."""
    makers = [port for port in group.units if port.side == "out"]
    plain = all(
        port.side != "own"
        and roles[port.layer].conv_groups == 1
        and not roles[port.layer].inside
        and (port.side != "out" or (units >= 0).all())
        for port, units in group.units.items()
    )
    if not plain or not makers or len(probes) != 1:
        return []
    least = min(port.size for port in makers)
    found: list[Layout] = []
    for fewer in _widths(least):
        # Next to a width that the code refuses (an odd one, before a split in two) there may be one that it takes.
        for step in (fewer, fewer + 1):
            try:
                fit = _layout(group, probes[0], makers, step) if step < least else None
            except _MixedError:
                return []
            if fit is not None and all(fit.removed != other.removed for other in found):
                found.append(fit)
                break
    return found


class _MixedError(Exception):
    """So many channels arrive at one place that they are not only rearranged, at any width."""


def _widths(least: int) -> Iterator[int]:
    yield from sorted({round(step) for step in np.linspace(1, least - 1, _MOST_WIDTHS).tolist()} - {0})


def _layout(group: ChannelGroup, probe: Probe, makers: list[Port], fewer: int) -> Layout | None:
    widths = {port.layer: port.size - fewer for port in makers}
    try:
        narrow = probe.narrowed(widths)
        narrow.start()
        found = _units(group, narrow, widths)
    except ForwardError:
        return None
    if narrow.calls != probe.calls or found is None:
        return None
    return layout(group.units, group.size, *found)


def _units(
    group: ChannelGroup, probe: Probe, widths: Mapping[str, int]
) -> tuple[dict[Port, np.ndarray], int] | None:
    """The units of the narrower network at the group's ports, and how many there are; None if channels go elsewhere."""
    first = dict(zip(widths, np.cumsum([0, *widths.values()])))
    total = sum(widths.values())

    def move(chosen: np.ndarray) -> Movement:
        masks = {path: chosen[first[path] : first[path] + width] for path, width in widths.items()}
        return probe.perturb({path: mask for path, mask in masks.items() if mask.any()})

    everything = move(np.ones(total, bool))
    entries = {port.layer: port for port in group.units if port.side in ("in", "through")}
    if everything.outputs or everything.flow or set(everything.positions) - set(entries):
        return None
    bits = Bits(total, move)
    if (bits.turns(everything.positions) or 0) > _MOST_TURNS:
        raise _MixedError
    origins = bits.origins(everything.positions)
    if origins is None:
        return None
    unit_of = _joined(total, origins)
    units: dict[Port, np.ndarray] = {}
    for port in group.units:
        if port.side == "out":
            units[port] = unit_of[first[port.layer] : first[port.layer] + widths[port.layer]]
        elif port.layer not in everything.positions:
            return None
        else:
            index = np.max([origin[port.layer] for origin in origins if port.layer in origin], axis=0)
            units[port] = np.where(index >= 0, unit_of[index], -1)
    return units, int(unit_of.max()) + 1


def _joined(total: int, origins: list[dict[str, np.ndarray]]) -> np.ndarray:
    """Number the channels so that those that meet at some position have the same number."""
    label = np.arange(total)
    for path in {path for origin in origins for path in origin}:
        arriving = np.stack([origin[path] for origin in origins if path in origin])
        for column in arriving.T:
            met = column[column >= 0]
            for other in met[1:]:
                label[label == label[other]] = label[met[0]]
    return np.unique(label, return_inverse=True)[1].reshape(-1)
