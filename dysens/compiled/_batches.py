"""The data of a sweep: decoded once, kept in memory up to a budget, and run in chunks of equal shape, several at a time.

Two predictors on one core each finish more than one predictor on two cores, and while the caller measures the outputs of one
chunk, the next ones are computed. Measuring itself stays in the caller's thread, one chunk after the other: an evaluator need
not know of threads, and an exception or Ctrl-C comes where it always did.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import paddle

from dysens.compiled._calls import Packed, UnservableError, packed, rows_of
from dysens.errors import InputError
from dysens.model import leaves

logger = logging.getLogger(__name__)


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


def thread_plan(batches: int, cores: int, side_by_side: bool = True) -> ThreadPlan:
    """Who runs so many batches on so many cores.

    Args:
        batches: How many.
        cores: How many.
        side_by_side: Whether calls of several threads run at the same time at all.

    Example:
        >>> thread_plan(1, cores=4)
        ThreadPlan(lanes=1, threads=4)
    """
    lanes = min(cores, _MOST_LANES, batches // _BATCHES_PER_LANE) if side_by_side else 1
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
        """The results of the jobs in order; a few run ahead. A caller that stops early should close the iterator.

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
    """The number of cores for this process. OMP_NUM_THREADS is no guide: Paddle sets it to 1 when imported."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Item = TypeVar("Item")

DEFAULT_CACHE_GIB = 2.0
# Single images run faster together; with more there is nothing to gain, and a search could stop at fewer places.
_ROWS_PER_CHUNK = 4
# Large images gain nothing by it, and what lies between layers would take the memory several times.
_BYTES_PER_CHUNK = 2**20


class KeptBatches:
    """Batches that are the same at every pass. Those that fit into the budget are kept, the others are read again.

    Args:
        read: Gives all batches, in the same order at every call.
        cache_gib: How many GiB may be kept.
    """

    def __init__(self, read: Callable[[], Iterable[Any]], cache_gib: float = DEFAULT_CACHE_GIB) -> None:
        if isinstance(cache_gib, bool) or not isinstance(cache_gib, (int, float)) or not cache_gib >= 0:
            raise InputError(
                f"The argument cache_gib has to be a number of GiB, 0 to keep nothing; not {cache_gib!r:.80}."
            )
        self.cache_gib = cache_gib
        self._read = read
        self._budget = int(cache_gib * 2**30)
        self._count: int | None = None
        self._announced = 0
        self._first_unkept: int | None = None
        self.kept: list[Any] = []
        self.bytes_left = self._budget

    @property
    def complete(self) -> bool:
        """Whether all batches are in memory."""
        return self._count is not None and len(self.kept) == self._count

    def __len__(self) -> int:
        """The number of batches: known after one pass, or before it from the loader's length; else 0."""
        return self._count or self._announced

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """All batches with their numbers."""
        if self._count is None:
            yield from self._first_pass()
        else:
            yield from enumerate(self.kept)
            yield from self.unkept()

    def forget(self) -> None:
        """Keep nothing from now on: reading a batch does more than give data."""
        self.kept, self.bytes_left, self._budget, self._first_unkept = [], 0, 0, None

    def unkept(self) -> Iterator[tuple[int, Any]]:
        """The batches that are not in memory, with their numbers, read again."""
        if self.complete:
            return
        source = self._read()
        if _is_shuffled(source):
            raise InputError(
                "The loader shuffles, and its batches do not all fit into cache_gib: at every pass others would be left out. "
                "Give a loader with shuffle=False, or a larger cache_gib."
            )
        number = len(self.kept) - 1
        for number, batch in islice(enumerate(source), len(self.kept), None):
            if number == len(self.kept) and self._first_unkept not in (None, contents(batch)):
                self._first_unkept = None
                logger.warning(
                    "The loader gives other data at every pass, so that scores differ by chance: leave random augmentation out, "
                    "or give a larger cache_gib, so that all batches are kept as they are at first."
                )
            yield number, batch
        if number + 1 != self._count:
            raise InputError(
                f"The loader gave {self._count} batches at first and {number + 1} when it was read again; it has to give the "
                "same ones at every pass (a generator can be read only once: give a list or a DataLoader)."
            )

    def _first_pass(self) -> Iterator[tuple[int, Any]]:
        self.kept, self.bytes_left = [], self._budget
        keeping = True
        count = 0
        source = self._read()
        self._announced = _length(source)
        for number, batch in enumerate(source):
            size = size_of(batch)
            keeping = keeping and size <= self.bytes_left
            if keeping:
                self.kept.append(batch)
                self.bytes_left -= size
            elif number == len(self.kept):
                self._first_unkept = contents(batch)
            count += 1
            yield number, batch
        if not count:
            raise InputError("The evaluator has no batches; is its loader empty?")
        self._count = count


