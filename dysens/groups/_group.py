"""Channel groups: layers that must be cut together, and the units that can be removed one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dysens.errors import InputError
from dysens.groups._layers import Port, Slice


@dataclass(frozen=True)
class Remembered:
    """An attribute of a block that holds a width, or a share of one, and has to follow it.

    Attributes:
        block: The block's path.
        name: The attribute.
        port: Whose width it follows.
        index: Which element of a list it is; None for a plain number.
        sections: Whether it is a list of widths that make up the port's together, as a split takes it.
        stays: It must not follow: the forward chooses its way by it (``if self.inplanes != self.planes * 4``).
        part: The channels of the port, from and to, whose number it is; None for all of them, or a share.
    """

    block: str
    name: str
    port: Port
    index: int | None = None
    sections: bool = False
    stays: bool = False
    part: tuple[int, int] | None = None

    def after(self, now: Any, kept: np.ndarray) -> int | list[int] | None:
        """The attribute's value when so many channels of the port stay; None if there is none that fits.

        Args:
            now: Its value.
            kept: The channels that stay.
        """
        if self.sections:
            ends = np.cumsum([0, *now])
            counts = np.histogram(kept, ends)[0]
            return [int(count) for count in counts] if (counts > 0).all() else None
        if self.part is not None:
            return int(((kept >= self.part[0]) & (kept < self.part[1])).sum()) or None
        number = now if self.index is None else now[self.index]
        value, rest = divmod(int(number) * len(kept), self.port.size)
        if rest or not value:
            return None
        return value if self.index is None else [*now[: self.index], value, *now[self.index + 1 :]]

    def at(self, port: Port, remaining: np.ndarray) -> Remembered:
        """The same for a port that has lost channels.

        Args:
            port: The port as it is now.
            remaining: The channels that it has left, by their numbers before.
        """
        if self.part is None:
            return replace(self, port=port)
        start, stop = np.searchsorted(remaining, self.part)
        return replace(self, port=port, part=(int(start), int(stop)))


class Removal(dict[Port, np.ndarray]):
    """Which channels go, for every port that loses some.

    Attributes:
        orders: For ports whose channels cannot stay in order, those that stay in the order that they get.
        remembered: Attributes of blocks that follow the widths.
    """

    def __init__(
        self,
        gone: Mapping[Port, np.ndarray] | None = None,
        orders: Mapping[Port, np.ndarray] | None = None,
        remembered: Iterable[Remembered] = (),
    ) -> None:
        super().__init__(gone or {})
        self.orders = dict(orders or {})
        self.remembered = tuple(remembered)

    def kept(self, port: Port) -> np.ndarray:
        """The channels of a port that stay, in their order."""
        order = self.orders.get(port)
        return np.delete(np.arange(port.size), self[port]) if order is None else order


Choice = Callable[["ChannelGroup", float], np.ndarray]  # which units a ratio removes from a group


@dataclass(frozen=True, eq=False)
class ChannelGroup:
    """Layers whose channels move together.

    Attributes:
        name: The group's first 4-D weight, as Paddle names it (``conv2d_0.w_0``).
        path: The same weight by its path in the model (``stem.0.weight``).
        channels: How many channels that weight makes.
        members: (parameter name, axis) of everything that is cut.
        units: For every port, which unit each of its channels belongs to; -1 for a channel that stays.
        blocks: A partition of the units: the same number is removed from each block. One block means free choice.
        rule: In words, what may be removed.
        scored: The 4-D weights that make the channels, first the one that names the group.
        layouts: The narrower forms that the group can take, where what stays has to be rearranged; empty for any number.
        remembered: Attributes of blocks that have to follow the group's width.
    """

    name: str
    path: str
    channels: int
    members: tuple[tuple[str, int], ...]
    units: Mapping[Port, np.ndarray]
    blocks: tuple[np.ndarray, ...]
    rule: str
    scored: tuple[tuple[Port, Slice], ...]
    layouts: tuple[Layout, ...] = ()
    remembered: tuple[Remembered, ...] = ()

    @property
    def size(self) -> int:
        """How many units there are."""
        return sum(len(block) for block in self.blocks)

    @property
    def layers(self) -> list[str]:
        """The layers that are cut, makers of the channels first."""
        makers = [port.layer for port in self.units if port.side == "out"]
        return list(dict.fromkeys([*makers, *(port.layer for port in self.units)]))

    @property
    def filters(self) -> list[str]:
        """The paths of the weights that lose filters: those that make the channels, and those they pass through."""
        return [piece.tensor for port in self.units if not port.reads for piece in port.slices]

    def kinds(self) -> list[np.ndarray]:
        """The units, sorted by which ports they have channels in."""
        present = np.stack([np.bincount(u[u >= 0], minlength=self.size) > 0 for u in self.units.values()])
        _, kind = np.unique(present, axis=1, return_inverse=True)
        kind = kind.reshape(-1)  # NumPy 2.0 gives it another shape
        return [np.flatnonzero(kind == k) for k in range(kind.max() + 1)]

    def channels_left(self, units: np.ndarray) -> int:
        """How many channels of the group's first weight are left when these units go."""
        return self.channels - int(np.isin(self.units[self.scored[0][0]], units).sum())

    def weakest(self, scores: np.ndarray, ratio: float) -> np.ndarray:
        """The units that a ratio removes: in each block, those with the lowest scores; no layer loses its last channel."""
        if self.layouts:
            wanted = _count(self.size, ratio)
            fitting = [form for form in self.layouts if form.removed <= wanted]
            return fitting[-1].weakest(scores) if fitting else np.empty(0, int)
        queues = [block[np.argsort(scores[block], kind="stable")] for block in self.blocks]
        counts = [_count(len(block), ratio) for block in self.blocks]
        units = np.concatenate([queue[:count] for queue, count in zip(queues, counts)])
        chosen = np.sort(units if self._leaves_some(units) else self._sparing(queues, min(counts)))
        return np.asarray(chosen, dtype=int)

    def _leaves_some(self, units: np.ndarray) -> bool:
        gone = np.zeros(self.size, bool)
        gone[units] = True
        return not any(gone[unit[unit >= 0]].all() for unit in self.units.values())

    def _sparing(self, queues: list[np.ndarray], count: int) -> list[int]:
        """Up to so many units from each queue, the same number from all, passing over any layer's last channel."""
        width = np.stack([np.bincount(u[u >= 0], minlength=self.size) for u in self.units.values()])
        left = width.sum(axis=1)
        waiting = [list(queue) for queue in queues]
        chosen: list[int] = []
        for _ in range(count):
            turn: list[int] = []
            for queue in waiting:
                spared = (unit for unit in queue if ((left > width[:, unit]) | (width[:, unit] == 0)).all())
                unit = next(spared, None)
                if unit is None:
                    return chosen
                queue.remove(unit)
                left = left - width[:, unit]
                turn.append(int(unit))
            chosen += turn
        return chosen

    def removal(self, units: Iterable[int] | np.ndarray) -> Removal:
        """The channels of every port that go with these units."""
        chosen = np.zeros(self.size, bool)
        chosen[np.asarray(list(units), dtype=int)] = True
        gone = {port: np.flatnonzero((unit >= 0) & chosen[unit]) for port, unit in self.units.items()}
        gone = {port: channels for port, channels in gone.items() if len(channels)}
        form = next((form for form in self.layouts if form.removed == chosen.sum()), None)
        orders = form.orders(self.units, np.flatnonzero(chosen)) if form is not None else {}
        return Removal(gone, orders, self.remembered)

    def unit_scores(self, channel_scores: Mapping[Port, np.ndarray]) -> np.ndarray:
        """The score of every unit: the mean over its channels in the first scored weight that has any."""
        scores = np.full(self.size, np.nan)
        for port, _ in self.scored:
            unit = self.units[port]
            inside = unit >= 0
            total = np.bincount(unit[inside], weights=channel_scores[port][inside], minlength=self.size)
            number = np.bincount(unit[inside], minlength=self.size)
            fill = np.isnan(scores) & (number > 0)
            scores[fill] = total[fill] / number[fill]
        return scores

    def __str__(self) -> str:
        lines = [f"{self.name} ({self.path}): {self.channels} channels, {self.size} units, {self.rule}"]
        lines += [f"  {name:<32} axis {axis}" for name, axis in self.members]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"<ChannelGroup {self.name} ({self.path}), {self.channels} channels, {len(self.members)} members>"
        )


def checked_ratio(ratio: object, name: str = "") -> float:
    """One ratio, at least 0 and under 1."""
    of = f" of {name}" if name else ""
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float, np.integer, np.floating)):
        raise InputError(f"The ratio{of} must be a number, not {ratio!r}.")
    if not 0 <= ratio < 1:
        raise InputError(
            f"The ratio{of} is {ratio:g}; it must be at least 0 and under 1 (the share of channels to remove)."
        )
    return float(ratio)


def _count(size: int, ratio: float) -> int:
    """PaddleSlim's rule: rounded, and one is always left."""
    return min(round(size * ratio), size - 1)


def merge_removals(removals: Iterable[Removal]) -> Removal:
    """What goes when several groups are cut at once; groups may share a port (the batch norm behind a concat)."""
    merged = Removal()
    for removal in removals:
        for port, channels in removal.items():
            merged[port] = np.union1d(merged[port], channels) if port in merged else channels
        merged.orders.update(removal.orders)
        merged.remembered = tuple(dict.fromkeys([*merged.remembered, *removal.remembered]))
    # An order counts all that its own group leaves; others may take more.
    for port, order in merged.orders.items():
        merged.orders[port] = order[~np.isin(order, merged[port])] if port in merged else order
    return merged


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
