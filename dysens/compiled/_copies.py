"""Compiled copies, each accepted only for what it was compared on."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import paddle

from dysens.compiled._batches import ThreadPlan, thread_plan
from dysens.compiled._calls import Consumers, Packed, UnservableError, kind_of, signature_of
from dysens.compiled._copy import CompiledForward, compiled_forwards
from dysens.compiled._export import ExportSpec
from dysens.compiled._live_model import LiveModel, Observation
from dysens.compiled._runtime import Runtime
from dysens.errors import in_a_sentence
from dysens.model import give_memory_back

logger = logging.getLogger(__name__)

# Inputs of the first size get a copy for that size, which runs fastest; those of other sizes share one for any size. Where
# that cannot be exported, some more sizes get copies of their own.
_FIRST = (("any batch size", False), ("any batch size", True), ("fixed size", False), ("fixed size", True))
_LATER = (("any size", True), *_FIRST)
_MOST_COPIES = 6
# How often each runtime is timed before one is chosen: a few times, and more often what is done fast.
_TURNS = range(3, 20)
_SECONDS_IN_TURNS = 0.5


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

    The first call decides who runs them: of the runtimes whose copies agree, the fastest on that call. Where it cannot serve a
    later call, another one may.

    Args:
        live: The model itself.
        consumers: The layers that take masks.
        runtimes: Who may run copies.
        cores: How many cores they may use.

    Attributes:
        compile_seconds: How long the last copy took to make.
        batches: How many calls may come side by side; to be set before the first.
        runtime: Who was chosen; None as long as nobody was.
    """

    def __init__(
        self, live: LiveModel, consumers: Consumers, runtimes: Sequence[Runtime], cores: int
    ) -> None:
        self.compile_seconds = 0.0
        self.batches = 1
        self.runtime: Runtime | None = None
        self._live = live
        self._consumers = consumers
        self._runtimes = runtimes
        self._cores = cores
        self._accepted: dict[tuple[int, bool, str], Accepted] = {}
        self._made: dict[tuple[int, str], list[Accepted]] = {}

    @property
    def thread_plan(self) -> ThreadPlan:
        """How copies of the chosen runtime use the cores."""
        return self.plan_for(self.runtime) if self.runtime is not None else ThreadPlan(1, self._cores)

    def plan_for(self, runtime: Runtime) -> ThreadPlan:
        """How copies of a runtime use the cores."""
        return thread_plan(self.batches, self._cores, runtime.side_by_side)

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
        """The same, or None where no copy can serve the call, or the live model cannot run it: nobody has asked for it yet."""
        try:
            return self.accept(call, state)
        except Exception as reason:  # the live model fails in ways that cannot be listed
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
        found = self._new_copies(call, observation, _LATER if made else _FIRST, reasons)
        if not found:
            raise UnservableError(reasons[0])
        chosen = found[0] if len(found) == 1 else self._fastest(found, call)
        if self.runtime is None:
            self.runtime = chosen.copy.runtime
            logger.info("Compiled copies of the model run with %s.", self.runtime.title)
        made.append(chosen)
        found.clear()  # another runtime's copy holds the weights once more
        give_memory_back()
        return chosen

    def _new_copies(
        self, call: Packed, observation: Observation, freedoms: Sequence[tuple[str, bool]], reasons: list[str]
    ) -> list[Accepted]:
        """Copies for a call, at most one of each runtime; only the chosen one's, if it has any."""
        others = [runtime for runtime in self._runtimes if runtime is not self.runtime]
        for runtimes in [[self.runtime], others] if self.runtime is not None else [others]:
            for freedom, convert in freedoms if runtimes else ():
                found, failed = self._attempt(call, observation, freedom, convert, runtimes)
                for runtime, why in failed.items():
                    # What Paddle says is about the network; the others only lack something.
                    reasons.insert(0 if runtime.name == "paddle" and not reasons else len(reasons), why)
                    if found:
                        logger.info("%s does not run copies of the model: %s.", runtime.title, why)
                if found:
                    return found
        return []

    def _attempt(
        self,
        call: Packed,
        observation: Observation,
        freedom: str,
        convert: bool,
        runtimes: Sequence[Runtime],
    ) -> tuple[list[Accepted], dict[Runtime, str]]:
        """Export once, load in each of the runtimes, and compare."""
        found = []
        try:
            export_spec = self._export_spec(call, observation, freedom, convert)
            plans = {runtime: self.plan_for(runtime) for runtime in runtimes}
            start = time.perf_counter()
            copies, errors = compiled_forwards(self._live.model, export_spec, plans)
            self.compile_seconds = (time.perf_counter() - start) / len(plans)
        except Exception as error:  # export fails in ways that cannot be listed
            logger.debug("no copy for %s (converted: %s)", freedom, convert, exc_info=True)
            return [], {runtimes[0]: _clause(error)}
        failed = {runtime: _clause(error) for runtime, error in errors.items()}
        for copy in copies:
            try:
                found.append(self._agreeing(copy, call, observation))
            except Exception as error:
                failed[copy.runtime] = _clause(error)
            give_memory_back()
        for runtime, why in failed.items():
            logger.debug("no copy for %s (converted: %s) with %s: %s", freedom, convert, runtime.title, why)
        return found, failed

    def _fastest(self, found: Sequence[Accepted], call: Packed) -> Accepted:
        """The copy that is done first with as many calls as it runs side by side, in turns with the others."""
        masks = self._consumers.masks(None)
        seconds: dict[Accepted, float] = {}
        with ExitStack() as pools:
            lanes = {
                each: pools.enter_context(ThreadPoolExecutor(self.plan_for(each.copy.runtime).lanes))
                for each in found
            }
            begin = time.perf_counter()
            for turn in range(_TURNS.stop):
                if turn > _TURNS.start and time.perf_counter() - begin > _SECONDS_IN_TURNS:
                    break
                for each, pool in lanes.items():
                    count = self.plan_for(each.copy.runtime).lanes
                    start = time.perf_counter()
                    list(pool.map(lambda copy: copy.arrays(call, masks), [each.copy] * count))
                    taken = (time.perf_counter() - start) / count
                    if turn:  # the first one prepares
                        seconds[each] = min(seconds.get(each, taken), taken)
        words = (f"{each.copy.runtime.title} {1000 * taken:.1f} ms" for each, taken in seconds.items())
        logger.info("A call takes %s.", ", ".join(words))
        return min(found, key=lambda each: seconds[each])

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