def size_of(batch: Any) -> int:
    """The bytes of all tensors and arrays in a batch."""
    return sum(
        int(np.prod(leaf.shape)) * leaf.element_size() if isinstance(leaf, paddle.Tensor) else leaf.nbytes
        for leaf in leaves(batch)
        if isinstance(leaf, (paddle.Tensor, np.ndarray))
    )


def contents(batch: Any) -> int:
    """A hash of what a batch holds: tensors, arrays, and how other things print."""
    arrays = [leaf.numpy() if isinstance(leaf, paddle.Tensor) else leaf for leaf in leaves(batch)]
    return hash(tuple(each.tobytes() if isinstance(each, np.ndarray) else repr(each) for each in arrays))


def _length(source: Any) -> int:
    """The length of a loader; 0 if it has none."""
    try:
        return len(source)
    except (TypeError, ValueError):  # a generator; a DataLoader over what has no length
        return 0


def _is_shuffled(source: Any) -> bool:
    sampler = getattr(getattr(source, "batch_sampler", None), "sampler", None)
    return isinstance(sampler, paddle.io.RandomSampler)


@dataclass(frozen=True, eq=False)
class Chunk:
    """Batches that run through the model as one.

    Attributes:
        members: Their numbers.
        rows: How many samples each of them has.
        call: The model's arguments for all of them; None for a single batch that the live model runs.
    """

    members: tuple[int, ...]
    rows: tuple[int, ...]
    call: Packed | None

    def split(self, outputs: Any) -> list[Any]:
        """The outputs of each batch.

        Raises:
            UnservableError: They cannot be told apart.
        """
        if len(self.members) == 1:
            return [outputs]
        whole = packed(outputs, lambda leaf: isinstance(leaf, paddle.Tensor))
        if any(not tensor.shape or tensor.shape[0] != sum(self.rows) for tensor in whole.tensors):
            raise UnservableError("an output does not have one row for each sample")
        parts = [paddle.split(tensor, list(self.rows)) for tensor in whole.tensors]
        return [whole.unpacked([part[index] for part in parts]) for index in range(len(self.members))]


def chunked(calls: Sequence[tuple[int, Packed]], stack: bool) -> list[Chunk]:
    """Calls of equal shape together, in an order that is random but the same every time.

    Whoever looks at some of the chunks only has then seen a fair sample.

    Args:
        calls: Numbers of batches, and the model's arguments for them.
        stack: Whether small batches may run together.
    """
    open_chunks: dict[str, list[tuple[int, Packed]]] = {}
    closed: list[list[tuple[int, Packed]]] = []
    for number, call in shuffled(calls):
        key = f"{call.tree} {[(str(t.dtype), *t.shape[1:]) for t in call.tensors]}"
        together = open_chunks.setdefault(key, [])
        together.append((number, call))
        if not stack or rows_of(call) is None or _is_full([c for _, c in together]):
            closed.append(open_chunks.pop(key))
    return shuffled([_stacked(each) for each in (*closed, *open_chunks.values())])


def _is_full(calls: Sequence[Packed]) -> bool:
    """Whether no further call should run together with these."""
    rows = sum(rows_of(call) or 0 for call in calls)
    return rows >= _ROWS_PER_CHUNK or sum(size_of(call.tensors) for call in calls) >= _BYTES_PER_CHUNK


def shuffled(items: Sequence[Item]) -> list[Item]:
    """The items in an order that is random but the same every time."""
    return [items[index] for index in np.random.default_rng(0).permutation(len(items))]


def _stacked(members: Sequence[tuple[int, Packed]]) -> Chunk:
    numbers = tuple(number for number, _ in members)
    calls = [call for _, call in members]
    if len(calls) == 1:
        return Chunk(numbers, (rows_of(calls[0]) or 0,), calls[0])
    columns = zip(*(call.tensors for call in calls))
    stacked = Packed(calls[0].tree, tuple(paddle.concat(list(column)) for column in columns))
    return Chunk(numbers, tuple(rows_of(call) or 0 for call in calls), stacked)
