"""Scoring by an `Evaluator`: data in memory, small batches together, what ratios share computed once."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import paddle
import psutil  # type: ignore[import-untyped]

from dysens.compiled._batches import DEFAULT_CACHE_GIB, Chunk, KeptBatches, Lanes, chunked, contents, shuffled
from dysens.compiled._calls import Consumers, Packed, UnservableError, packed_call, signature_of
from dysens.compiled._copy import CompiledForward, Masks
from dysens.compiled._forward import FastForward
from dysens.compiled._prefix import PrefixReuse, Work, steps_of, worthwhile_cuts
from dysens.compiled._scorer import Scorer, ServedWronglyError
from dysens.compiled._stacking import can_be_stacked
from dysens.errors import DysensError
from dysens.evaluators import Evaluator, Measurements
from dysens.model import fresh, leaves, map_leaves, preserved
from dysens.pruning import PrunePlan

logger = logging.getLogger(__name__)

# Who changes something from batch to batch does it between the first ones.
_LOOKED_AT_CLOSELY = 3
# Shared beginnings may make the process larger by a sixth, unless somebody asks for a larger cache: who has room for an
# evaluation has room for a sweep.
_SHARE_FOR_BEGINNINGS = 6


class PartialEvaluation(NamedTuple):
    """A masked model, and how much of the data to see of it.

    Attributes:
        plan: Whose masks are on; None for the whole model.
        seen: What is known already, from a look with this plan at a smaller share.
        share: How much of the data to have seen then, counted in samples. Which ones is random, but the same for all plans.
    """

    plan: PrunePlan | None = None
    seen: Measurements = MappingProxyType({})
    share: float = 1.0


class _Forward(NamedTuple):
    """A chunk to run with some masks on, by a copy, or by the live model if there is none."""

    name: Hashable
    chunk: Chunk
    copy: CompiledForward | None
    run: Callable[[], list[np.ndarray]]


class _ServedNowError(Exception):
    """What is being measured was served by a copy that was just found to be wrong."""


class EvaluatorScorer(Scorer):
    """Scores by an `Evaluator`.

    Args:
        model: The live layer.
        evaluator: Gives batches and measures outputs.
        consumers: The layers that take masks.
        fast: Serves the model's forward.
        cache_gib: How many GiB of data, and of outputs of layers, may be kept.

    Attributes:
        samples: How many samples each batch has; known after the first score.
    """

    def __init__(
        self,
        model: paddle.nn.Layer,
        evaluator: Evaluator,
        consumers: Consumers,
        fast: FastForward,
        cache_gib: float,
    ) -> None:
        self.name = evaluator.name
        self.higher_is_better = evaluator.higher_is_better
        self.evaluator = evaluator
        self.samples: dict[int, int] = {}
        self._model = model
        self._consumers = consumers
        self._fast = fast
        self._batches = KeptBatches(evaluator.batches, cache_gib)
        self._chunks: list[Chunk] | None = None
        self._reuse: PrefixReuse | None = None
        self._forward_seconds = 0.0
        self._served_before = False
        self._carries = False
        self._interferes = False
        self._left_alone: set[int] = set()
        self._lanes = Lanes(1)

    @property
    def runtime(self) -> str:
        """Who ran the forward in the last score."""
        return self._fast.runtime

    @property
    def sample_count(self) -> int:
        """How many samples a score is of; known after the first."""
        return sum(self.samples.values())

    @property
    def picks_at_random(self) -> bool:
        """Whether part of the data is a random part: what is read again at every pass comes in the loader's order."""
        return self._batches.complete and not self._carries

    def score(self, plan: PrunePlan | None = None, then: PrunePlan | None = None) -> float:
        """The evaluator's metric on all data."""
        measured = self.measurements(
            PartialEvaluation(plan), PartialEvaluation(then) if then is not None else None
        )
        return self.evaluator.score([measured[number] for number in sorted(measured)])

    def measurements(self, look: PartialEvaluation, then: PartialEvaluation | None = None) -> Measurements:
        """What `Evaluator.measure` returns for each batch.

        Args:
            look: What to measure.
            then: What is likely to be asked for next; cores that are idle begin with it.

        Raises:
            ServedWronglyError: Earlier measurements have to be made again.
        """
        self._fast.look_around()
        try:
            found = self._measurements(look, then)
        except _ServedNowError:
            found = {}
        if not self._fast.was_wrong():
            self._served_before = self._served_before or self._fast.serves
            return found
        if self._served_before:
            raise ServedWronglyError
        return self._measurements(look, None)

    def _measurements(self, look: PartialEvaluation, then: PartialEvaluation | None) -> Measurements:
        measured: dict[int, Any] = dict(look.seen)
        with preserved(self._model), self._fast.serving(look.plan), paddle.no_grad():
            self._model.eval()
            self._fast.settle()
            if self._chunks is None:
                state = self._fast.state
                measured.update(self._first_pass())
                self._chunks = self._prepared(state)
            left = _Share(self.samples, measured, look.share)
            work = self._work(look.plan, measured, left)
            following: list[_Forward] = []
            if then is not None and self._lanes.side_by_side:
                following = self._work(then.plan, then.seen, _Share(self.samples, then.seen, then.share))
            jobs, later = ({each.name: each.run for each in forwards} for forwards in (work, following))
            with closing(self._lanes.in_order(jobs, later)) as outputs:
                for each, arrays in zip(work, outputs):
                    measured.update(self._measured_chunk(each, arrays, look.plan))
            if left.any:
                for number, batch in self._batches.unkept():
                    if number not in measured and left.take((number,)):
                        measured[number] = self._measured(batch)
        return measured

    def first_batch_twice(self) -> tuple[float, float]:
        """What the whole model scores on the first batch, and what it scores there when asked again; NaN if that is undefined."""
        scores = []
        for _ in range(2):
            with preserved(self._model), self._fast.serving(None), paddle.no_grad():
                self._model.eval()
                for _, batch in islice(self._batches, 1):
                    try:
                        scores.append(float(self.evaluator.score([self._measured(batch)])))
                    except DysensError:  # nothing counts in it
                        scores.append(math.nan)
        return scores[0], scores[1]

    def _work(self, plan: PrunePlan | None, seen: Measurements, left: _Share) -> list[_Forward]:
        """The chunks that a look runs. Their copies are at hand then: none is made while others run."""
        masks = self._consumers.masks(plan)
        name = plan.masks if plan is not None else ()
        found = []
        for index, chunk in enumerate(self._chunks or ()):
            if chunk.members[0] not in seen and left.take(chunk.members):
                accepted = self._fast.accepted(chunk.call) if chunk.call else None
                copy = accepted.copy if accepted is not None else None
                run = partial(self._forward, copy, index, chunk, masks)
                # What was begun while there was no copy yet gave nothing, and is not what is wanted now.
                found.append(_Forward((name, index, id(copy)), chunk, copy, run))
        return found

    def _first_pass(self) -> dict[int, Any]:
        """Read all data. What is not kept is measured at once; so is the rest if no copy is going to run it in chunks."""
        measured: dict[int, Any] = {}
        with preserved(self._model):
            start, between = self._fast.seen(far=True), self._fast.seen(far=True)
            for number, batch in self._batches:
                self._interferes = self._interferes or between.changed()
                if not number:
                    self._fast.copies.batches = len(self._batches)
                    outputs = self._outputs(batch)  # this compiles the copy
                self.samples[number] = _rows(self.evaluator.arguments(self._own(batch)))
                if not self._fast.serves or number >= len(self._batches.kept):
                    outputs = outputs if not number else self._outputs(batch)
                    between = self._fast.seen(far=number < _LOOKED_AT_CLOSELY)
                    measured[number] = self._measure(*outputs, batch)
                elif number == _LOOKED_AT_CLOSELY or between.changed():
                    between = self._fast.seen(far=number < _LOOKED_AT_CLOSELY)
            # A forward that a copy stands in for was seen to leave nothing behind.
            self._carries = not len(self._fast.copies) and start.changed()
        if self._interferes:
            self._batches.forget()
            if self._fast.serves:
                self._fast.give_up("the evaluator changes the model from batch to batch")
        return {} if self._carries or self._interferes else measured

    def expect(self, work: Sequence[tuple[PrunePlan, float]]) -> None:
        """Compile copies that begin in the middle, where the work ahead makes up for it."""
        if not self._chunks or not self._fast.serves or self._forward_seconds == 0:
            return
        calls = [chunk.call for chunk in self._chunks if chunk.call is not None]
        with paddle.no_grad():  # as the calls themselves
            accepted = self._fast.accepted(calls[0])
        if accepted is None:
            return
        copy, observation = accepted.copy, accepted.observation
        first = {c.path: observation.first_use(c.layer) for c in copy.export_spec.consumers}
        ahead = []
        for plan, evaluations in work:
            paths = {
                path for path, mask in self._consumers.masks(plan).items() if not mask.all() and path in first
            }
            steps = [step for path in paths if (step := first[path]) is not None]
            if steps:
                ahead.append(Work(frozenset(paths), min(steps), evaluations))
        # What is kept for all calls, if all are like the one that was observed.
        values = [sum(int(tensor.size) for tensor in call.tensors) for call in calls]
        alike = sum(values) / max(values[0], 1)

        room = self._room()

        def kept(cuts: Sequence[int]) -> float:
            needed = alike * sum(observation.sizes[step] for step in steps_of(copy, cuts))
            return min(1.0, room() / 2 / max(needed, 1.0))  # the copies take their share

        def compile_seconds(share: float) -> float:
            if copy.part_seconds is None:
                return self._fast.copies.compile_seconds
            return share * copy.part_seconds * len({signature_of(call) for call in calls})

        cuts = worthwhile_cuts(ahead, observation.elapsed, self._forward_seconds, compile_seconds, kept)
        if not cuts:
            return
        try:
            with self._fast.live.alone(), paddle.no_grad():
                self._reuse = PrefixReuse(
                    self._model,
                    copy,
                    ahead,
                    cuts,
                    self._fast.copies.plan_for(copy.runtime),
                    calls,
                    room,
                )
        except (
            Exception
        ):  # whatever export fails with; the copy of the whole model does the same, only slower
            logger.info(
                "The beginning of the forward is computed anew for every ratio: no copy can do without.",
                exc_info=True,
            )

    def _room(self) -> Callable[[], int]:
        """How many bytes beginnings may still take, whenever it is asked."""
        process, cache = psutil.Process(), self._batches
        most = process.memory_info().rss * (1 + 1 / _SHARE_FOR_BEGINNINGS)

        def room() -> int:
            if cache.cache_gib > DEFAULT_CACHE_GIB:
                return cache.bytes_left
            return max(0, min(cache.bytes_left, int(most - process.memory_info().rss)))

        return room

    def _measured(self, batch: Any) -> Any:
        return self._measure(*self._outputs(batch), batch)

    def _outputs(self, batch: Any) -> tuple[Any, Any]:
        """What the model returns for a batch, and the batch as it was given to the evaluator."""
        own = self._own(batch)
        # Copies, because a forward may write into its inputs, and the batch is needed again.
        return self._model(*fresh(self.evaluator.arguments(own))), own

    def _own(self, batch: Any) -> Any:
        """A copy of a batch, as long as the evaluator was not seen to leave it as it is."""
        return batch if id(batch) in self._left_alone else _copied(batch)

    def _measure(self, outputs: Any, own: Any, batch: Any) -> Any:
        found = self.evaluator.measure(outputs, own)
        if own is not batch and contents(own) == contents(batch):
            self._left_alone.add(id(batch))
        return found

    def _forward(
        self, copy: CompiledForward | None, index: int, chunk: Chunk, masks: Masks
    ) -> list[np.ndarray]:
        """The outputs of a chunk one by one; none if the live model has to run it. Called in another thread."""
        if copy is None or chunk.call is None:
            return []
        shared = self._reuse is not None and copy is self._reuse.whole
        found = self._reuse.arrays(index, chunk.call, masks) if shared and self._reuse is not None else None
        return copy.arrays(chunk.call, masks) if found is None else found

    def _measured_chunk(
        self, forward: _Forward, arrays: Sequence[np.ndarray], plan: PrunePlan | None
    ) -> dict[int, Any]:
        batches = {number: self._batches.kept[number] for number in forward.chunk.members}
        if forward.copy is None:
            return {number: self._measured(batch) for number, batch in batches.items()}
        outputs = forward.chunk.split(forward.copy.returned(arrays))
        for out, batch in zip(outputs, batches.values()):
            # Each batch as it would run alone: what runs together must not tell.
            if not self._fast.agrees(out, partial(self._arguments, batch), plan):
                raise _ServedNowError
        found = {}
        for out, (number, batch) in zip(outputs, batches.items()):
            own = self._own(batch)
            if own is not batch:
                self.evaluator.arguments(own)  # what this writes, the measurement may read
            found[number] = self._measure(out, own, batch)
        return found

    def _arguments(self, batch: Any) -> Packed:
        return packed_call(self.evaluator.arguments(self._own(batch)), {})

    def _call(self, batch: Any, state: int) -> Packed:
        """The model's arguments for a batch.

        Raises:
            UnservableError: The evaluator sets something in the model for it.
        """
        found = self._arguments(batch)
        self._fast.check_state()
        if self._fast.state != state:
            raise UnservableError("the evaluator sets attributes of the model for its batches")
        return found

    def _prepared(self, state: int) -> list[Chunk]:
        """The kept batches as chunks; measures how long they take.

        Args:
            state: The plain state that the model was in before the evaluator was asked for anything.
        """
        alone = [Chunk((number,), (0,), None) for number in range(len(self._batches.kept))]
        if self._carries:
            logger.info("The model carries state from batch to batch: they run in the evaluator's order.")
            return alone
        if not self._fast.serves or self._model._forward_pre_hooks or self._model._forward_post_hooks:
            return shuffled(alone)
        try:
            calls = [(number, self._call(batch, state)) for number, batch in enumerate(self._batches.kept)]
        except UnservableError as reason:
            self._fast.give_up(str(reason))
            return shuffled(alone)
        self._lanes = Lanes(self._fast.copies.thread_plan.lanes)
        chunks = chunked(calls, stack=True)
        if not can_be_stacked(dict(calls), chunks, self._fast, self._consumers.masks(None)):
            chunks = chunked(calls, stack=False)
        accepted = [self._fast.accepted(chunk.call) for chunk in chunks if chunk.call is not None]
        copies = [each.copy for each in accepted if each is not None]
        for copy in set(copies):
            mine = [each.call for each, its in zip(chunks, copies) if its is copy and each.call is not None]
            copy.keep_only(mine, self._consumers.masks(None))
        if chunks and len(copies) == len(chunks) and chunks[0].call is not None:
            # The first run prepares, and on a busy machine any run may take long: the shortest says what it costs.
            shortest = min(_timed(copies[0], chunks[0].call, self._consumers.masks(None)) for _ in range(3))
            self._forward_seconds = shortest * len(chunks) / self._fast.copies.thread_plan.lanes
        return chunks


