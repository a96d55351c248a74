"""The forward of a live model, served by a compiled copy as long as that says the same.

On CPU, every call of the live model during a sweep goes to a copy that was compiled for it (see `compiled`). The copy is
compared with the live forward on the first real batch, whole and masked. What it cannot serve, the live model runs itself,
and a warning says why, once.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import paddle

from dysens.compiled._calls import Packed, UnservableError, first_rows, largest_difference, packed_call
from dysens.compiled._copy import CompiledForward, compiled_forward
from dysens.compiled._export import ExportSpec
from dysens.compiled._lanes import ThreadPlan, available_cores
from dysens.compiled._masks import Consumers
from dysens.compiled._steps import Observation, observed
from dysens.compiled._watch import WeightWatch
from dysens.errors import ForwardError, InputError, in_a_sentence
from dysens.model import TensorState, all_tensors, leaves, preserved
from dysens.pruning import TOLERANCE, PrunePlan, masked

logger = logging.getLogger(__name__)

FAST_CHOICES = ("auto", "on", "off")

# Inputs of the first size get a copy for that size, which runs fastest; those of other sizes share one for any size. Where
# that cannot be exported, some more sizes get copies of their own.
_FIRST = (("any batch size", False), ("any batch size", True), ("fixed size", False), ("fixed size", True))
_LATER = (("any size", True), *_FIRST)
_MOST_COPIES = 6
# A forward that takes less than this is left alone until the live model has run for as long as compiling would take.
_QUICK_FORWARD_SECONDS = 0.005
_PATIENCE_SECONDS = 2.0
# Comparing takes the live forward, which is slow: of large batches some samples are enough.
_ROWS_TO_COMPARE = 8


class FastForward:
    """Stands in for the forward of a live model.

    Args:
        model: The live layer.
        consumers: The layers that take masks.
        checks: Plans whose masks touch every consumer, to compare the copy with the live model by.
        fast: "auto" falls back to the live forward with a warning, "on" raises instead, "off" never compiles.
        cores: How many cores the copy may use; all if not given.

    Attributes:
        compile_seconds: How long the last copy took to make.
        cores: How many cores it may use.
        crew: How copies use them. Calls come one at a time unless told otherwise, before the first.
    """

    def __init__(
        self,
        model: paddle.nn.Layer,
        consumers: Consumers,
        checks: Sequence[PrunePlan],
        fast: str = "auto",
        cores: int | None = None,
    ) -> None:
        if fast not in FAST_CHOICES:
            raise InputError(f'fast has to be "auto", "on" or "off", not {fast!r:.80}.')
        self.compile_seconds = 0.0
        self.cores = cores or available_cores()
        self.crew = ThreadPlan(1, self.cores)
        self._model = model
        self._consumers = consumers
        self._checks = checks
        self._strict = fast == "on"
        self._layers = model.sublayers(include_self=True)
        self._forward = model.forward
        self._unmasked = [TensorState(tensor) for tensor in all_tensors(model)]
        self._copies: dict[str, list[CompiledForward]] = {}
        self._observations: dict[str, Observation] = {}
        self._plan: PrunePlan | None = None
        self._weights_masked = False
        self._watch: WeightWatch | None = None
        self._differentiated = False
        self._patience = 0.0 if self._strict else math.inf
        self._masks = consumers.masks(None)
        self._why_not: str | None = 'fast is "off"' if fast == "off" else None
        if self._why_not is None and not paddle.get_device().startswith("cpu"):
            if self._strict:
                raise InputError(
                    f'fast="on" is for the CPU; on {paddle.get_device()} the live model itself is fast.'
                )
            self._why_not = f"the model runs on {paddle.get_device()}"

    @property
    def serves(self) -> bool:
        """Whether calls go to a compiled copy, as far as is known."""
        return self._why_not is None

    @contextmanager
    def serving(self, plan: PrunePlan | None, weights_masked: bool = False) -> Iterator[None]:
        """Inside, calls of the model give the outputs that it has with the plan's masks on.

        Args:
            plan: Whose masks; None for the whole model.
            weights_masked: Whether the live weights have the masks on already, for somebody who may write to them too.
        """
        own = "forward" in self._model.__dict__
        self._plan, self._weights_masked = plan, weights_masked
        self._watch = WeightWatch(self._model) if weights_masked and self.serves else None
        self._masks = self._consumers.masks(plan)
        self._model.forward = self._serve
        try:
            yield
        finally:
            self._plan, self._weights_masked, self._watch = None, False, None
            if own:
                self._model.forward = self._forward
            else:
                self._model.__dict__.pop("forward", None)

    @contextmanager
    def out_of_the_way(self) -> Iterator[None]:
        """Inside, the live model has its own forward and unmasked weights."""
        with preserved(self._model), paddle.no_grad():
            self._model.forward = self._forward
            for state in self._unmasked:
                state.restore()
            yield

    def gradients_were_lost(self) -> bool:
        """Whether somebody went backwards through outputs of a copy, which leads nowhere; no copy serves from then on."""
        lost, self._differentiated = self._differentiated, False
        if lost:
            self._give_up("the evaluation computes gradients")
        return lost

    def copy_for(self, call: Packed) -> CompiledForward | None:
        """The copy that serves such a call, made if need be; None if there can be none."""
        copies = self._copies.setdefault(_kind(call), [])
        fitting = next((copy for copy in copies if copy.fits(call)), None)
        if fitting is not None or not self.serves or not (copies or self._is_worth_it(call)):
            return fitting
        if len(copies) == _MOST_COPIES:
            self._give_up(
                f"the inputs come in more than {_MOST_COPIES} sizes, and each needs a copy of its own"
            )
            return None
        return self._made(call, copies)

    def observation(self, call: Packed) -> Observation:
        """The live forward pass with which the copy for such calls was compared."""
        return self._observations[_kind(call)]

    def _serve(self, *arguments: Any, **keywords: Any) -> Any:
        copy = None
        if self.serves:
            try:
                self._check_surroundings()
                call = packed_call(arguments, keywords)
                copy = self.copy_for(call)
            except UnservableError as reason:
                self._give_up(str(reason))
        if copy is not None:
            return self._noticing_gradients(copy(call, self._masks))
        on = nullcontext() if self._plan is None or self._weights_masked else masked(self._model, self._plan)
        start = time.perf_counter()
        with on:
            outputs = self._forward(*arguments, **keywords)
        self._patience -= time.perf_counter() - start
        return outputs

    def _noticing_gradients(self, outputs: Any) -> Any:
        if paddle.is_grad_enabled():
            for tensor in leaves(outputs):
                if isinstance(tensor, paddle.Tensor) and tensor.is_floating_point():
                    tensor.stop_gradient = False
                    tensor.register_hook(self._notice_gradient)
        return outputs

    def _notice_gradient(self, gradient: paddle.Tensor) -> None:
        self._differentiated = True

    def _is_worth_it(self, call: Packed) -> bool:
        """Whether compiling will pay; toys are faster without."""
        if self._patience == math.inf:
            some = first_rows(call, _ROWS_TO_COMPARE)
            with self.out_of_the_way():
                self._live(some)
                start = time.perf_counter()
                self._live(some)
                quick = time.perf_counter() - start < _QUICK_FORWARD_SECONDS
            self._patience = _PATIENCE_SECONDS if quick else 0.0
        return self._patience <= 0

    def _check_surroundings(self) -> None:
        if any(layer.training for layer in self._layers):
            # Not only this call: statistics or weights may change, and the copy would not know.
            raise UnservableError("the evaluation runs the model in training mode")
        if any(layer._forward_pre_hooks or layer._forward_post_hooks for layer in self._layers[1:]):
            raise UnservableError("layers inside the model have hooks, which a compiled copy would not run")
        if self._watch is not None and self._watch.changed():
            raise UnservableError("the evaluation changes weights or statistics of the model")

    def _give_up(self, why: str) -> None:
        if self._strict:
            raise ForwardError(f'fast="on", but no compiled copy can stand in for the model: {why}.')
        self._why_not = why
        logger.warning(
            "The sweep runs the live model instead of a compiled copy, which takes longer but gives the same numbers: %s.",
            why,
        )

    def _made(self, call: Packed, copies: list[CompiledForward]) -> CompiledForward | None:
        """The first copy that can be made and that gives what the live forward gives."""
        reasons = []
        with self.out_of_the_way():
            some = first_rows(call, _ROWS_TO_COMPARE)
            self._observations[_kind(call)] = observed(self._model, lambda: self._live(some))
            for freedom, convert in _LATER if copies else _FIRST:
                start = time.perf_counter()
                example = call if freedom == "fixed size" else some
                try:
                    copy = compiled_forward(self._model, self._recipe(example, freedom, convert), self.crew)
                    self._compare(copy, example)
                except Exception as error:  # export and predictor fail in ways that cannot be listed
                    reasons.append(_clause(error))
                    logger.debug("no copy for %s (converted: %s)", freedom, convert, exc_info=True)
                    continue
                self.compile_seconds = time.perf_counter() - start
                copies.append(copy)
                return copy
        self._give_up(reasons[0])
        return None

    def _recipe(self, call: Packed, freedom: str, convert: bool) -> ExportSpec:
        observation = self.observation(call)
        used = [c for c in self._consumers.all if observation.first_use(c.layer) is not None]
        cuts = sorted({observation.first_use(c.layer) or 0 for c in used} - {0})
        return ExportSpec(call, freedom, convert, consumers=used, cuts=cuts)

    def _live(self, call: Packed) -> Any:
        arguments, keywords = call.unpacked(call.tensors)
        return self._forward(*arguments, **keywords)

    def _compare(self, copy: CompiledForward, call: Packed) -> None:
        apart = largest_difference(copy(call, self._consumers.masks(None)), self._live(call))
        if not apart <= TOLERANCE:
            raise UnservableError(
                f"the outputs of the compiled copy differ by {apart:.2g} of the largest output"
            )
        # Where boxes are sorted out inside the model, rounding may tip a single one: one plan that agrees is enough.
        for plan in self._checks:
            with masked(self._model, plan):
                outputs = self._live(call)
            apart = largest_difference(copy(call, self._consumers.masks(plan)), outputs)
            if apart <= TOLERANCE:
                return
        if self._checks:
            raise UnservableError(
                f"with channels masked, the outputs of the compiled copy differ by {apart:.2g}"
            )


def _kind(call: Packed) -> str:
    """Calls of one kind differ in nothing but the sizes of their tensors."""
    return f"{call.tree} {[(str(tensor.dtype), len(tensor.shape)) for tensor in call.tensors]}"


def _clause(error: Exception) -> str:
    if isinstance(error, UnservableError):
        return str(error)
    return f"it cannot be exported ({in_a_sentence(error)})"
