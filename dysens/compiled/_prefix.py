"""What lies before the first masked layer is the same for all ratios: it is computed once per chunk of data.

A copy of the model that begins in the middle takes the outputs of earlier steps from memory. Which beginnings are worth
compiling is decided by the work ahead.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import paddle

from dysens.compiled._batches import ThreadPlan
from dysens.compiled._calls import Packed, largest_difference, signature_of
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
    work: Sequence[Work], elapsed: Sequence[float], evaluation_seconds: float, compile_seconds: float
) -> list[int]:
    """The steps at which to begin copies, rising.

    Args:
        work: What lies ahead.
        elapsed: For each step, the share of a forward pass that is over when it ends.
        evaluation_seconds: What one pass over the data takes now.
        compile_seconds: What one copy takes to make.
    """
    chosen: list[int] = []

    def saved(cuts: Sequence[int]) -> float:
        """Seconds that copies beginning at these steps save."""
        return evaluation_seconds * sum(
            each.evaluations * max((elapsed[cut - 1] for cut in cuts if cut <= each.first), default=0.0)
            for each in work
        )

    while True:
        options = sorted({each.first for each in work} - {0, *chosen})
        gains = {cut: saved([*chosen, cut]) - saved(chosen) for cut in options}
        best = max(gains, key=lambda cut: gains[cut], default=None)
        # The first one needs a copy of the beginning as well, and a pass over the data to fill the memory.
        price = compile_seconds if chosen else 2 * compile_seconds + evaluation_seconds
        if best is None or gains[best] <= _MARGIN * price:
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
        budget: How many bytes of outputs may be kept.

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
        budget: int,
    ) -> None:
        self.whole = whole
        example = calls[0]
        self._memory: dict[int, dict[int, np.ndarray]] = {}
        self._steps = sorted({step for cut in cuts for step in whole.live[cut]})
        bare = replace(whole.export_spec, call=example, consumers=(), cuts=())
        self._beginning = compiled_forward(
            model, replace(bare, wanted=self._steps), whole.runtime, thread_plan
        )
        values = dict(zip(self._steps, self._beginning.arrays(example, {})))
        self._kept = _kept_chunks(calls, sum(array.nbytes for array in values.values()), budget)
        self._ends: list[tuple[frozenset[str], CompiledForward]] = []
        examples = {signature_of(call): call for call in reversed(calls)}.values()
        values_of = [(call, dict(zip(self._steps, self._beginning.arrays(call, {})))) for call in examples]
        for cut, until in zip(cuts, (*cuts[1:], None)):
            mine = [w for w in work if w.first >= cut and (until is None or w.first < until)]
            paths = frozenset(path for each in mine for path in each.masked)
            consumers = [consumer for consumer in whole.export_spec.consumers if consumer.path in paths]
            export_spec = replace(bare, given=whole.live[cut], consumers=consumers)
            end = compiled_forward(model, export_spec, whole.runtime, thread_plan, values)
            if all(self._agrees(end, *each) for each in values_of):
                self._ends.append((paths, end))

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
            self._memory[number] = dict(zip(self._steps, self._beginning.arrays(call, {})))
        return self._memory[number]

    def _agrees(self, end: CompiledForward, call: Packed, values: Mapping[int, np.ndarray]) -> bool:
        """Whether a copy gives what the whole one does, with every other channel masked."""
        masks = {c.path: np.ones(c.shape, "float32") for c in self.whole.export_spec.consumers}
        for consumer in end.export_spec.consumers:
            masks[consumer.path].reshape(-1)[::2] = 0.0
        return largest_difference(end(call, masks, values), self.whole(call, masks)) <= TOLERANCE


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