def _timed(copy: CompiledForward, call: Packed, masks: Masks) -> float:
    start = time.perf_counter()
    copy(call, masks)
    return time.perf_counter() - start


def _copied(batch: Any) -> Any:
    def copied(leaf: Any) -> Any:
        if isinstance(leaf, paddle.Tensor):
            return leaf.clone()
        return leaf.copy() if isinstance(leaf, np.ndarray) else leaf

    return map_leaves(copied, batch)


class _Share:
    """How many samples are left to measure until a share of them is."""

    def __init__(self, samples: Mapping[int, int], measured: Measurements, share: float) -> None:
        self._samples = samples
        wanted = share * sum(samples.values()) - 1e-6 if share < 1 else math.inf
        self._left = wanted - sum(samples[number] for number in measured)

    @property
    def any(self) -> bool:
        """Whether something is left to measure."""
        return self._left > 0

    def take(self, members: Sequence[int]) -> bool:
        """Whether these batches are to be measured; they count as measured then."""
        taken = self.any
        self._left -= sum(self._samples[number] for number in members) if taken else 0
        return taken


def _rows(arguments: Any) -> int:
    """How many samples the arguments for a batch hold."""
    tensor = next((leaf for leaf in leaves(arguments) if isinstance(leaf, paddle.Tensor) and leaf.ndim), None)
    return int(tensor.shape[0]) if tensor is not None else 1
