"""Elimination: the order in which units go, each time the one whose work the others can best take over.

Optimal brain surgeon on what the consumers read. With the covariance C of a consumer's inputs and its weights W, removing input
p and letting the others make up for it costs ``|W_p|^2 / [C^-1]_pp`` of the consumer's output power. The unit with the least
sum over its consumers goes, weights and inverse covariances are updated, and so on. Orders are nested, and the costs add up to an
error curve.

Plain NumPy: nothing here knows about networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# A group with more units is done in batches: greedy among the cheapest units, then one update of everything else.
_ALL_AT_ONCE = 96
# How many of the cheapest units a batch chooses from, for each one that it removes.
_CHOICE = 4


@dataclass(frozen=True, eq=False)
class Reader:
    """What one consumer has to do with the units of a group.

    Attributes:
        unit: For every entry that belongs to the group, which unit it is of.
        inverse: The inverse covariance of those entries (rows and columns of the inverse over all that is read).
        gram: Their weights, multiplied with each other: ``W @ W.T``.
        power: The power of the consumer's whole output, to make errors of consumers comparable.
    """

    unit: np.ndarray
    inverse: np.ndarray
    gram: np.ndarray
    power: float


@dataclass(frozen=True, eq=False)
class Order:
    """How a group is taken apart.

    Attributes:
        rank: When each unit goes, from 0 on; units of one round share a rank.
        errors: After each round, the relative error of what the consumers make, summed up over them.
    """

    rank: np.ndarray
    errors: np.ndarray


def eliminate(readers: Sequence[Reader], blocks: Sequence[np.ndarray]) -> Order:
    """Order the units of a group.

    Args:
        readers: The group's consumers.
        blocks: A partition of the units; each round takes one unit from every block.

    Example:
        >>> reader = Reader(np.array([0, 1, 2]), np.eye(3), np.diag([4.0, 1.0, 2.0]), 7.0)
        >>> order = eliminate([reader], [np.arange(3)])
        >>> order.rank.tolist(), order.errors.round(3).tolist()
        ([2, 0, 1], [0.143, 0.429])
    """
    size = sum(len(block) for block in blocks)
    rounds = min(len(block) for block in blocks)
    rank = np.full(size, rounds - 1)
    errors: list[float] = []
    states = [_State(r.unit, r.inverse, r.gram, 1 / r.power, size) for r in readers]
    waiting = [np.array(block) for block in blocks]
    while len(errors) < rounds - 1:
        left = rounds - len(errors)
        several = left - 1 if left <= _ALL_AT_ONCE else left // 32
        scores = _scores(states, size)
        cheapest = [
            units[np.argsort(scores[units], kind="stable")][: _CHOICE * several + 8] for units in waiting
        ]
        for units, error in _greedy(states, cheapest, several):
            rank[units] = len(errors)
            errors.append((errors[-1] if errors else 0.0) + error)
        gone = rank < len(errors)
        waiting = [units[~gone[units]] for units in waiting]
        states = [state.without(gone) for state in states]
    return Order(rank, np.array(errors))


def set_error(readers: Sequence[Reader], units: np.ndarray) -> float:
    """The relative error when these units go together, whatever the order."""
    total = 0.0
    for reader in readers:
        gone = np.flatnonzero(np.isin(reader.unit, units))
        if len(gone):
            both = np.ix_(gone, gone)
            total += float(np.trace(np.linalg.solve(reader.inverse[both], reader.gram[both]))) / reader.power
    return total


class _State:
    """A reader while units go.

    Args:
        unit: See `Reader`.
        inverse: See `Reader`.
        gram: See `Reader`.
        scale: What errors are multiplied with.
        size: How many units there are.
    """

    def __init__(
        self, unit: np.ndarray, inverse: np.ndarray, gram: np.ndarray, scale: float, size: int
    ) -> None:
        self._unit = unit
        self._inverse = inverse
        self._gram = gram
        self._scale = scale
        self._size = size
        counts = np.bincount(unit, minlength=size)
        self._width = int(counts.max(initial=0))
        # The entries of every unit that has any; those with fewer than others are filled up with -1.
        self._units = np.flatnonzero(counts)
        self._places = np.full((size, max(1, self._width)), -1)
        by_unit = np.argsort(unit, kind="stable")
        within = np.arange(len(unit)) - np.repeat(np.cumsum(counts) - counts, counts)
        self._places[unit[by_unit], within] = by_unit

    def among(self, units: np.ndarray) -> _State:
        """A copy that knows only these units, numbered from 0 on."""
        number = np.full(self._size, -1)
        number[units] = np.arange(len(units))
        inside = np.flatnonzero(number[self._unit] >= 0)
        both = np.ix_(inside, inside)
        unit = number[self._unit[inside]]
        return _State(unit, self._inverse[both], self._gram[both], self._scale, len(units))

    def without(self, gone: np.ndarray) -> _State:
        """What is left when units (by flag) are taken away and all others make up for them."""
        out, stay = np.flatnonzero(gone[self._unit]), np.flatnonzero(~gone[self._unit])
        if not len(out):
            return self
        pivot, across = self._inverse[np.ix_(out, out)], self._inverse[np.ix_(out, stay)]
        spread = np.linalg.solve(pivot, across).T
        rows = self._gram[np.ix_(out, stay)]
        inverse = self._inverse[np.ix_(stay, stay)] - spread @ across
        crossed = spread @ (self._gram[np.ix_(out, out)] @ spread.T / 2 - rows)
        gram = self._gram[np.ix_(stay, stay)] + crossed + crossed.T
        return _State(self._unit[stay], inverse, gram, self._scale, self._size)

    def scores(self) -> np.ndarray:
        """What every unit would cost here."""
        found = np.zeros(self._size)
        if self._width == 1:
            places = self._places[self._units, 0]
            found[self._units] = self._gram[places, places] / self._inverse[places, places]
        elif self._width:
            rows, columns = self._places[self._units, :, None], self._places[self._units, None, :]
            real = (rows >= 0) & (columns >= 0)
            inverse = np.where(real, self._inverse[rows, columns], np.eye(self._width))
            gram = np.where(real, self._gram[rows, columns], 0.0)
            found[self._units] = np.trace(np.linalg.solve(inverse, gram), axis1=1, axis2=2)
        return found * self._scale

    def remove(self, unit: int) -> None:
        """Take one unit away in place: from then on it has neither weights nor a tie to anything else."""
        gone = self._places[unit][self._places[unit] >= 0]
        if not len(gone):
            return
        across = self._inverse[gone]
        spread = np.linalg.solve(across[:, gone], across) if len(gone) > 1 else across / across[0, gone]
        rows = self._gram[gone]
        # One product instead of two: both factors side by side.
        half = rows[:, gone] @ spread / 2 - rows
        self._inverse -= across.T @ spread
        self._gram += np.concatenate([spread, half]).T @ np.concatenate([half, spread])
        self._gram[gone] = self._gram[:, gone] = 0.0
        self._inverse[gone] = self._inverse[:, gone] = 0.0
        self._inverse[gone, gone] = 1.0


def _scores(states: Sequence[_State], size: int) -> np.ndarray:
    return np.asarray(sum((state.scores() for state in states), np.zeros(size)))


def _greedy(
    states: Sequence[_State], blocks: Sequence[np.ndarray], rounds: int
) -> list[tuple[np.ndarray, float]]:
    """So many rounds among these units, one of every block each; with every round's error."""
    units = np.concatenate(blocks)
    local = [state.among(units) for state in states]
    block_of = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
    waiting = [block_of == number for number in range(len(blocks))]
    done = []
    for _ in range(rounds):
        gone, error = [], 0.0
        for inside in waiting:
            scores = np.where(inside, _scores(local, len(units)), np.inf)
            place = int(scores.argmin())
            error += max(float(scores[place]), 0.0)
            inside[place] = False
            for state in local:
                state.remove(place)
            gone.append(units[place])
        done.append((np.array(gone), error))
    return done
