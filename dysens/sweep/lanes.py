"""Several forwards at a time: chunks of data run side by side, what they give is taken in order.

Two predictors on one core each finish more than one predictor on two cores, and while the caller measures the outputs of one
chunk, the next ones are computed. Measuring itself stays in the caller's thread, one chunk after the other: an evaluator need
not know of threads, and an exception or Ctrl-C comes where it always did.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import paddle

Result = TypeVar("Result")

# Every lane holds the values between layers for a chunk of its own.
_MOST_LANES = 8
# With fewer batches for each lane, some lanes would wait for the last ones.
_BATCHES_PER_LANE = 2


@dataclass(frozen=True)
class Crew:
    """How a compiled copy uses the cores.

    Attributes:
        lanes: How many calls it serves at the same time.
        threads: How many threads each of them computes on.
    """

    lanes: int
    threads: int


def crew_for(batches: int, cores: int) -> Crew:
    """Who runs so many batches on so many cores.

    Paddle 3's predictor (seen in 3.3.1) keeps Python's lock while it runs, so that calls of several threads wait for each
    other; Paddle 2's lets it go.

    Example:
        >>> crew_for(1, cores=4)
        Crew(lanes=1, threads=4)
    """
    lanes = (
        min(cores, _MOST_LANES, batches // _BATCHES_PER_LANE) if paddle.__version__.startswith("2.") else 1
    )
    return Crew(max(lanes, 1), cores // max(lanes, 1))


class Lanes:
    """Threads that run jobs side by side.

    They live as long as this object: oneDNN forgets what it prepared for a network when a thread ends.

    Args:
        count: How many jobs run at the same time; with 1 they run in the caller's thread.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool = ThreadPoolExecutor(count, "dysens-lane") if count > 1 else None

    def in_order(self, jobs: Sequence[Callable[[], Result]]) -> Generator[Result, None, None]:
        """What each job returns, the first one first; a few run ahead. Whoever stops early should close the iterator."""
        if self._pool is None:
            yield from (job() for job in jobs)
            return
        ahead: deque[Future[Result]] = deque()
        try:
            for job in jobs:
                ahead.append(self._pool.submit(job))
                # Twice as many as there are lanes: none is idle while the caller looks at a result.
                if len(ahead) > 2 * self._count:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def available_cores() -> int:
    """How many cores there are for this process. OMP_NUM_THREADS tells nothing: Paddle sets it to 1 when imported."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
