"""Which of many indices (the channels of a source, the entries of a parameter) arrive at every position.

Two probes per bit of the index tell: one moves all indices that have the bit, one all that have not. Where only one of the
two moves a position, every index that arrives there agrees on the bit. Where all bits are clear, it is a single index. Where
some are not (pixel shuffle lays four channels into one, a gate multiplies two), the clear bits still say which indices can
never meet, and one index of each such class can be moved at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dysens.groups._probe import Movement

Reach = dict[str, np.ndarray]  # layer path: which of its entry channels are reached
Origin = dict[str, np.ndarray]  # layer path: the index that arrives at each entry channel; negative for none
Move = Callable[[np.ndarray], Movement]  # moves the chosen ones (a boolean mask) of all indices


class Bits:
    """What the probes bit by bit have shown.

    Attributes:
        size: How many indices there are.
        flow: Whether the forward took another way at some probe.
    """

    def __init__(self, size: int, move: Move, codes: np.ndarray | None = None) -> None:
        """Ask bit by bit.

        Args:
            size: How many indices there are.
            move: Moves some of them.
            codes: Other numbers than their own for the indices, whose bits are asked for: where three times eight heads of
                24 channels lie side by side, a number with fields for the three, the heads and the channels tells heads apart.
        """
        self.size = size
        self.flow = False
        self._move = move
        self._codes = np.arange(size) if codes is None else codes
        number = max(1, int(self._codes.max(initial=0)).bit_length())
        self._all = (1 << number) - 1
        self._index = np.full(self._all + 1, -1)
        self._index[self._codes] = np.arange(size)
        self._ones: Origin = {}  # layer path: for each position, the bits whose bearers move it
        self._zeros: Origin = {}  # the same for those that lack the bit
        for bit in range(number):
            with_bit = (self._codes >> bit & 1).astype(bool)
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
        if self.unclear(reach) is None:
            return [self.single(reach)]
        asked = self.further(reach)
        if asked is None:
            return None
        for turn in range(asked.turns):
            if not asked.mixed:
                asked.take(turn, self._move(asked.chosen(turn)).positions)
        return asked.origins()

    def single(self, reach: Reach) -> Origin:
        """The one index that arrives at each of these positions; to be asked where none is unclear."""
        return {path: np.where(reached, self._index[self._ones[path]], -1) for path, reached in reach.items()}

    def unclear(self, reach: Reach, size: int | None = None) -> str | None:
        """The first layer that has one of these positions at which no single index (below ``size``) arrives."""
        for path, reached in reach.items():
            if path not in self._ones:
                return path
            ones, zeros = self._ones[path][reached], self._zeros[path][reached]
            index = self._index[ones]
            if (ones ^ zeros != self._all).any() or (index < 0).any() or (index >= (size or self.size)).any():
                return path
        return None

    def turns(self, reach: Reach) -> int | None:
        """How many probes it takes to tell several indices at one position apart; None where something hides what moves."""
        asked = self.further(reach)
        return None if asked is None else asked.turns

    def further(self, reach: Reach, size: int | None = None) -> Further | None:
        """What to ask where several indices (below ``size``) may arrive at one position; None where movement is hidden."""
        clear = self._clear(reach)
        if clear is None:
            return None
        classes = {path: self._ones[path] & clear for path in reach}
        return Further(self._codes[: size or self.size] & clear, classes, reach, bool(clear))

    def _clear(self, reach: Reach) -> int | None:
        """The bits in which all indices that arrive at any one position agree."""
        shared = 0
        for path, reached in reach.items():
            if path not in self._ones:
                return None
            ones, zeros = self._ones[path][reached], self._zeros[path][reached]
            if (ones | zeros != self._all).any():
                return None
            shared |= int(np.bitwise_or.reduce(ones & zeros, initial=0))
        return self._all & ~shared


class Further:
    """Further probes, one index at a time from each class of those that never meet, until all have had their turn.

    Attributes:
        turns: How many probes that takes.
        mixed: Whether it is seen already that everything is mixed.
    """

    def __init__(
        self, classes: np.ndarray, at: Mapping[str, np.ndarray], reach: Reach, several: bool
    ) -> None:
        """Sort indices into turns.

        Args:
            classes: The class of every index.
            at: The class whose indices arrive, by layer, for each position.
            reach: The positions that count.
            several: Whether there is more than one class.
        """
        self._classes, self._at, self._reach, self._several = classes, at, reach, several
        waiting: dict[int, list[int]] = {}
        for index, each in enumerate(classes.tolist()):
            waiting.setdefault(each, []).append(index)
        self.turns = max(map(len, waiting.values()))
        self._chosen = [
            np.array([members[turn] for members in waiting.values() if turn < len(members)])
            for turn in range(self.turns)
        ]
        self._origins: list[Origin] = []
        self.mixed = False

    def chosen(self, turn: int) -> np.ndarray:
        """The indices to move at a turn, as a mask."""
        mask = np.zeros(len(self._classes), bool)
        if turn < self.turns and not self.mixed:
            mask[self._chosen[turn]] = True
        return mask

    def take(self, turn: int, moved: Mapping[str, np.ndarray]) -> None:
        """Take what moved at a turn."""
        if turn >= self.turns or self.mixed:
            return
        by_class = np.full(max(int(self._classes.max()), *(int(c.max()) for c in self._at.values())) + 1, -1)
        by_class[self._classes[self._chosen[turn]]] = self._chosen[turn]
        origin = {
            path: np.where(moved[path] & reached, by_class[self._at[path]], -1)
            for path, reached in self._reach.items()
            if path in moved
        }
        self._origins.append(origin)
        # A single index moves all there is.
        self.mixed = not self._several and any(
            (o >= 0)[self._reach[path]].all() for path, o in origin.items()
        )

    def origins(self) -> list[Origin] | None:
        """Origins that together name every index at these positions; None if one of them got none, or all."""
        if self.mixed:
            return None
        for path, reached in self._reach.items():
            arrived = sum((origin[path] >= 0).astype(int) for origin in self._origins if path in origin)
            counts = np.broadcast_to(arrived, reached.shape)[reached]
            if (counts == 0).any() or (counts == len(self._classes)).any():
                return None
        return self._origins
