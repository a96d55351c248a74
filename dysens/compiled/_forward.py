"""The forward of a live model, served by a compiled copy as long as that says the same.

On CPU, every call of the live model during a sweep goes to a copy that was compiled for it (see `compiled`). A copy serves
only what it was seen to do right: calls of a signature (sizes, types, nesting, other arguments) for which it was compared with
the live model, whole and masked, and only while the plain state of the layers is what it was then. A random share of the
calls is compared while it serves. What it cannot serve, the live model runs itself, and a warning says why, once.
"""

from __future__ import annotations

import logging
import math
import time
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import paddle

from dysens.compiled._batches import available_cores
from dysens.compiled._calls import Consumers, Packed, UnservableError, packed_call
from dysens.compiled._copies import Accepted, ComparedCopies
from dysens.compiled._live_model import LiveModel, SpotChecks
from dysens.compiled._runtimes import runtimes_for
from dysens.compiled._watch import AttributeWatch, ModelWatch, State, WeightWatch
from dysens.errors import ForwardError, InputError
from dysens.flags import given
from dysens.model import map_leaves
from dysens.pruning import TOLERANCE, PrunePlan, masked

logger = logging.getLogger(__name__)

_MOST_STATES = 8
# A forward that takes less than this is left alone until the live model has run for as long as compiling would take.
_QUICK_FORWARD_SECONDS = 0.005
_PATIENCE_SECONDS = 2.0
# Comparing a signature takes two live forwards: where nearly every call has one of its own, there is nothing to gain.
_SIGNATURES_BEFORE_DOUBT = 64


