"""Narrower forms of channels that are rearranged on their way: how many of each kind are kept, and in which order.

Where a network splits and shuffles its channels again and again (ShuffleNetV2), no choice of channels is right as long as
they stay in order: at a smaller width the same code sends other places to other layers. But it does send some to each. So
keep as many channels of every kind as the narrower code has places for, and lay them out in its order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dysens.groups.roles import Port

Units = Mapping[Port, np.ndarray]  # for every port, which unit each of its channels belongs to; -1 for none


@dataclass(frozen=True, eq=False)
class Layout:
    """One narrower form of a group.

    Attributes:
        removed: How many units go.
        kinds: The units of every kind (those with the same consumers), in order.
        kept: How many of each kind stay.
        units: For every port, the places of the narrower network by number; numbers run through the first kind, then the
            second, and so on. -1 for a channel that is not the group's.
    """

    removed: int
    kinds: tuple[np.ndarray, ...]
    kept: tuple[int, ...]
    units: Units

    def weakest(self, scores: np.ndarray) -> np.ndarray:
        """The units that go: of each kind, those with the lowest scores."""
        gone = [
            kind[np.argsort(scores[kind], kind="stable")][: len(kind) - kept]
            for kind, kept in zip(self.kinds, self.kept)
        ]
        return np.sort(np.concatenate(gone))

    def orders(self, whole: Units, gone: np.ndarray) -> dict[Port, np.ndarray]:
        """For every port, the channels that stay, in the order of the narrower network."""
        stay = np.concatenate([kind[~np.isin(kind, gone)] for kind in self.kinds])
        found = {}
        for port, places in self.units.items():
            wanted = np.where(places >= 0, stay[places], -1)
            order = np.empty(len(wanted), int)
            for unit in np.unique(wanted):
                order[wanted == unit] = np.flatnonzero(whole[port] == unit)
            found[port] = order
        return found


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
