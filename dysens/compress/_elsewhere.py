"""Calibrating, and comparing cuts, in several processes: each has the whole network, and is told what to run or to mask."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import paddle
from paddle import nn

from dysens.compress._calibrate import Calibration, calibrate
from dysens.compress._output_error import OutputError
from dysens.compress._samples import Call
from dysens.compress._shares import merged, parts_of
from dysens.compress._subject import Subject
from dysens.groups import ChannelGroup, Role, roles_of
from dysens.model import View, eagerly, fingerprint, leaves, map_leaves, preserved
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


class _Helper:
    """Lives in a worker."""

    def __init__(self, job: _Job) -> None:
        self._model, _ = built(job.build)
        load_weights(self._model, job.weights)
        self._roles = roles_of(self._model)
        self._groups = job.groups
        self._calls = [_tensors(call) for call in job.calls]
        self._error: OutputError | None = None
        self._greeting = Greeting.here(_header(self._model, self._calls[0]))

    def greet(self) -> Greeting:
        """Who it is, and what it makes of one call."""
        return self._greeting

    def calibrate(self, calls: Sequence[Any], watched: Sequence[str] | None) -> Calibration:
        """What layers read, on a part of the data; see `calibrate` for what is watched."""
        outputs = None if watched is None else [self._roles[path] for path in watched]
        calls = [_tensors(call) for call in calls]
        return calibrate(self._model, self._roles, self._groups, calls, outputs=outputs)

    def error(self, plan: PrunePlan, some: int | None, watched: Sequence[str]) -> float:
        """How far the outputs are from the whole network's."""
        if self._error is None:
            layers = [self._roles[path] for path in watched]
            self._error = OutputError(self._model, self._roles, self._groups, self._calls, None, layers)
        return self._error.of(plan, some)


def _header(model: nn.Layer, call: Call) -> Header:
    """What all have to agree on: the weights, and how large the outputs are on one call."""
    with preserved(model), paddle.no_grad():
        model.eval()
        with eagerly(model, [View(tuple(call))]) as views:
            outputs = [model(*view.arguments) for view in views]
    sizes = [
        float(leaf.astype("float64").abs().mean())
        for leaf in leaves(outputs)
        if isinstance(leaf, paddle.Tensor) and leaf.is_floating_point() and leaf.size
    ]
    size = float(np.mean(sizes)) if sizes else 0.0
    return Header(
        type(model).__name__,
        fingerprint(model),
        "elimination",
        "size of the outputs",
        size
        if math.isfinite(size)
        else 0.0,  # what is wrong with such outputs is said when they are compared
        False,
    )


def _tensors(call: Any) -> Call:
    made = map_leaves(lambda leaf: paddle.to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf, call)
    return tuple(made)


def _arrays(call: Call) -> Any:
    return map_leaves(lambda leaf: leaf.numpy() if isinstance(leaf, paddle.Tensor) else leaf, tuple(call))


class _Each(Work):
    """Some calls of workers, whose answers are wanted in order.

    Args:
        method: Of `_Helper`.
        arguments: Of every call.
        what: What one is called, for messages.
        advance: Called after each.
    """

    def __init__(
        self, method: str, arguments: Sequence[tuple[Any, ...]], what: str, advance: Callable[[int], None]
    ) -> None:
        self._answers: dict[int, Any] = {}
        self._method, self._arguments, self._what = method, arguments, what
        self._advance = advance
        self._left = deque(range(len(arguments)))
        self._under_way: dict[Task, int] = {}

    def by(self, pool: Pool) -> list[Any]:
        """Have them done.

        Raises:
            WorkerError: One of them cannot be done.
        """
        pool.run(self)
        return [self._answers[number] for number in range(len(self._arguments))]

    @property
    def done(self) -> bool:
        """Whether all are known."""
        return not self._left and not self._under_way

    def task_for(self, slot: int) -> Task | None:
        """The next one."""
        if not self._left:
            return None
        number = self._left.popleft()
        where = f"{self._what} {number + 1} of {len(self._arguments)}"
        task = Task(self._method, self._arguments[number], where)
        self._under_way[task] = number
        return task

    def answered(self, task: Task, answer: Any, slot: int) -> None:
        """Keep the answer."""
        number = self._under_way.pop(task)
        self._answers[number] = answer
        self._advance(number)

    def give_up(self, task: Task) -> None:
        """Leave it out; whoever asked is told by an exception."""
        del self._under_way[task]

    def lost(self, slot: int) -> None:
        """Nothing is remembered from call to call."""

    def refresh(self) -> None:
        """Nobody else does it."""


class SharedOutputError(OutputError):
    """The same, with several cuts compared at a time by others.

    Attributes:
        pool: Who compares; None for this process.
    """

    pool: Pool | None = None

    def of_each(
        self, plans: Sequence[PrunePlan], some: int | None = None, advance: Callable[[], None] = lambda: None
    ) -> list[float]:
        """The error of every cut."""
        if self.pool is None or len(plans) < 2:
            return super().of_each(plans, some, advance)
        watched = [role.path for role in self.watched]
        arguments = [(plan, some, watched) for plan in plans]
        return _Each("error", arguments, "cut", lambda number: advance()).by(self.pool)


@contextmanager
def helpers(subject: Subject, calls: Sequence[Call], options: RunOptions) -> Iterator[Pool | None]:
    """Processes that calibrate and compare cuts, for as long as this is open; None if this one is to do it alone.

    Args:
        subject: The network.
        calls: What cuts are compared on.
        options: How many workers, what builds the network in each of them, and where.
    """
    if not options.elsewhere:
        yield None
        return
    build, weights = options.checked_build(), weights_of(subject.model)
    job = _Job(build, weights, subject.groups, [_arrays(call) for call in calls])
    with opened_pool(partial(_Helper, job), _header(subject.model, calls[0]), options) as pool:
        yield pool


def calibrated(
    subject: Subject,
    calls: Sequence[Call],
    pool: Pool | None,
    advance: Callable[[int], None] = lambda done: None,
    outputs: Sequence[Role] | None = None,
) -> Calibration:
    """What the consumers of all groups read, see `calibrate`; in parts that are the same wherever they are run.

    Args:
        subject: The network.
        calls: Arguments of its forward.
        pool: Who calibrates; None for this process.
        advance: Called with the number of calls that are done.
        outputs: See `calibrate`.
    """
    parts = parts_of(calls)
    done = itertools.count(1)
    if pool is None:
        found = [
            calibrate(
                subject.model, subject.roles, subject.groups, part, (), lambda: advance(next(done)), outputs
            )
            for part in parts
        ]
    else:
        watched = None if outputs is None else [role.path for role in outputs]
        arguments = [([_arrays(call) for call in part], watched) for part in parts]

        def count(number: int) -> None:
            for _ in parts[number]:
                advance(next(done))

        found = _Each("calibrate", arguments, "part of the data", count).by(pool)
    views = [view for view in subject.views if view.training]
    training = calibrate(subject.model, subject.roles, subject.groups, (), views) if views else None
    return merged(found, training)
