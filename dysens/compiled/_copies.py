"""Compiled copies, each accepted only for what it was compared on."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import paddle

from dysens.compiled._batches import ThreadPlan
from dysens.compiled._calls import Consumers, Packed, UnservableError, kind_of, signature_of
from dysens.compiled._copy import CompiledForward, compiled_forward
from dysens.compiled._export import ExportSpec
from dysens.compiled._live_model import LiveModel, Observation
from dysens.errors import in_a_sentence

logger = logging.getLogger(__name__)

# Inputs of the first size get a copy for that size, which runs fastest; those of other sizes share one for any size. Where
# that cannot be exported, some more sizes get copies of their own.
_FIRST = (("any batch size", False), ("any batch size", True), ("fixed size", False), ("fixed size", True))
_LATER = (("any size", True), *_FIRST)
_MOST_COPIES = 6


@dataclass(frozen=True, eq=False)
class Accepted:
    """A copy that was seen to do calls of one signature right.

    Attributes:
        copy: The copy.
        observation: The live forward that it was compared with, without its outputs.
        seconds: How long the copy took for the call.
    """

    copy: CompiledForward
    observation: Observation
    seconds: float


class ComparedCopies:
    """The copies of a live model.

    Args:
        live: The model itself.
        consumers: The layers that take masks.
        thread_plan: How copies use the cores.

    Attributes:
        compile_seconds: How long the last copy took to make and to compare.
        thread_plan: How copies that are made from now on use the cores.
    """

    def __init__(self, live: LiveModel, consumers: Consumers, thread_plan: ThreadPlan) -> None:
        self.compile_seconds = 0.0
        self.thread_plan = thread_plan
        self._live = live
        self._consumers = consumers
        self._accepted: dict[tuple[int, bool, str], Accepted] = {}
        self._made: dict[tuple[int, str], list[Accepted]] = {}

    def __len__(self) -> int:
        """How many signatures have been accepted."""
        return len(self._accepted)

    def accept(self, call: Packed, state: int) -> Accepted:
        """The copy for a call, compared with the live model on this very call if none of its signature was before.

        Args:
            call: The call.
            state: The number of the plain state that the model is in.

        Raises:
            UnservableError: There is none that gives what the live model gives.
        """
        key = (state, paddle.is_grad_enabled(), signature_of(call))
        if key not in self._accepted:
            with self._live.alone():
                self._accepted[key] = self._compared(call, self._made.setdefault((state, kind_of(call)), []))
        return self._accepted[key]

    def accepted_or_none(self, call: Packed, state: int) -> Accepted | None:
        """The same, or None where no copy can serve the call."""
        try:
            return self.accept(call, state)
        except UnservableError as reason:
            logger.debug("no copy for a call: %s", reason)
            return None

    def _compared(self, call: Packed, made: list[Accepted]) -> Accepted:
        observation = self._live.observe(call)
        reasons = []
        for known in made:
            # Where other layers run, other masks are needed.
            if known.copy.fits(call) and known.observation.layers == observation.layers:
                try:
                    return self._agreeing(known.copy, call, observation)
                except UnservableError as reason:
                    reasons.append(str(reason))
        if len(made) == _MOST_COPIES:
            raise UnservableError(
                f"the inputs come in more than {_MOST_COPIES} sizes, and each needs a copy of its own"
            )
        for freedom, convert in _LATER if made else _FIRST:
            start = time.perf_counter()
            try:
                export_spec = self._export_spec(call, observation, freedom, convert)
                copy = compiled_forward(self._live.model, export_spec, self.thread_plan)
                made.append(self._agreeing(copy, call, observation))
            except Exception as error:  # export and predictor fail in ways that cannot be listed
                reasons.append(_clause(error))
                logger.debug("no copy for %s (converted: %s)", freedom, convert, exc_info=True)
                continue
            self.compile_seconds = time.perf_counter() - start
            return made[-1]
        raise UnservableError(reasons[0])

    def _agreeing(self, copy: CompiledForward, call: Packed, observation: Observation) -> Accepted:
        seconds = self._live.compare(copy, call, observation)
        return Accepted(copy, observation.without_outputs(), seconds)

    def _export_spec(self, call: Packed, observation: Observation, freedom: str, convert: bool) -> ExportSpec:
        used = [c for c in self._consumers.all if observation.first_use(c.layer) is not None]
        cuts = sorted({observation.first_use(c.layer) or 0 for c in used} - {0})
        return ExportSpec(call, freedom, convert, consumers=used, cuts=cuts)


def _clause(error: Exception) -> str:
    if isinstance(error, UnservableError):
        return str(error)
    return f"it cannot be exported ({in_a_sentence(error)})"
