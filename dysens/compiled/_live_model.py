"""The live model itself: what a compiled copy is compared with, before it serves and now and then while it does."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import paddle

from dysens.compiled._calls import Consumers, Packed, UnservableError, largest_difference
from dysens.compiled._copy import CompiledForward
from dysens.compiled._export import StepCounter
from dysens.compiled._observing import Notes, noticing
from dysens.compiled._watch import AttributeWatch, Place, State, WeightWatch
from dysens.model import TensorState, all_tensors, leaves, preserved
from dysens.pruning import TOLERANCE, PrunePlan, masked

# How far an input is moved to see whether the live model answers to rounding alone.
_ROUNDING = 1e-6
# What comparing while a copy serves may cost, as a share of what serving costs.
_BUDGET = 0.008
_LARGEST_SHARE = 0.05
# As it is when nobody watches.
_SHAPE = paddle.Tensor.__dict__["shape"]


@dataclass(frozen=True)
class Observation:
    """One live forward, seen from outside.

    Attributes:
        outputs: What it returned.
        layers: For each step, the id of its layer.
        elapsed: For each step, the share of the time that had passed when it ended.
        sizes: For each step, the bytes of its outputs.
        seconds: What it took of the processor: who else is at work on the machine must not count.
    """

    outputs: Any
    layers: tuple[int, ...]
    elapsed: tuple[float, ...]
    sizes: tuple[int, ...]
    seconds: float

    def without_outputs(self) -> Observation:
        """The same, to be kept."""
        return replace(self, outputs=None)

    def first_use(self, layer: paddle.nn.Layer) -> int | None:
        """The first step of a layer; None if it never runs."""
        return self.layers.index(id(layer)) if id(layer) in self.layers else None


class LiveModel:
    """A live model with its own forward and unmasked weights, whatever stands in for it now.

    Args:
        model: The live layer.
        consumers: The layers that take masks.
        checks: Plans whose masks touch every consumer.
        attributes: Watches the model's plain state.
    """

    def __init__(
        self,
        model: paddle.nn.Layer,
        consumers: Consumers,
        checks: Sequence[PrunePlan],
        attributes: AttributeWatch,
    ) -> None:
        self.model = model
        self.forward = model.forward
        self._consumers = consumers
        self._checks = checks
        self._attributes = attributes
        self._read: set[tuple[int, str]] = set()
        self._settled: dict[tuple[int, str], Any] = {}
        self._unmasked = [TensorState(tensor) for tensor in all_tensors(model)]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Inside, the model has its own forward and unmasked weights, and what a forward writes is undone."""
        gradients = paddle.is_grad_enabled()
        with preserved(self.model):
            self.model.forward = self.forward
            for state in self._unmasked:
                state.restore()
            # A forward may ask for this, too.
            paddle.set_grad_enabled(gradients)
            yield

    def run(self, call: Packed, plan: PrunePlan | None = None) -> Any:
        """What the model returns with a plan's masks on; only inside `alone`. The tensors of the call are left as they are."""
        return self._run(call, [_copied(tensor) for tensor in call.tensors], plan)

    def _run(self, call: Packed, tensors: Sequence[paddle.Tensor], plan: PrunePlan | None = None) -> Any:
        arguments, keywords = call.unpacked(tensors)
        with masked(self.model, plan) if plan is not None else nullcontext():
            return self.forward(*arguments, **keywords)

    def observe(self, call: Packed) -> Observation:
        """Run a call, and look at how it goes; only inside `alone`.

        Raises:
            UnservableError: The forward does what no compiled copy can.
        """
        while True:
            with preserved(self.model):
                notes, found = self._observed(call)
            # Where code ran that was not known to, what it names has to be watched from the beginning.
            if not self._attributes.follow(notes.code):
                return found

    def _observed(self, call: Packed) -> tuple[Notes, Observation]:
        layers: list[int] = []
        ends: list[float] = []
        sizes: list[int] = []

        def note(number: int, layer: paddle.nn.Layer, outputs: Any) -> None:
            layers.append(id(layer))
            ends.append(time.perf_counter())
            sizes.append(_bytes_of(outputs))

        tensors, plain = WeightWatch(self.model), self._attributes.state(whole=True)
        kept = self._attributes.tensors()
        given = [_copied(tensor) for tensor in call.tensors]
        StepCounter(self.model, note)
        with noticing(self.model) as notes:
            start, worked = time.perf_counter(), time.process_time()
            outputs = self._run(call, given)
            seconds, worked = time.perf_counter() - start, time.process_time() - worked
        if notes.reason:
            raise UnservableError(notes.reason)
        if tensors.changed(notes.written_first):
            raise UnservableError("its forward writes to weights or buffers")
        self._refuse_leavings(given, notes.written_first)
        self._refuse_memory(call, outputs, plain, notes)
        self._refuse_new_tensors(call, kept, notes.written_first)
        if largest_difference(given, list(call.tensors)) != 0:
            raise UnservableError("its forward writes into its inputs")
        shares = tuple((end - start) / seconds for end in ends)
        return notes, Observation(outputs, tuple(layers), shares, tuple(sizes), worked)

    def _refuse_memory(self, call: Packed, outputs: Any, before: State, notes: Notes) -> None:
        """What the forward assigns before it reads it keeps nothing between calls; anything else might."""
        places = [
            place
            for place in self._attributes.changed(before, self._attributes.state(whole=True))
            if place.layer is None or (place.layer, place.name) not in notes.written_first
        ]
        if places:
            self._refuse_unsettled(call, outputs, places, notes)
        settled = {
            (p.layer, p.name): self._attributes.held(p.layer, p.name) for p in places if p.layer is not None
        }
        for key, value in self._settled.items():
            if key in notes.read_first and self._attributes.held(*key) != value:
                raise UnservableError(f'its forward sets "{key[1]}" at the first call, and others read it')
        self._settled.update(settled)
        self._read |= notes.read_first - self._settled.keys()
        self._attributes.ignored |= notes.written_first | settled.keys()
        crossing = sorted(name for _, name in self._read & self._attributes.ignored)
        if crossing:
            raise UnservableError(f'some calls read "{crossing[0]}", which others write')
        self._attributes.read |= notes.read_first
        unreadable = self._attributes.why_unreadable()
        if unreadable:
            raise UnservableError(unreadable)

    def _refuse_unsettled(self, call: Packed, outputs: Any, places: Sequence[Place], notes: Notes) -> None:
        """What is set once, as `paddle.nn.Upsample` does with its layout, is harmless: the next call changes nothing more."""
        before = self._attributes.state(whole=True)
        again = self.run(call)
        unsettled = [place for place in places if place.layer is None]
        changed = self._attributes.changed(before, self._attributes.state(whole=True))
        unsettled += [place for place in changed if (place.layer, place.name) not in notes.written_first]
        if unsettled or largest_difference(again, outputs) > _ROUNDING:
            place = (*unsettled, *places)[0]
            raise UnservableError(f"its forward changes {place}, and may depend on what it was before")

    def _refuse_leavings(self, inputs: Sequence[paddle.Tensor], written: set[tuple[int, str]]) -> None:
        """Tensors that the forward leaves in attributes, for others to read, a copy would not leave there."""
        given = set(map(id, inputs))
        for path, layer in self.model.named_sublayers(include_self=True):
            values = {**layer.__dict__, **layer._buffers}
            for name in [name for key, name in written if key == id(layer) and name in values]:
                tensors = [leaf for leaf in leaves(values[name]) if isinstance(leaf, paddle.Tensor)]
                if any(id(tensor) not in given for tensor in tensors):
                    raise UnservableError(
                        f"its forward leaves tensors in {Place(path, name, None)}, which others may read"
                    )

    def _refuse_new_tensors(
        self, call: Packed, before: Mapping[str, Sequence[paddle.Tensor]], written: set[tuple[int, str]]
    ) -> None:
        """Tensors that every call leaves in containers; what only the first one does is a cache, which a copy has inside.

        Attributes that the forward assigns are left to `_refuse_leavings`: they may hold the inputs, as in PaddleDetection.
        """
        after = self._attributes.tensors(written)
        if not _new(before, after):
            return
        self.run(call)
        places = _new(after, self._attributes.tensors(written))
        if places:
            raise UnservableError(f"its forward leaves tensors in {places[0]}, which others may read")

    def compare(self, copy: CompiledForward, call: Packed, observation: Observation) -> float:
        """See that a copy gives what the live model gives for a call, whole and masked; only inside `alone`.

        Returns:
            How many seconds of the processor the copy takes for it.

        Raises:
            UnservableError: It does not.
        """
        self._refuse_hidden_consumers(call, observation)
        apart = largest_difference(copy(call, self._consumers.masks(None)), observation.outputs)
        if not apart <= TOLERANCE:
            raise UnservableError(
                f"the outputs of the compiled copy differ by {apart:.2g} of the largest output"
            )
        seconds = observation.seconds
        for plan in self._checks:
            start = time.process_time()
            outputs = copy(call, self._consumers.masks(plan))
            seconds = time.process_time() - start
            apart_masked = self.difference(outputs, call, plan)
            if apart_masked is not None and apart_masked <= TOLERANCE:
                return seconds
            if apart_masked is not None:
                raise UnservableError(
                    f"with channels masked, the outputs of the compiled copy differ by {apart_masked:.2g}"
                )
        if self._checks:
            raise UnservableError(
                "with channels masked, rounding alone changes outputs, and the compiled copy cannot be compared"
            )
        return seconds

    def difference(self, outputs: Any, call: Packed, plan: PrunePlan | None) -> float | None:
        """How far outputs are from what the live model gives for a call; only inside `alone`.

        None if the live model cannot tell: where boxes are sorted out inside the model, rounding alone may tip one, and then
        the live model differs from itself by as much.
        """
        live = self.run(call, plan)
        apart = largest_difference(outputs, live)
        if apart <= TOLERANCE:
            return apart
        return None if largest_difference(self.run(_moved(call), plan), live) > TOLERANCE else apart

    def _refuse_hidden_consumers(self, call: Packed, observation: Observation) -> None:
        """A layer that does not run may have its weight used by other code; then its mask would be missed."""
        idle = {c.path for c in self._consumers.all if observation.first_use(c.layer) is None}
        if not idle or not self._checks:
            return
        masks = [m for m in self._checks[0].masks if self._consumers.paths_fed(m) <= idle]
        plan = replace(self._checks[0], masks=tuple(masks), shifts=())
        if masks and largest_difference(self.run(call, plan), observation.outputs) > _ROUNDING:
            raise UnservableError(
                f"a weight among {', '.join(sorted(idle))} is used without its layer being called"
            )


