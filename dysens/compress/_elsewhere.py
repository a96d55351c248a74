"""Comparing cuts in several processes: each has the whole network and the data, and is told what to mask."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import paddle

from dysens.compress._output_error import OutputError
from dysens.compress._samples import Call
from dysens.compress._subject import Subject
from dysens.groups import ChannelGroup, roles_of
from dysens.model import fingerprint, map_leaves
from dysens.pruning import PrunePlan
from dysens.results import Header
from dysens.sweep import (
    Build,
    Greeting,
    Pool,
    RunOptions,
    Task,
    Work,
    built,
    load_weights,
    opened_pool,
    weights_of,
)


@dataclass(frozen=True)
class _Job:
    """What a process is made from; tensors are arrays in it."""

    build: Build
    weights: Mapping[str, np.ndarray]
    groups: Sequence[ChannelGroup]
    calls: Sequence[Any]
    trial: PrunePlan


class _Comparer:
    """Lives in a worker."""

    def __init__(self, job: _Job) -> None:
        model, _ = built(job.build)
        load_weights(model, job.weights)
        calls = [map_leaves(_as_tensor, call) for call in job.calls]
        self._error = OutputError(model, roles_of(model), job.groups, calls, job.trial)
        self._greeting = Greeting.here(
            _header(type(model).__name__, fingerprint(model), self._error.of(job.trial))
        )

    def greet(self) -> Greeting:
        """Who it is, and what it makes of a mild cut."""
        return self._greeting

    def error(self, plan: PrunePlan, some: int | None) -> float:
        """How far the outputs are from the whole network's."""
        return self._error.of(plan, some)


def _header(model: str, weights: str, error: float) -> Header:
    return Header(model, weights, "elimination", "error of the outputs", min(error, 1e300), False)


def _as_array(leaf: Any) -> Any:
    return leaf.numpy() if isinstance(leaf, paddle.Tensor) else leaf


def _as_tensor(leaf: Any) -> Any:
    return paddle.to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf


class _Comparisons(Work):
    """The errors of some cuts."""

    def __init__(self, plans: Sequence[PrunePlan], some: int | None, advance: Callable[[], None]) -> None:
        self.errors: dict[int, float] = {}
        self._plans = plans
        self._some = some
        self._advance = advance
        self._left = deque(range(len(plans)))
        self._under_way: dict[Task, int] = {}

    @property
    def done(self) -> bool:
        """Whether all are known."""
        return not self._left and not self._under_way

    def task_for(self, slot: int) -> Task | None:
        """The next cut."""
        if not self._left:
            return None
        number = self._left.popleft()
        task = Task("error", (self._plans[number], self._some), f"cut {number + 1} of {len(self._plans)}")
        self._under_way[task] = number
        return task

    def answered(self, task: Task, answer: Any, slot: int) -> None:
        """Keep the error."""
        self.errors[self._under_way.pop(task)] = answer
        self._advance()

    def give_up(self, task: Task) -> None:
        """Leave it out; whoever asked is told by an exception."""
        del self._under_way[task]

    def lost(self, slot: int) -> None:
        """Nothing is remembered from cut to cut."""

    def refresh(self) -> None:
        """Nobody else compares."""


class SharedOutputError(OutputError):
    """The same, with several cuts compared at a time by others.

    Attributes:
        pool: Who compares.
    """

    pool: Pool | None = None

    def of_each(
        self, plans: Sequence[PrunePlan], some: int | None = None, advance: Callable[[], None] = lambda: None
    ) -> list[float]:
        """The error of every cut."""
        if self.pool is None or len(plans) < 2:
            return super().of_each(plans, some, advance)
        work = _Comparisons(plans, some, advance)
        self.pool.run(work)
        return [work.errors[number] for number in range(len(plans))]


@contextmanager
def compared_elsewhere(
    error: SharedOutputError, subject: Subject, calls: Sequence[Call], trial: PrunePlan, options: RunOptions
) -> Iterator[None]:
    """Have others compare, for as long as this is open.

    Args:
        error: What compares here.
        subject: The network.
        calls: What it is run on.
        trial: A mild cut, by which all see whether they agree.
        options: How many workers, what builds the network in each of them, and where.
    """
    arrays = [map_leaves(_as_array, tuple(call)) for call in calls]
    job = _Job(options.checked_build(), weights_of(subject.model), subject.groups, arrays, trial)
    header = _header(type(subject.model).__name__, fingerprint(subject.model), error.of(trial))
    with opened_pool(partial(_Comparer, job), header, options) as error.pool:
        try:
            yield
        finally:
            error.pool = None
