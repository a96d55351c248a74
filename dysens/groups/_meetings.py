"""Channels that only sometimes arrive: those that meet in a maximum, a norm or a sorted list.

Only one that stands out moves what comes of it. So let others stand out: half of the channels, then the other half, above and
below all that were seen so far; and where several channels are known to arrive at a place, all but those. What then moves a
position that it is not known to reach meets there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dysens.groups._bits import Origin
from dysens.groups._probe import FAR, Probe

Masks = dict[str, np.ndarray]  # source path: which of its channels


class Meetings:
    """Looks for hidden meetings of sources whose known ways are given."""

    def __init__(
        self,
        probe: Probe,
        arrived: Mapping[str, Sequence[Origin]],
        sizes: Mapping[str, int],
        entries: Mapping[str, int],
    ) -> None:
        """Take what is known.

        Args:
            probe: A started probe.
            arrived: Where the channels of every source are known to arrive.
            sizes: How many channels it has.
            entries: How many every layer takes in.
        """
        self._probe = probe
        self._sizes = sizes
        self._entries = entries
        self._at: dict[
            str, list[tuple[str, np.ndarray]]
        ] = {}  # by layer: the sources, and which channel where
        for path, origins in arrived.items():
            for origin in origins:
                for layer, channels in origin.items():
                    self._at.setdefault(layer, []).append((path, channels))

    def refused(self, sources: Sequence[str]) -> dict[str, str]:
        """Sources whose channels meet unseen, and the layer before which they do."""
        found: dict[str, str] = {}
        left = list(sources)
        while left and (layer := self._found(left)) is not None:
            more = self._blamed(left, layer)
            # Only together, and not by halves: ask each for itself.
            more = more or {path: where for path in left if (where := self._found([path])) is not None}
            if not more:
                break
            found.update(more)
            left = [path for path in left if path not in more]
        return found

    def _blamed(self, sources: Sequence[str], layer: str) -> dict[str, str]:
        """Those of the sources that also do so alone; halving finds few among many quickly."""
        if len(sources) == 1:
            return {sources[0]: layer}
        found: dict[str, str] = {}
        for half in (sources[: len(sources) // 2], sources[len(sources) // 2 :]):
            where = self._found(half)
            if where is not None:
                found.update(self._blamed(half, where))
        return found

    def _found(self, sources: Sequence[str]) -> str | None:
        """The first layer that channels of these sources reach only when they are the largest or the smallest."""
        tried: set[tuple[bytes, ...]] = set()
        for masks in self._standing_out(sources):
            same = tuple(mask.tobytes() for mask in masks.values())
            if same in tried:
                continue
            tried.add(same)
            moving = {path: mask for path, mask in masks.items() if mask.any()}
            for beyond in (1, -1, FAR, -FAR):
                movement = self._probe.perturb(moving, beyond=beyond)
                if movement.outputs and not self._probe.view.implied:
                    return "of the output"
                for layer, moved in movement.positions.items():
                    if (moved & ~self._known_to_move(layer, moving)).any():
                        return layer
        return None

    def _known_to_move(self, layer: str, moving: Masks) -> np.ndarray:
        known = np.zeros(self._entries.get(layer, 1), bool)
        for path, channels in self._at.get(layer, ()):
            if path in moving:
                known |= (channels >= 0) & moving[path][channels]
        return known

    def _standing_out(self, sources: Sequence[str]) -> Iterator[Masks]:
        """Channels to let stand out together, by source."""
        random = np.random.default_rng(0)
        half = {path: random.random(self._sizes[path]) < 0.5 for path in sources}
        yield half
        yield {path: ~mask for path, mask in half.items()}
        # Twice, at other places: what one layer spares might be what meets unseen before another.
        for last in (False, True):
            for spared in self._sparing(sources, last):
                yield {path: ~spared.get(path, np.zeros(self._sizes[path], bool)) for path in sources}

    def _sparing(self, sources: Sequence[str], last: bool) -> list[Masks]:
        """For places at which several channels arrive, those channels; of many layers at once, where they do not disagree.

        Of every layer one place with the fewest is taken, the first or the last of them: the branches of a block read the same
        sum, and along a chain of blocks that add to it, the same channel of ever more sources is spared.
        """
        chosen = set(sources)
        together: list[Masks] = []
        for layer in sorted(self._at):
            arriving = [(path, channels) for path, channels in self._at[layer] if path in chosen]
            number = np.sum([channels >= 0 for _, channels in arriving], axis=0) if arriving else np.zeros(1)
            several = np.flatnonzero(number > 1)
            if not len(several):
                continue
            fewest = several[number[several] == number[several].min()][-1 if last else 0]
            own: Masks = {}
            for path, channels in arriving:
                if channels[fewest] >= 0:
                    own.setdefault(path, np.zeros(self._sizes[path], bool))[channels[fewest]] = True
            for spared in together:
                if all(np.array_equal(spared[path], mask) for path, mask in own.items() if path in spared):
                    spared.update(own)
                    break
            else:
                together.append(own)
        return together
