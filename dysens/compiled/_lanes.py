"""Several forwards at a time: chunks of data run side by side, what they give is taken in order.

Two predictors on one core each finish more than one predictor on two cores, and while the caller measures the outputs of one
chunk, the next ones are computed. Measuring itself stays in the caller's thread, one chunk after the other: an evaluator need
not know of threads, and an exception or Ctrl-C comes where it always did.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any, TypeVar

import paddle

Result = TypeVar("Result")
Jobs = Mapping[Hashable, Callable[[], Result]]

# Every lane holds the values between layers for a chunk of its own.
_MOST_LANES = 8
# With fewer batches for each lane, some lanes would wait for the last ones.
_BATCHES_PER_LANE = 2


@dataclass(frozen=True)
class ThreadPlan:
    """How a compiled copy uses the cores.

    Attributes:
        lanes: How many calls it serves at the same time.
        threads: How many threads each of them computes on.
    """

    lanes: int
    threads: int


def thread_plan(batches: int, cores: int) -> ThreadPlan:
    """Who runs so many batches on so many cores.

    Paddle 3's predictor (seen in 3.3.1) keeps Python's lock while it runs, so that calls of several threads wait for each
    other; Paddle 2's lets it go.

    Example:
        >>> thread_plan(1, cores=4)
        ThreadPlan(lanes=1, threads=4)
    """
    lanes = (
        min(cores, _MOST_LANES, batches // _BATCHES_PER_LANE) if paddle.__version__.startswith("2.") else 1
    )
    return ThreadPlan(max(lanes, 1), cores // max(lanes, 1))


class Lanes:
    """Threads that run jobs side by side.

    They live as long as this object: oneDNN forgets what it prepared for a network when a thread ends.

    Args:
        count: How many jobs run at the same time; with 1 they run in the caller's thread.
    """

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, "dysens-lane") if count > 1 else None
        # Twice as many as there are lanes: none is idle while the caller looks at a result.
        self._most_ahead = 2 * count
        self._early: dict[Hashable, Future[Any]] = {}

    @property
    def side_by_side(self) -> bool:
        """Whether jobs run while the caller does something else."""
        return self._pool is not None

    def in_order(
        self, jobs: Jobs[Result], then: Jobs[Result] = MappingProxyType({})
    ) -> Generator[Result, None, None]:
        """What each job returns, the first one first; a few run ahead. Whoever stops early should close the iterator.

        Args:
            jobs: By name.
            then: What is likely to be asked for in the next call. Lanes that the jobs leave idle begin with it, and the next
                call finds it under its name, or drops it if it does not want it.
        """
        if self._pool is None:
            yield from (job() for job in jobs.values())
            return
        early, self._early = self._early, {}
        ahead: deque[Future[Result]] = deque()
        try:
            for name, job in jobs.items():
                ahead.append(early.pop(name) if name in early else self._pool.submit(job))
                if len(ahead) > self._most_ahead:
                    yield ahead.popleft().result()
            for name, job in islice(then.items(), self._most_ahead):
                self._early[name] = self._pool.submit(job)
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in (*ahead, *early.values()):
                future.cancel()


def available_cores() -> int:
    """How many cores there are for this process. OMP_NUM_THREADS tells nothing: Paddle sets it to 1 when imported."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
