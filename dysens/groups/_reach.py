"""What each of many sources moves, from far fewer probes than there are sources.

The sources lie in a square: one probe moves a row of it, another a column. What a source moves alone lies in both its row's and
its column's movement. A position that only one source may have moved is told; sources that share some are moved again, as many
at once as cannot be mistaken for each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dysens.groups._bits import Reach
from dysens.groups._probe import Movement, Probe

# Up to so many sources are moved one by one.
_FEW = 8


class Square:
    """Rows and columns of sources, and what they moved.

    Attributes:
        groups: The sources of every row and column, and what moved with them.
        possible: For every source, what it can have moved at most.
    """

    def __init__(self, probe: Probe, sizes: Mapping[str, int]) -> None:
        """Probe rows and columns.

        Args:
            probe: A started probe.
            sizes: How many channels every source has, by its path.
        """
        self._probe = probe
        self._sizes = sizes
        self.groups: list[tuple[list[str], Movement]] = []
        self.possible: dict[str, Movement] = {}
        paths = list(sizes)
        if len(paths) <= _FEW:
            self.groups = [([path], self._moved([path])) for path in paths]
            self.possible = {path: movement for (path,), movement in self.groups}
            return
        side = int(np.ceil(np.sqrt(len(paths))))
        rows = [paths[start : start + side] for start in range(0, len(paths), side)]
        columns = [paths[start::side] for start in range(side)]
        self.groups = [(some, self._moved(some)) for some in (*rows, *columns)]
        with_all: dict[str, list[Movement]] = {}
        for some, movement in self.groups:
            for path in some:
                with_all.setdefault(path, []).append(movement)
        self.possible = {path: _both(*movements) for path, movements in with_all.items()}

    def movements(self, wanted: Iterable[str]) -> dict[str, Movement]:
        """What each of these sources moves alone."""
        paths = list(wanted)
        if len(self._sizes) <= _FEW:
            return {path: self.possible[path] for path in paths}
        alone = self._unreliable()
        found = {path: self._moved([path]) for path in paths if path in alone}
        claims, others = _claims(self.possible.values()), [path for path in paths if path not in alone]
        shared = [path for path in others if _shares(self.possible[path], claims)]
        found.update({path: self.possible[path] for path in others if path not in shared})
        for some in apart({path: dict(_marks(self.possible[path])) for path in shared}):
            movement = self._moved(some)
            if len(some) == 1:
                found[some[0]] = movement
            elif movement.flow or _beyond(movement, [self.possible[path] for path in some]):
                found.update({path: self._moved([path]) for path in some})
            else:
                found.update({path: _both(self.possible[path], movement) for path in some})
        return {path: found[path] for path in paths}

    def _moved(self, paths: Iterable[str]) -> Movement:
        return self._probe.perturb({path: np.ones(self._sizes[path], bool) for path in paths})

    def _unreliable(self) -> set[str]:
        """Sources of rows and columns that took another way, or moved what none of their sources can have moved."""
        return {
            path
            for some, movement in self.groups
            if movement.flow or _beyond(movement, [self.possible[path] for path in some])
            for path in some
        }


def apart(reaches: Mapping[str, Reach]) -> list[list[str]]:
    """Sources in lists, so that no two of a list reach the same."""
    lists: list[tuple[list[str], Reach]] = []
    for path, own in reaches.items():
        free = (each for each in lists if not _met(each[1], own))
        some, taken = next(free, ([], {}))
        if not some:
            lists.append((some, taken))
        some.append(path)
        for key, mask in own.items():
            taken[key] = taken[key] | mask if key in taken else mask
    return [some for some, _ in lists]


def _met(one: Reach, other: Reach) -> bool:
    return any((one[key] & mask).any() for key, mask in other.items() if key in one)


def _marks(movement: Movement) -> list[tuple[str, np.ndarray]]:
    """Everything that moved, as masks by name: positions, and what has no position."""
    further = ["outputs"] if movement.outputs else []
    further += [f"arguments of {path}" for path in movement.arguments]
    return [*movement.positions.items(), *((f" {name}", np.ones(1, bool)) for name in further)]


def _both(one: Movement, other: Movement) -> Movement:
    met = {
        path: mask & other.positions[path] for path, mask in one.positions.items() if path in other.positions
    }
    return Movement(
        {path: mask for path, mask in met.items() if mask.any()},
        one.outputs and other.outputs,
        one.arguments & other.arguments,
        one.flow or other.flow,
    )


def _claims(movements: Iterable[Movement]) -> dict[str, np.ndarray]:
    """By how many sources everything can have been moved."""
    counts: dict[str, np.ndarray] = {}
    for movement in movements:
        for key, mask in _marks(movement):
            counts[key] = counts.get(key, 0) + mask.astype(int)
    return counts


def _shares(movement: Movement, claims: Mapping[str, np.ndarray]) -> bool:
    return any((claims[key][mask] > 1).any() for key, mask in _marks(movement))


def _beyond(movement: Movement, possible: Sequence[Movement]) -> bool:
    """Whether something moved that none of the sources can have moved."""
    claims = _claims(possible)
    return any(key not in claims or (mask & (claims[key] == 0)).any() for key, mask in _marks(movement))


def united(reaches: Iterable[Reach]) -> Reach:
    """All that several sources reach."""
    result: Reach = {}
    for reach in reaches:
        for path, mask in reach.items():
            result[path] = result[path] | mask if path in result else mask
    return result


def same(one: Reach, other: Reach) -> bool:
    """Whether two sources reach the same."""
    counted = Counter(path for reach in (one, other) for path, mask in reach.items() if mask.any())
    return all(number == 2 and np.array_equal(one[path], other[path]) for path, number in counted.items())
