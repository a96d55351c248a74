"""Who measures which point: several processes may work on one journal, and none does what another did or is doing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from dysens.groups.group import ChannelGroup
from dysens.progress import Progress
from dysens.ratios import ratio_key
from dysens.results.journal import Journal
from dysens.results.points import Point

Observer = Callable[[Point], object]

POLL_SECONDS = 0.2
"""How often the journal is looked at while other processes have the points that are left."""


class SharedPoints:
    """The points of a sweep: those that are measured, by whomever, and those that are left.

    Args:
        groups: What is swept.
        ratios: The ratios of every group, in the order in which they are wanted.
        journal: Where points are kept and claimed; without one they are kept here, and nobody else is at them.
        observer: Gets every point as soon as it is known here, those that the journal held before first.
    """

    def __init__(
        self,
        groups: Sequence[ChannelGroup],
        ratios: Sequence[float],
        journal: Journal | None,
        observer: Observer | None = None,
    ) -> None:
        self._wanted = {(group.name, ratio_key(ratio)): group for ratio in ratios for group in groups}
        self._order = {group.name: position for position, group in enumerate(groups)}
        self._journal = journal
        self._observer = observer
        self._found: dict[tuple[str, float], Point] = {}
        self.refresh()

    def __len__(self) -> int:
        """How many points there are in all."""
        return len(self._wanted)

    @property
    def found(self) -> list[Point]:
        """What is measured, group by group and by rising ratio."""
        return sorted(self._found.values(), key=lambda point: (self._order[point.param], point.ratio))

    @property
    def missing(self) -> list[tuple[ChannelGroup, float]]:
        """What nobody has measured yet, as far as is known here."""
        return [(group, key[1]) for key, group in self._wanted.items() if key not in self._found]

    def refresh(self) -> list[Point]:
        """Look what others have measured; the points that are new here."""
        journaled = self._journal.points() if self._journal is not None else []
        keys = ((point.param, point.ratio) for point in journaled)
        new = {k: p for k, p in zip(keys, journaled) if k in self._wanted and k not in self._found}
        for point in new.values():
            self._learn(point)
        return list(new.values())

    def add(self, point: Point) -> None:
        """A point was measured here; when this returns it is on disk."""
        if self._journal is not None:
            self._journal.append(point)
        self._learn(point)

    def _learn(self, point: Point) -> None:
        self._found[point.param, point.ratio] = point
        if self._observer is not None:
            self._observer(point)

    def to_measure(self, display: Progress) -> Iterator[tuple[ChannelGroup, float]]:
        """Points for this process, one by one, until all are found; each has to be given to `add` before the next.

        What others have claimed is waited for, and taken over if they die.
        """
        while missing := self.missing:
            mine = next((point for point in missing if self._claim(*point)), None)
            if mine is None:
                time.sleep(POLL_SECONDS)
            else:
                group, ratio = mine
                display.at(f"{group.path} at {ratio:g}")
                yield mine
                display.last(self._found[group.name, ratio].loss)
            self.refresh()
            display.reach(len(self._found))

    def _claim(self, group: ChannelGroup, ratio: float) -> bool:
        return self._journal is None or self._journal.claim(group.name, ratio)
