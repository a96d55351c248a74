"""What lies before the first masked layer is the same for all ratios: it is computed once per chunk of data.

A copy of the model that begins in the middle takes the outputs of earlier steps from memory. Which beginnings are worth
compiling is decided by the work ahead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import paddle
from paddle.static import InputSpec

from dysens.compiled._batches import ThreadPlan
from dysens.compiled._calls import Packed, UnservableError, largest_difference, signature_of
from dysens.compiled._copy import CompiledForward, Masks, compiled_forward
from dysens.pruning import TOLERANCE

logger = logging.getLogger(__name__)

# Compiling has to save this many times what it costs: estimates err.
_MARGIN = 1.5


@dataclass(frozen=True)
class Work:
    """Evaluations that lie ahead.

    Attributes:
        masked: The paths of the layers whose inputs they mask.
        first: The first step at which one of them runs.
        evaluations: How many, in passes over the data.
    """

    masked: frozenset[str]
    first: int
    evaluations: float


def worthwhile_cuts(
    work: Sequence[Work],
    elapsed: Sequence[float],
    evaluation_seconds: float,
    compile_seconds: Callable[[float], float],
    kept: Callable[[Sequence[int]], float] = lambda cuts: 1.0,
) -> list[int]:
    """The steps at which to begin copies, rising.

    Args:
        work: What lies ahead.
        elapsed: For each step, the share of a forward pass that is over when it ends.
        evaluation_seconds: What one pass over the data takes now.
        compile_seconds: What a copy takes to make that runs such a share of the forward.
        kept: For which share of the data there is room for what copies with such cuts begin with.
    """
    chosen: list[int] = []

    def saved(cuts: Sequence[int]) -> float:
        """Seconds that copies beginning at these steps save."""
        spared = sum(
            each.evaluations * max((elapsed[cut - 1] for cut in cuts if cut <= each.first), default=0.0)
            for each in work
        )
        return evaluation_seconds * spared * kept(cuts)

    while True:
        options = sorted({each.first for each in work} - {0, *chosen})
        gains = {cut: saved([*chosen, cut]) - saved(chosen) for cut in options}
        best = max(gains, key=lambda cut: gains[cut], default=None)
        # The first one needs a copy of the beginning as well, and a pass over the data to fill the memory.
        if best is None:
            return sorted(chosen)
        price = compile_seconds(1 - elapsed[best - 1])
        if not chosen:
            price += compile_seconds(elapsed[best - 1]) + evaluation_seconds
        if gains[best] <= _MARGIN * price:
            return sorted(chosen)
        chosen.append(best)


class PrefixReuse:
    """Copies of a model that begin in the middle, and the outputs of earlier steps that they begin with.

    Args:
        model: The live layer, unmasked and with its own forward.
        whole: The copy of the whole forward; its `live` knows the cuts.
        work: What lies ahead.
        cuts: Where to begin.
        thread_plan: How the copies use the cores.
        calls: The model's arguments for each chunk of data; the copies are tried on one of each signature.
        room: How many bytes of outputs may be kept, asked when the copies are there.

    Attributes:
        whole: The copy that it stands in for.
    """

    def __init__(
        self,
        model: paddle.nn.Layer,
        whole: CompiledForward,
        work: Sequence[Work],
        cuts: Sequence[int],
        thread_plan: ThreadPlan,
        calls: Sequence[Packed],
        room: Callable[[], int],
    ) -> None:
        self.whole = whole
        self._model = model
        self._thread_plan = thread_plan
        self._memory: dict[int, dict[int, np.ndarray]] = {}
        self._steps = steps_of(whole, cuts)
        self._unmasked = {c.path: np.ones(c.shape, "float32") for c in whole.export_spec.consumers}
        self._beginning = self._part(calls[0], frozenset(), wanted=self._steps)
        examples = list({signature_of(call): call for call in reversed(calls)}.values())
        values_of = [(call, self._begun(call)) for call in examples]
        self._ends: list[tuple[frozenset[str], CompiledForward]] = []
        for cut, until in zip(cuts, (*cuts[1:], None)):
            mine = [w for w in work if w.first >= cut and (until is None or w.first < until)]
            paths = frozenset(path for each in mine for path in each.masked)
            end = self._part(calls[0], paths, whole.live[cut])
            if all(self._agrees(end, paths, *each) for each in values_of):
                self._ends.append((paths, end))
        sizes = (array.nbytes for array in self._begun(calls[0]).values())
        self._kept = _kept_chunks(calls, sum(sizes), room())

    def arrays(self, number: int, call: Packed, masks: Masks) -> list[np.ndarray] | None:
        """What the whole copy would give; None if memory or copies for that are lacking.

        May be called from several threads; two that ask for a chunk at the same time both compute its beginning.

        Args:
            number: Which chunk of data it is.
            call: The model's arguments for this chunk.
            masks: By consumer path.
        """
        changed = {c.path for c in self.whole.export_spec.consumers if not masks[c.path].all()}
        end = next((copy for paths, copy in reversed(self._ends) if changed <= paths), None)
        if end is None or number not in self._kept:
            return None
        return end.arrays(call, masks, self._remembered(number, call))

    def _remembered(self, number: int, call: Packed) -> Mapping[int, np.ndarray]:
        if number not in self._memory:
            self._memory[number] = self._begun(call)
        return self._memory[number]

    def _begun(self, call: Packed) -> dict[int, np.ndarray]:
        return dict(zip(self._steps, self._beginning.arrays(call, self._unmasked)))

    def _part(
        self,
        call: Packed,
        paths: frozenset[str],
        given: Mapping[int, InputSpec] = MappingProxyType({}),
        wanted: Sequence[int] = (),
    ) -> CompiledForward:
        """A part of the whole copy; traced anew where the runtime cannot take it out of what it has.

        Args:
            call: An example.
            paths: The consumers to mask.
            given: The steps to begin with.
            wanted: The steps to end with.
        """
        try:
            return self.whole.part(paths, given, wanted)
        except UnservableError as reason:
            logger.debug("a part of the copy is traced anew: %s", reason)
        export_spec = replace(
            self.whole.export_spec,
            call=call,
            consumers=[c for c in self.whole.export_spec.consumers if c.path in paths],
            cuts=(),
            given=given,
            wanted=wanted,
        )
        values = self._begun(call) if given else None
        return compiled_forward(self._model, export_spec, self.whole.runtime, self._thread_plan, values)

    def _agrees(
        self, end: CompiledForward, paths: frozenset[str], call: Packed, values: Mapping[int, np.ndarray]
    ) -> bool:
        """Whether a copy gives what the whole one does, with every other channel masked."""
        masks = {path: mask.copy() for path, mask in self._unmasked.items()}
        for path in paths:
            masks[path].reshape(-1)[::2] = 0.0
        return largest_difference(end(call, masks, values), self.whole(call, masks)) <= TOLERANCE


def steps_of(whole: CompiledForward, cuts: Sequence[int]) -> list[int]:
    """The steps whose outputs copies with such cuts begin with."""
    return sorted({step for cut in cuts for step in whole.live[cut]})


def _kept_chunks(calls: Sequence[Packed], size: int, budget: int) -> frozenset[int]:
    """The chunks whose outputs fit into the budget, the first ones first.

    Args:
        calls: The model's arguments for each chunk.
        size: How many bytes the outputs for the first chunk take.
        budget: How many bytes there are.
    """
    values = [sum(int(np.prod(tensor.shape)) for tensor in call.tensors) for call in calls]
    needed = np.cumsum([size * count / values[0] for count in values])
    return frozenset(int(number) for number in np.flatnonzero(needed <= budget))