class FastForward:
    """Stands in for the forward of a live model.

    Args:
        model: The live layer.
        consumers: The layers that take masks.
        checks: Plans whose masks touch every consumer, to compare the copy with the live model by.
        fast: "auto" takes the fastest runtime that agrees and falls back to the live forward with a warning, "on" raises
            instead, the name of a runtime takes only that one, "off" never compiles.
        cores: How many cores the copy may use; all if not given.

    Attributes:
        cores: How many cores a copy may use.
        copies: The copies. Calls come one at a time unless their number of batches says otherwise, before the first.
        live: The model itself.
        state: The number of the plain state that the model was in when it was last looked at.
        training: Whether the last call ran in training mode.
    """

    def __init__(
        self,
        model: paddle.nn.Layer,
        consumers: Consumers,
        checks: Sequence[PrunePlan],
        fast: str = "auto",
        cores: int | None = None,
    ) -> None:
        runtimes = runtimes_for(fast)
        self.cores = cores or available_cores()
        self.training = False
        self._model = model
        self._consumers = consumers
        self._strict = fast == "on"
        self._attributes = AttributeWatch(model)
        self.live = LiveModel(model, consumers, checks, self._attributes)
        self.copies = ComparedCopies(self.live, consumers, runtimes, self.cores)
        self._states: list[State] = []
        self.state = 0
        self._calls = 0
        self._spots: SpotChecks | None = None
        self._plan: PrunePlan | None = None
        self._weights_masked = False
        self._weights: WeightWatch | None = None
        self._watch: WeightWatch | None = None
        self._differentiated = False
        self._distrusted = False
        self._patience = math.inf if fast == "auto" else 0.0
        self._masks = consumers.masks(None)
        self._why_not: str | None = 'fast is "off"' if fast == "off" else None
        if self._why_not is None and not paddle.get_device().startswith("cpu"):
            if self._strict:
                raise InputError(
                    f"A compiled copy ({given('fast', 'on')}) is for the CPU; on {paddle.get_device()} the live model "
                    "itself is fast."
                )
            self._why_not = f"the model runs on {paddle.get_device()}"
        if self._why_not is None and consumers.recurrent is not None:
            self.give_up(
                f"recurrent layer '{consumers.recurrent}' reads its hidden units itself, where a copy has no mask"
            )

    @property
    def serves(self) -> bool:
        """Whether calls go to a compiled copy, as far as is known."""
        return self._why_not is None

    @property
    def runtime(self) -> str:
        """Who runs the model's forward: the name of a runtime, or "live"."""
        return self.copies.runtime.name if self.serves and self.copies.runtime is not None else "live"

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
        self._model.forward = self._stand_in()
        try:
            yield
        finally:
            self._plan, self._weights_masked, self._watch = None, False, None
            if own:
                self._model.forward = self.live.forward
            else:
                self._model.__dict__.pop("forward", None)

    def look_around(self) -> None:
        """Before a model is scored: see whether somebody wrote to its weights since the last time."""
        if not self.serves:
            return
        if self._weights is None:
            self._weights = WeightWatch(self._model)
        elif self._weights.changed():
            self.give_up("weights or statistics of the model changed between two points")

    def seen(self, far: bool) -> ModelWatch:
        """The model as it is now, all that a forward may depend on.

        Args:
            far: Whether to look at what code names that was not seen to run; that takes long.
        """
        return ModelWatch(self._model, self._attributes, far)

    def gradients_were_lost(self) -> bool:
        """Whether somebody went backwards through outputs of a copy, which leads nowhere; no copy serves from then on."""
        lost, self._differentiated = self._differentiated, False
        if lost:
            self.give_up("the evaluation computes gradients")
        return lost

    def was_wrong(self) -> bool:
        """Whether a copy was found to differ from the live model since this was last asked; it no longer serves."""
        wrong, self._distrusted = self._distrusted, False
        return wrong

    def accepted(self, call: Packed) -> Accepted | None:
        """The copy that serves such a call, made and compared if need be; None if there can be none."""
        if not self.serves or not (self.copies or self._is_worth_it(call)):
            return None
        known = len(self.copies)
        try:
            found = self.copies.accept(call, self.state)
        except UnservableError as reason:
            self.give_up(str(reason))
            # What was served so far may have left out what this call shows that the forward does.
            self._distrusted = self._calls > 0
            return None
        if len(self.copies) > known and self._states:
            # What this call reads belongs to the state that its copy is for.
            self._states[self.state] = self._attributes.state()
        if self._spots is None:
            self._spots = SpotChecks(found.observation.seconds, found.seconds)
        return found

    def check_state(self) -> None:
        """Before a copy serves: find out which one may.

        Raises:
            UnservableError: None may, for a reason that holds for all calls.
        """
        layers = list(self._model.named_sublayers(include_self=True))
        for path, layer in layers:
            if layer.training:
                # Not only this call: statistics or weights may change, and the copy would not know.
                raise UnservableError(f"the evaluation runs the model in training mode{_at(path)}")
            if path and (layer._forward_pre_hooks or layer._forward_post_hooks):
                raise UnservableError(
                    f"layers inside the model have hooks, which a compiled copy would not run{_at(path)}"
                )
        if self._watch is not None and self._watch.changed():
            raise UnservableError("the evaluation changes weights or statistics of the model")
        state = self._attributes.state(layers=layers)
        if state["auto_cast"][0] not in ("AmpLevel.O0", "0"):
            raise UnservableError("the evaluation runs under auto_cast")
        same = (
            i
            for i, each in enumerate(self._states)
            if each == state or not self._attributes.changed(each, state)
        )
        known = next(same, None)
        if known is None and len(self._states) == _MOST_STATES:
            place = self._attributes.changed(self._states[-1], state)[0]
            raise UnservableError(f"{place} has another value in every other call")
        if known is None:
            self._states.append(state)
            known = len(self._states) - 1
        self.state, self._states[known] = known, state

    def settle(self) -> None:
        """`check_state` for all calls that follow; gives up where no copy may serve them."""
        if self.serves:
            try:
                self.check_state()
            except UnservableError as reason:
                self.give_up(str(reason))

    def agrees(self, outputs: Any, call: Callable[[], Packed], plan: PrunePlan | None) -> bool:
        """Whether what was served is right, as far as it was picked to be compared with the live model.

        Args:
            outputs: What a copy gave.
            call: Gives the call that it was for.
            plan: Whose masks were on.
        """
        self._calls += 1
        if self._spots is None or not self._spots.due():
            return True
        with self.live.alone():
            apart = self.live.difference(outputs, call(), plan)
        if apart is None or apart <= TOLERANCE:
            return True
        why = (
            f"outputs of the compiled copy differ from the live model's by {apart:.2g} of the largest output"
        )
        if self._strict:
            raise ForwardError(
                f"In a spot check with {given('fast', 'on')}, the {why}: the numbers so far cannot be trusted. "
                f"Measure again with {given('fast', 'off')}."
            )
        self._why_not = why
        self._distrusted = True
        logger.warning(
            "In a spot check the %s. The affected points are measured again with the live model.", why
        )
        return False

    def _stand_in(self) -> types.MethodType:
        """A forward of the model that serves; of a copy of the model, and in a program that is traced, it is the model's own."""

        @paddle.jit.not_to_static
        def forward(layer: paddle.nn.Layer, *arguments: Any, **keywords: Any) -> Any:
            if layer is self._model and paddle.in_dynamic_mode():
                return self._serve(*arguments, **keywords)
            if layer is self._model:
                # What `paddle.jit.to_static` made cannot itself be called in a trace.
                own = getattr(self.live.forward, "dygraph_function", self.live.forward)
                return own(*arguments, **keywords)
            return type(layer).forward(layer, *arguments, **keywords)

        return types.MethodType(forward, self._model)

    def _serve(self, *arguments: Any, **keywords: Any) -> Any:
        accepted = None
        self.training = self._model.training
        if self.serves:
            try:
                self.check_state()
                call = packed_call(arguments, keywords)
                if len(self.copies) >= max(_SIGNATURES_BEFORE_DOUBT, self._calls):
                    raise UnservableError(
                        "nearly every call has inputs of another size, and each size has to be compared"
                    )
                accepted = self.accepted(call)
            except UnservableError as reason:
                self.give_up(str(reason))
        if accepted is not None:
            outputs = accepted.copy(call, self._masks)
            if self.agrees(outputs, lambda: call, self._plan):
                return self._noticing_gradients(outputs)
        on = nullcontext() if self._plan is None or self._weights_masked else masked(self._model, self._plan)
        start = time.perf_counter()
        with on:
            outputs = self.live.forward(*arguments, **keywords)
        self._patience -= time.perf_counter() - start
        return outputs

    def _noticing_gradients(self, outputs: Any) -> Any:
        """Outputs that can be differentiated and written to, as those of a live model."""
        if not paddle.is_grad_enabled():
            return outputs

        def differentiable(leaf: Any) -> Any:
            if not (isinstance(leaf, paddle.Tensor) and leaf.is_floating_point()):
                return leaf
            leaf.stop_gradient = False
            leaf.register_hook(self._notice_gradient)
            # Paddle lets nobody write to a tensor that gradients end in; to one that is computed, it does.
            return paddle.assign(leaf)

        return map_leaves(differentiable, outputs)

    def _notice_gradient(self, gradient: paddle.Tensor) -> None:
        self._differentiated = True

    def _is_worth_it(self, call: Packed) -> bool:
        """Whether compiling will pay; toys are faster without."""
        if self._patience == math.inf:
            seconds = self._live_seconds(call)
            if seconds < 10 * _QUICK_FORWARD_SECONDS:  # the first run takes longer than others
                seconds = self._live_seconds(call)
            self._patience = _PATIENCE_SECONDS if seconds < _QUICK_FORWARD_SECONDS else 0.0
        return self._patience <= 0

    def _live_seconds(self, call: Packed) -> float:
        with self.live.alone():
            start = time.perf_counter()
            self.live.run(call)
            return time.perf_counter() - start

    def give_up(self, why: str) -> None:
        """Let the live model run from now on, and say why in a line."""
        if self._strict:
            raise ForwardError(
                f"No compiled copy can stand in for the model, and {given('fast', 'on')} asks for one: {why}."
            )
        self._why_not = why
        logger.warning(
            "The sweep runs the live model instead of a compiled copy, which takes longer but gives the same numbers: %s.",
            why,
        )


def _at(path: str) -> str:
    return f' (layer "{path}")' if path else ""
