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

_MOST_PERIODS = 24


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
            codes: Other numbers than their own for the indices, whose bits are asked for, see `numbering`.
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
        while not asked.done:
            asked.take(self._move(asked.chosen()).positions)
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

    def shows_nothing(self, reach: Reach, size: int) -> bool:
        """Whether there is a layer at all of whose positions indices (below ``size``) with and without every bit arrive."""
        every = (1 << (size - 1).bit_length()) - 1
        return any(
            ((self._ones[path] & self._zeros[path])[reached] & every == every).all()
            for path, reached in reach.items()
            if path in self._ones
        )

    def turns(self, reach: Reach) -> int | None:
        """How many probes it may take to tell several indices at one position apart; None where something hides what moves."""
        asked = self.further(reach)
        return None if asked is None else asked.turns

    def further(self, reach: Reach, size: int | None = None) -> Further | None:
        """What to ask where several indices (below ``size``) may arrive at one position; None where movement is hidden."""
        clear = self._clear(reach)
        if clear is None:
            return None
        classes = {path: self._ones[path] & clear for path in reach}
        return Further(self._codes[: size or self.size] & clear, classes, reach)

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
    """Further probes, one index at a time from each class of those that never meet, until it is known where all arrive.

    An index that moves every position of its class makes one unit of them: whatever of them the others of the class move,
    they belong to it, and need not be asked.

    Attributes:
        turns: How many probes that takes at most.
        mixed: Whether it is seen already that everything is mixed.
    """

    def __init__(self, classes: np.ndarray, at: Mapping[str, np.ndarray], reach: Reach) -> None:
        """Sort indices into turns.

        Args:
            classes: The class of every index.
            at: The class whose indices arrive, by layer, for each position.
            reach: The positions that count.
        """
        self._size, self._at, self._reach = len(classes), at, reach
        self._waiting: dict[int, list[int]] = {}
        for index, each in enumerate(classes.tolist()):
            self._waiting.setdefault(each, []).append(index)
        self._classes = max(int(classes.max()), *(int(c.max()) for c in at.values())) + 1
        self._several = len(self._waiting) > 1
        self.turns = max(map(len, self._waiting.values()))
        self._origins: list[Origin] = []
        self.mixed = False

    @property
    def done(self) -> bool:
        """Whether nothing has to be asked any more."""
        return self.mixed or not self._waiting

    def chosen(self) -> np.ndarray:
        """The indices to move next, as a mask."""
        mask = np.zeros(self._size, bool)
        if not self.mixed:
            mask[[members[0] for members in self._waiting.values()]] = True
        return mask

    def take(self, moved: Mapping[str, np.ndarray]) -> None:
        """Take what moved with them."""
        if self.done:
            return
        asked = {each: members.pop(0) for each, members in self._waiting.items()}
        origin = self._arriving(asked, moved)
        self._origins.append(origin)
        # A single index moves all there is.
        self.mixed = not self._several and any(
            (o >= 0)[self._reach[path]].all() for path, o in origin.items()
        )
        whole = asked.keys() - self._partly(moved)
        while later := {each: self._waiting[each].pop(0) for each in whole if self._waiting[each]}:
            self._origins.append(self._arriving(later, self._reach))
        self._waiting = {each: members for each, members in self._waiting.items() if members}

    def _arriving(self, asked: Mapping[int, int], moved: Mapping[str, np.ndarray]) -> Origin:
        by_class = np.full(self._classes, -1)
        by_class[list(asked)] = list(asked.values())
        return {
            path: np.where(moved[path] & reached, by_class[self._at[path]], -1)
            for path, reached in self._reach.items()
            if path in moved
        }

    def _partly(self, moved: Mapping[str, np.ndarray]) -> set[int]:
        """The classes of which some position did not move."""
        still = {
            path: reached & ~moved[path] if path in moved else reached
            for path, reached in self._reach.items()
        }
        return {int(each) for path, mask in still.items() for each in np.unique(self._at[path][mask])}

    def origins(self) -> list[Origin] | None:
        """Origins that together name every index at these positions; None if one of them got none, or all."""
        if self.mixed:
            return None
        for path, reached in self._reach.items():
            arrived = sum((origin[path] >= 0).astype(int) for origin in self._origins if path in origin)
            counts = np.broadcast_to(arrived, reached.shape)[reached]
            if (counts == 0).any() or (counts == self._size).any():
                return None
        return self._origins


def numbering(size: int, move: Move, reach: Reach) -> np.ndarray | None:
    """Other numbers for indices, in whose bits those agree that meet at one position; None where no rule is found.

    Where three times eight heads of 24 channels lie side by side, those of a head meet: the first 24 of every 192. A number
    with fields for the three, the heads and the channels has bits that a whole head agrees on.

    Args:
        size: How many indices there are.
        move: Moves some of them.
        reach: Where they arrive.
    """
    index = np.arange(size)
    layer, place = next((path, int(mask.argmax())) for path, mask in reach.items() if mask.any())

    def suffice(width: int, period: int) -> bool:
        moved = move(index % period >= width).positions
        return layer not in moved or not moved[layer][place]

    for period in [size // parts for parts in range(1, size // 2 + 1) if size % parts == 0][:_MOST_PERIODS]:
        widths = [width for width in range(1, period) if period % width == 0]
        if not widths or not suffice(widths[-1], period):
            continue
        least, most = -1, len(widths) - 1
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (least, middle) if suffice(widths[middle], period) else (middle, most)
        width = widths[most]
        low, high = (width - 1).bit_length(), (period // width - 1).bit_length()
        return (index // period << low + high) | (index % period // width << low) | index % width
    return None