def _new(
    before: Mapping[str, Sequence[paddle.Tensor]], after: Mapping[str, Sequence[paddle.Tensor]]
) -> list[str]:
    """Where there are other tensors than before; both are alive, so that an address is enough to tell them apart."""
    return [
        place
        for place, tensors in after.items()
        if not set(map(id, tensors)) <= set(map(id, before.get(place, ())))
    ]


def _bytes_of(outputs: Any) -> int:
    """How large tensors are; to ask `shape` would count as a look of the forward at its sizes."""
    tensors = [leaf for leaf in leaves(outputs) if isinstance(leaf, paddle.Tensor)]
    return sum(math.prod(_SHAPE.__get__(tensor)) * tensor.element_size() for tensor in tensors)


def _copied(tensor: paddle.Tensor) -> paddle.Tensor:
    copied = tensor.detach().clone()
    copied.stop_gradient = tensor.stop_gradient
    return copied


def _moved(call: Packed) -> Packed:
    """The call with its inputs off by a rounding error."""
    random = np.random.default_rng(0)

    def move(tensor: paddle.Tensor) -> paddle.Tensor:
        if not tensor.is_floating_point():
            return tensor
        noise = random.standard_normal(tensor.shape).astype("float32") * _ROUNDING
        return tensor * (1 + paddle.to_tensor(noise).astype(tensor.dtype))

    return Packed(call.tree, tuple(move(tensor) for tensor in call.tensors))


class SpotChecks:
    """Picks the served calls that are compared with the live model: a small share, the same ones in every run.

    Calls are counted in stretches, and one call of each stretch is picked at random: however many there are, the picks are
    spread over all of them.

    Example:
        >>> checks = SpotChecks(live_seconds=0.2, served_seconds=0.1)
        >>> sum(checks.due() for _ in range(2500))
        10
    """

    def __init__(self, live_seconds: float, served_seconds: float) -> None:
        """Say what a call takes."""
        share = min(_BUDGET * served_seconds / max(live_seconds, 1e-9), _LARGEST_SHARE)
        self._stretch = round(1 / max(share, 1e-6))
        self._random = random.Random(0)
        self._position = 0
        self._pick = self._random.randrange(self._stretch)

    def due(self) -> bool:
        """Whether the next call is one of them."""
        picked = self._position == self._pick
        self._position += 1
        if self._position == self._stretch:
            self._position, self._pick = 0, self._random.randrange(self._stretch)
        return picked
