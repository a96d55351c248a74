"""Which of many indices (the channels of a source, the entries of a parameter) arrive at every position.

Two probes per bit of the index tell: one moves all indices that have the bit, one all that have not. Where only one of the
two moves a position, every index that arrives there agrees on the bit. Where all bits are clear, it is a single index. Where
some are not (pixel shuffle lays four channels into one, a gate multiplies two), the clear bits still say which indices can
never meet, and one index of each such class can be moved at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from dysens.groups.probe import Movement

Reach = dict[str, np.ndarray]  # layer path: which of its entry channels are reached
Origin = dict[str, np.ndarray]  # layer path: the index that arrives at each entry channel; negative for none
Move = Callable[[np.ndarray], Movement]  # moves the chosen ones (a boolean mask) of all indices


class Bits:
    """What the probes bit by bit have shown.

    Attributes:
        size: How many indices there are.
        flow: Whether the forward took another way at some probe.
    """

    def __init__(self, size: int, move: Move) -> None:
        self.size = size
        self.flow = False
        self._move = move
        number = max(1, (size - 1).bit_length())
        self._all = (1 << number) - 1
        self._ones: Origin = {}  # layer path: for each position, the bits whose bearers move it
        self._zeros: Origin = {}  # the same for those that lack the bit
        for bit in range(number):
            with_bit = (np.arange(size) >> bit & 1).astype(bool)
            for chosen, seen in ((with_bit, self._ones), (~with_bit, self._zeros)):
                if chosen.any():
                    movement = move(chosen)
                    self.flow = self.flow or movement.flow
                    for path, moved in movement.positions.items():
                        seen[path] = seen.get(path, 0) | (moved.astype(int) << bit)
        for path in {*self._ones, *self._zeros}:
            nothing = np.zeros(len(self._ones.get(path, self._zeros.get(path, ()))), int)
            self._ones.setdefault(path, nothing)
            self._zeros.setdefault(path, nothing)

    def origins(self, reach: Reach) -> list[Origin] | None:
        """Origins that together name every index that arrives at these positions; None if everything is mixed."""
        return [self.single(reach)] if self.unclear(reach) is None else self.several(reach)

    def single(self, reach: Reach) -> Origin:
        """The one index that arrives at each of these positions; to be asked where none is unclear."""
        return {path: np.where(reached, self._ones[path], -1) for path, reached in reach.items()}

    def unclear(self, reach: Reach, size: int | None = None) -> str | None:
        """The first layer that has one of these positions at which no single index (below ``size``) arrives."""
        for path, reached in reach.items():
            if path not in self._ones:
                return path
            ones, zeros = self._ones[path][reached], self._zeros[path][reached]
            if (ones ^ zeros != self._all).any() or (ones >= (size or self.size)).any():
                return path
        return None

    def several(self, reach: Reach) -> list[Origin] | None:
        """The same where several indices may arrive at one position."""
        shared = 0
        for path, reached in reach.items():
            if path not in self._ones:
                return None
            ones, zeros = self._ones[path][reached], self._zeros[path][reached]
            if (ones | zeros != self._all).any():
                return None  # something hides what moves: no telling
            shared |= int(np.bitwise_or.reduce(ones & zeros, initial=0))
        clear = self._all & ~shared
        origins: list[Origin] = []
        for chosen in self._turns(clear):
            moved = self._move(np.isin(np.arange(self.size), chosen)).positions
            origins.append(self._arrived(chosen, clear, moved, reach))
            if not clear and any((o >= 0)[reach[path]].all() for path, o in origins[0].items()):
                return None  # a single index moves all there is
        return origins if self._is_told_apart(origins, reach) else None

    def _turns(self, clear: int) -> Iterator[np.ndarray]:
        """Indices that never meet, until all have had their turn: one from each class with the same clear bits."""
        waiting: dict[int, list[int]] = {}
        for index in range(self.size):
            waiting.setdefault(index & clear, []).append(index)
        for turn in range(max(map(len, waiting.values()))):
            yield np.array([members[turn] for members in waiting.values() if turn < len(members)])

    def _arrived(
        self, chosen: np.ndarray, clear: int, moved: Mapping[str, np.ndarray], reach: Reach
    ) -> Origin:
        by_class = np.full(self._all + 1, -1)
        by_class[chosen & clear] = chosen
        return {
            path: np.where(moved[path] & reached, by_class[self._ones[path] & clear], -1)
            for path, reached in reach.items()
            if path in moved
        }

    def _is_told_apart(self, origins: list[Origin], reach: Reach) -> bool:
        """Whether every position got an index, and none got all of them."""
        for path, reached in reach.items():
            arrived = sum((origin[path] >= 0).astype(int) for origin in origins if path in origin)
            counts = np.broadcast_to(arrived, reached.shape)[reached]
            if (counts == 0).any() or (counts == self.size).any():
                return False
        return True
