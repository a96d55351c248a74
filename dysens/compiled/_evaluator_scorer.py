"""Scoring by an `Evaluator`: data in memory, small batches together, what ratios share computed once."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import closing
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import paddle

from dysens.compiled._batches import Chunk, KeptBatches, chunked, shuffled
from dysens.compiled._calls import Packed, UnservableError, largest_difference, packed_call
from dysens.compiled._copy import CompiledForward, Masks
from dysens.compiled._forward import FastForward
from dysens.compiled._lanes import Lanes, thread_plan
from dysens.compiled._masks import Consumers
from dysens.compiled._prefix import PrefixReuse, Work, worthwhile_cuts
from dysens.compiled._scorer import Scorer
from dysens.evaluators import Evaluator, Measurements
from dysens.model import leaves, preserved
from dysens.pruning import TOLERANCE, PrunePlan

logger = logging.getLogger(__name__)


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
        self._lanes = Lanes(1)

    def score(self, plan: PrunePlan | None = None, then: PrunePlan | None = None) -> float:
        """The evaluator's metric on all data."""
        measured = self.measurements(
            PartialEvaluation(plan), PartialEvaluation(then) if then is not None else None
        )
        return self.evaluator.score([measured[number] for number in sorted(measured)])

    def measurements(self, look: PartialEvaluation, then: PartialEvaluation | None = None) -> Measurements:
        """What the outputs of each batch tell.

        Args:
            look: What to measure.
            then: What is likely to be asked for next; cores that are idle begin with it.
        """
        measured: dict[int, Any] = dict(look.seen)
        with preserved(self._model), self._fast.serving(look.plan), paddle.no_grad():
            self._model.eval()
            if self._chunks is None:
                measured.update(self._first_pass())
                self._chunks = self._prepared()
            left = _Share(self.samples, measured, look.share)
            work = self._work(look.plan, measured, left)
            following: list[_Forward] = []
            if then is not None and self._lanes.side_by_side:
                following = self._work(then.plan, then.seen, _Share(self.samples, then.seen, then.share))
            jobs, later = ({each.name: each.run for each in forwards} for forwards in (work, following))
            with closing(self._lanes.in_order(jobs, later)) as outputs:
                for each, arrays in zip(work, outputs):
                    measured.update(self._measured_chunk(each, arrays))
            if left.any:
                for number, batch in self._batches.unkept():
                    if number not in measured and left.take((number,)):
                        measured[number] = self._measured(batch)
        return measured

    def _work(self, plan: PrunePlan | None, seen: Measurements, left: _Share) -> list[_Forward]:
        """The chunks that a look runs. Their copies are at hand then: none is made while others run."""
        masks = self._consumers.masks(plan)
        name = plan.masks if plan is not None else ()
        found = []
        for index, chunk in enumerate(self._chunks or ()):
            if chunk.members[0] not in seen and left.take(chunk.members):
                copy = self._fast.copy_for(chunk.call) if chunk.call else None
                run = partial(self._forward, copy, index, chunk, masks)
                found.append(_Forward((name, index), chunk, copy, run))
        return found

    def _first_pass(self) -> dict[int, Any]:
        """Read all data. What is not kept is measured at once; so is the rest if no copy is going to run it in chunks."""
        measured: dict[int, Any] = {}
        for number, batch in self._batches:
            if not number:
                self._fast.crew = thread_plan(len(self._batches), self._fast.cores)
                outputs = self._model(*self.evaluator.arguments(batch))  # this compiles the copy
            self.samples[number] = _rows(self.evaluator.arguments(batch))
            if self._fast.serves and number < len(self._batches.kept):
                continue
            measured[number] = self._measured(batch) if number else self.evaluator.measure(outputs, batch)
        return measured

    def expect(self, work: Sequence[tuple[PrunePlan, float]]) -> None:
        """Compile copies that begin in the middle, where the work ahead makes up for it."""
        if not self._chunks or not self._fast.serves or self._forward_seconds == 0:
            return
        calls = [chunk.call for chunk in self._chunks if chunk.call is not None]
        copy, observation = self._fast.copy_for(calls[0]), self._fast.observation(calls[0])
        if copy is None:
            return
        first = {c.path: observation.first_use(c.layer) for c in copy.recipe.consumers}
        ahead = []
        for plan, evaluations in work:
            paths = {
                path for path, mask in self._consumers.masks(plan).items() if not mask.all() and path in first
            }
            steps = [step for path in paths if (step := first[path]) is not None]
            if steps:
                ahead.append(Work(frozenset(paths), min(steps), evaluations))
        cuts = worthwhile_cuts(ahead, observation.elapsed, self._forward_seconds, self._fast.compile_seconds)
        if not cuts:
            return
        try:
            with self._fast.out_of_the_way():
                self._reuse = PrefixReuse(
                    self._model, copy, ahead, cuts, self._fast.crew, calls, self._batches.bytes_left
                )
        except (
            Exception
        ):  # whatever export fails with; the copy of the whole model does the same, only slower
            logger.info(
                "The beginning of the forward is computed anew for every ratio: no copy can do without.",
                exc_info=True,
            )

    def _measured(self, batch: Any) -> Any:
        return self.evaluator.measure(self._model(*self.evaluator.arguments(batch)), batch)

    def _forward(
        self, copy: CompiledForward | None, index: int, chunk: Chunk, masks: Masks
    ) -> list[np.ndarray]:
        """The outputs of a chunk one by one; none if the live model has to run it. Called in another thread."""
        if copy is None or chunk.call is None:
            return []
        shared = self._reuse is not None and copy is self._reuse.whole
        found = self._reuse.arrays(index, chunk.call, masks) if shared and self._reuse is not None else None
        return copy.arrays(chunk.call, masks) if found is None else found

    def _measured_chunk(self, forward: _Forward, arrays: Sequence[np.ndarray]) -> dict[int, Any]:
        batches = {number: self._batches.kept[number] for number in forward.chunk.members}
        if forward.copy is None:
            return {number: self._measured(batch) for number, batch in batches.items()}
        each = zip(batches.items(), forward.chunk.split(forward.copy.returned(arrays)))
        return {number: self.evaluator.measure(out, batch) for (number, batch), out in each}

    def _prepared(self) -> list[Chunk]:
        """The kept batches as chunks; measures how long they take."""
        alone = [Chunk((number,), (0,), None) for number in range(len(self._batches.kept))]
        if not self._fast.serves or self._model._forward_pre_hooks or self._model._forward_post_hooks:
            return shuffled(alone)
        calls = [
            (number, packed_call(self.evaluator.arguments(batch), {}))
            for number, batch in enumerate(self._batches.kept)
        ]
        self._lanes = Lanes(self._fast.crew.lanes)
        chunks = chunked(calls, stack=True)
        if not self._can_be_stacked(dict(calls), chunks):
            chunks = chunked(calls, stack=False)
        for chunk in chunks[:1]:
            copy = self._fast.copy_for(chunk.call) if chunk.call is not None else None
            if copy is not None and chunk.call is not None:
                masks = self._consumers.masks(None)
                copy(chunk.call, masks)  # the first run prepares oneDNN's kernels
                start = time.perf_counter()
                copy(chunk.call, masks)
                self._forward_seconds = (time.perf_counter() - start) * len(chunks) / self._fast.crew.lanes
        return chunks

    def _can_be_stacked(self, calls: Mapping[int, Packed], chunks: Sequence[Chunk]) -> bool:
        """Whether samples are independent: the outputs of batches that run together are those that each has alone."""
        chunk = next((chunk for chunk in chunks if len(chunk.members) > 1), None)
        if chunk is None or chunk.call is None:
            return True
        copy, masks = self._fast.copy_for(calls[chunk.members[0]]), self._consumers.masks(None)
        if copy is None or not copy.fits(chunk.call):
            return False
        try:
            together = chunk.split(copy(chunk.call, masks))
        except UnservableError:
            return False
        pairs = zip(together, (copy(calls[number], masks) for number in chunk.members))
        return all(largest_difference(one, other) <= TOLERANCE for one, other in pairs)


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
