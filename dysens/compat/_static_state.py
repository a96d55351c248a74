"""What a sweep over a static program leaves behind: points in PaddleSlim's file, and a scope as it was."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from dysens.atomic import write_whole
from dysens.compat._functions import load_sensitivities
from dysens.errors import InputError, JournalError
from dysens.model import run_through
from dysens.programs import program_shapes, scope_array, write_scope
from dysens.ratios import ratio_key
from dysens.results import Point, header_of, is_slim_file

Curves = dict[str, dict[float, float]]
Array = np.ndarray


class Results:
    """Losses by PaddleSlim's static formula, in memory and, point by point, in its file.

    Args:
        file: The pickle; or a journal of dysens (".jsonl"); or None.
        ratios: The ratios that are asked for, as they were given: they are the keys.

    Attributes:
        curves: Name to {ratio: loss}.
        journal: Where a sweep keeps its points.

    Raises:
        JournalError: The file holds something else.
    """

    def __init__(self, file: str | os.PathLike[str] | None, ratios: Sequence[float]) -> None:
        self._given = {ratio_key(ratio): float(ratio) for ratio in ratios}
        self._pickle: Path | None = None
        self._baseline: float | None = None
        self.journal: Path | None = None
        self.curves: Curves = {}
        if file is None:
            return
        place = Path(file)
        if place.is_file() and not place.stat().st_size:
            raise JournalError(f"{place} is empty, so it holds no sensitivities; remove it to begin anew.")
        self.curves = load_sensitivities(place)
        if place.suffix == ".jsonl" or (place.exists() and not is_slim_file(place)):
            self.journal = place
        else:
            self.journal, self._pickle = Path(f"{place}.jsonl"), place

    def has_all(self, names: Iterable[str]) -> bool:
        """Whether every ratio of all these weights is known."""
        return all(
            set(self._given) <= {ratio_key(ratio) for ratio in self.curves.get(name, ())} for name in names
        )

    def add(self, point: Point) -> None:
        """Take a point from a sweep, and write the file anew."""
        if self._baseline is None and self.journal is not None:
            header = header_of(self.journal)
            self._baseline = header.baseline if header is not None else None
        if self._baseline is not None and self._learn(point, self._baseline) and self._pickle is not None:
            write_whole(self._pickle, pickle.dumps(self.curves, protocol=2))

    def finish(self, points: Iterable[Point], baseline: float) -> None:
        """Take all points of a sweep."""
        for point in points:
            self._learn(point, baseline)
        self.curves = {name: dict(sorted(curve.items())) for name, curve in self.curves.items()}
        if self._pickle is not None:
            write_whole(self._pickle, pickle.dumps(self.curves, protocol=2))

    def _learn(self, point: Point, baseline: float) -> bool:
        curve = self.curves.setdefault(point.param, {})
        known = {ratio_key(ratio): ratio for ratio in curve}
        loss = point.loss if point.metric is None else (baseline - point.metric) / baseline
        ratio = known.get(point.ratio, self._given.get(point.ratio, point.ratio))
        news = curve.get(ratio) != loss
        curve[ratio] = loss
        return news


class ScopeState:
    """The parameters of a program in a scope: for the length of a ``with`` block others may be written there.

    Args:
        program: Whose parameters.
        scope: Where they are.
        place: Where values are put.
    """

    def __init__(self, program: Any, scope: Any, place: Any) -> None:
        self._scope, self._place = scope, place
        self._all: dict[str, Array] = {}
        self.remember(program)
        self._whole = dict(self._all)
        self._now = dict(self._whole)

    def remember(self, program: Any) -> None:
        """Take note of all values of a program before it is run, to bring them back after a failure."""
        for name in program_shapes(program):
            values = scope_array(self._scope, name) if name not in self._all else None
            if values is not None:
                self._all[name] = values

    def watch(self, names: Iterable[str]) -> None:
        """Look only after these from now on: what the network computes with, not what it counts."""
        self._whole = {name: self._all[name] for name in names if name in self._all}
        self._now = dict(self._whole)

    def write(self, values: Mapping[str, Array]) -> None:
        """Give parameters other values."""
        changed = {
            name: array.reshape(self._whole[name].shape)
            for name, array in values.items()
            if not _same(array.reshape(self._whole[name].shape), self._now[name])
        }
        write_scope(self._scope, changed, self._place)
        self._now.update(changed)

    def check(self, who: str) -> None:
        """Make sure that the parameters are as they were put there.

        Raises:
            InputError: One of them is not.
        """
        for name, expected in self._now.items():
            found = scope_array(self._scope, name)
            if found is None or not _same(found, expected):
                raise InputError(
                    f'{who} changed "{name}" in the scope; an evaluation has to leave the parameters as they are: give a program '
                    "made by clone(for_test=True), and do not train or load weights. The scope is as it was."
                )

    def restore(self, everything: bool = False) -> None:
        """Bring back the values that were there first.

        Args:
            everything: Also what the network does not compute with, such as an optimizer's state.
        """
        wanted = self._all if everything else self._whole
        found = {name: scope_array(self._scope, name) for name in wanted}
        changed = {
            name: array
            for name, array in wanted.items()
            if (now := found[name]) is None or not _same(now, array)
        }
        for name in changed:
            self._scope.var(name)
        write_scope(self._scope, changed)
        self._now = dict(self._whole)

    def __enter__(self) -> ScopeState:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run_through(lambda: self.restore(everything=error is not None))


def _same(one: Array, other: Array) -> bool:
    """Bit for bit."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    a, b = (np.ascontiguousarray(array).reshape(-1).view("u1") for array in (one, other))
    return bool(np.array_equal(a, b))
