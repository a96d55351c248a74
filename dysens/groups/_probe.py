"""Run the live layer with stand-ins for its mixers, and watch which channels move.

In a probe every mixer returns a fixed random tensor of the shape that it normally returns, norms return their input, and a
depthwise convolution spreads the mean of each channel in a fixed random pattern. Two probes that differ only in some channels
of one mixer's answer show, at the entry of every layer and at the outputs, which positions depend on those channels: whatever
operators lie between.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import paddle
from paddle import nn

from dysens.errors import ForwardError
from dysens.groups._instrument import (
    OWN_RANGE,
    RANGE,
    Call,
    StandIn,
    Visit,
    bits,
    differ,
    first_numbers,
    first_tensor,
    numbers,
    patched,
    run,
    spread,
    with_first,
    without_axis,
    written,
)
from dysens.groups._layers import Role
from dysens.model import TensorState, View, forward_state, map_leaves, swap_storage

logger = logging.getLogger(__name__)

FAR = 64

STATES = np.zeros(0, bool)
"""Instead of a mask of channels: the final states of a recurrent layer."""
EVERYTHING = np.ones(0, bool)
"""Instead of a mask of channels: all that a layer returns."""

Output = tuple[list[int], Any]  # the shape of what a layer got, and what it said


@dataclass
class Movement:
    """What differed from the undisturbed probe."""

    positions: dict[str, np.ndarray] = field(default_factory=dict)  # layer path: entry channels that moved
    outputs: bool = False
    arguments: set[str] = field(default_factory=set)  # layers of which a further argument moved
    flow: bool = False  # other calls, or other shapes, than in the undisturbed probe
    begun: bool = False  # whether something was disturbed yet


class Wrong(str):
    """What goes wrong when a model is cut, in words.

    Attributes:
        layer: The layer that was reached last.
        progress: How far the trial came, to be compared.
    """

    layer: str
    progress: tuple[int, ...]

    def __new__(cls, text: str, layer: str = "", progress: tuple[int, ...] = (-1,)) -> Wrong:
        """Say what goes wrong where."""
        made = super().__new__(cls, text)
        made.layer, made.progress = layer, progress
        return made

    def later(self, step: int) -> Wrong:
        """The same in a later step of a trial."""
        return Wrong(self, self.layer, (step, *self.progress))


class Probe:
    """Probes of one view of a model. Use it inside `dysens.model.preserved`: it changes modes and forwards.

    Making one records a real forward; `start` runs the undisturbed probe that all others are compared with.
    """

    def __init__(self, model: nn.Layer, view: View, roles: Mapping[str, Role]) -> None:
        self.model = model
        self.view = view
        self._roles = roles
        self._random = np.random.default_rng(0)
        self._stand_ins: dict[Call, StandIn] = {}
        self._entries: dict[Call, np.ndarray] = {}
        self._tensors: dict[Call, paddle.Tensor] = {}
        self._further: dict[Call, list[np.ndarray]] = {}
        self._outputs: list[Any] = []
        self.calls: Counter[str] = Counter()
        self._unsteady: list[TensorState] = []
        self._layers = model.sublayers(include_self=True)
        self._passing: list[nn.Layer] = []
        self._record()
        self._real = self._watch()

    def start(self) -> None:
        """Run the undisturbed probe, with the weights that all others will see (`use_plain_values`)."""
        self._outputs = self._run(self._first_answer, self._keep)
        self.calls = Counter(path for path, _ in self._entries)

    def real_way(self) -> Probe | None:
        """Where the undisturbed probe runs other layers than a real forward does: a probe around the values of that one.

        A forward that chooses its way by values takes one with random answers, and maybe another with real ones; both count.
        """
        if Counter(path for path, _ in self._real) == self._mixers():
            return None
        logger.info("The %s chooses its way by values: its real way is probed as well", self.view.name)
        other = copy(self)
        other._entries, other._tensors, other._further = {}, {}, {}
        other._stand_ins = {
            call: StandIn(shape, answer, first_numbers(answer) + self._draw(first_numbers(answer).shape))
            for call, (shape, answer) in self._real.items()
        }
        return other

    def _mixers(self) -> Counter[str]:
        return Counter({path: n for path, n in self.calls.items() if self._roles[path].kind == "mixer"})

    def narrowed(self, widths: Mapping[str, int]) -> Probe:
        """A probe in which mixers, by path, give only so many channels, their first ones. What takes them in never computes,
        so the model need not be cut for it; `start` fails if the code between them refuses the width.
        """
        other = copy(self)
        other._entries, other._tensors, other._further = {}, {}, {}
        other._stand_ins = {
            call: known.first(widths[call[0]], self._roles[call[0]].output_axis)
            if call[0] in widths
            else known
            for call, known in self._stand_ins.items()
        }
        return other

    def passing(self, layers: Iterable[nn.Layer]) -> Probe:
        """A probe in which these layers, which have no role, give what they get."""
        other = copy(self)
        other._entries, other._tensors, other._further = {}, {}, {}
        other._passing = list(layers)
        return other

    # The questions that can be asked

    def perturb(
        self,
        channels: Mapping[str, np.ndarray],
        own: Iterable[tuple[paddle.Tensor, paddle.Tensor]] = (),
        beyond: int = 0,
    ) -> Movement:
        """Move some exit channels of some mixers (a boolean mask each) and some parameters (tensor, other values).

        Args:
            channels: Which channels, by the path of the mixer; or `STATES`, or `EVERYTHING`.
            own: Which parameters.
            beyond: Where to move channels: 1 above all others of their mixer, -1 below, 0 to other values among them; `FAR` and
                -`FAR` to values that no ordinary one comes near.
        """

        own = list(own)
        movement = Movement()

        def answer(visit: Visit) -> Any:
            mask = channels.get(visit.call[0])
            if mask is None:
                return self._answer(visit)
            movement.begun = True
            return self._disturbed(visit, mask, beyond)

        movement.begun = bool(own)
        with _holding(own):
            return self._moved(movement, answer)

    def perturb_inputs(self) -> Movement:
        """Move everything that the model is given; the answers of mixers stay."""

        def disturbed(leaf: Any) -> Any:
            floating = isinstance(leaf, paddle.Tensor) and leaf.is_floating_point()
            return leaf * 0.75 + 0.1 if floating else leaf

        arguments = map_leaves(disturbed, self.view.arguments)
        return self._moved(Movement(begun=True), self._answer, arguments)

    def gets_states(self, path: str) -> bool:
        """Whether a recurrent layer is given initial states; lengths of sequences are whole numbers."""
        return any(
            array.dtype.kind == "f"
            for (layer, _), further in self._further.items()
            for array in further
            if layer == path
        )

    def mismatch(self, entries: Mapping[str, np.ndarray], exits: Mapping[str, np.ndarray]) -> Wrong | None:
        """Run the model, cut by the caller, with cut answers: does each layer get exactly the channels that were kept?

        Args:
            entries: The entry channels that remain, by layer path, where some were removed.
            exits: The same for exit channels.

        Returns:
            None if all is well, else what went wrong and at which layer.
        """
        wrong: list[Wrong] = []
        seen: Counter[str] = Counter()
        last = ""

        def said(text: str) -> Wrong:
            return Wrong(text, last, (sum(seen.values()),))

        def answer(visit: Visit) -> Any:
            whole = self._answer(visit)
            kept = exits.get(visit.call[0])
            if kept is None:
                return whole
            first = first_tensor(whole)
            left = np.take(numbers(first), kept, visit.role.output_axis)
            return with_first(whole, paddle.to_tensor(left).astype(first.dtype))

        def compare(visit: Visit) -> None:
            nonlocal last
            path = last = visit.call[0]
            seen[path] += 1
            expected = self._entries.get(visit.call)
            if expected is None:
                return
            if path in entries:
                expected = np.take(expected, entries[path], visit.role.input_axis)
            got = numbers(visit.inputs)
            if got.shape != expected.shape:
                wrong.append(
                    said(
                        f"layer '{path}' then gets shape {list(got.shape)} instead of {list(expected.shape)}"
                    )
                )
            elif not np.allclose(got, expected, rtol=1e-4, atol=1e-6, equal_nan=True):
                wrong.append(said(f"layer '{path}' then gets other channels than the ones that were kept"))
            if wrong:
                raise _Enough  # the rest of the forward would tell nothing more

        try:
            self._run(answer, compare)
        except ForwardError as error:
            return wrong[0] if wrong else said(str(error))
        if not wrong and seen != self.calls:
            elsewhere = sorted((self.calls - seen) or (seen - self.calls))
            wrong.append(said(f"the {self.view.name} then takes another way (layer '{elsewhere[0]}')"))
        return wrong[0] if wrong else None

    # How a probe runs

    def _run(
        self,
        answer: Callable[[Visit], Any],
        observe: Callable[[Visit], None],
        arguments: tuple[Any, ...] | None = None,
    ) -> list[Any]:
        """One forward in which mixers give ``answer``, norms what they get, and depthwise convolutions spread it."""

        def stand_in(visit: Visit) -> Any:
            if visit.role.is_norm:
                return visit.inputs
            return answer(visit) if visit.role.kind == "mixer" else spread(visit, answer(visit))

        try:
            with patched({layer: lambda x, *_: x for layer in self._passing}):
                return run(
                    self.model, self.view, self._roles.values(), stand_in, observe, arguments, self._layers
                )
        finally:
            for state in self._unsteady:
                state.restore()

    def _record(self) -> None:
        """One forward in which mixers compute, for the shape of everything.

        What they compute goes no further: since norms do nothing, it would grow from layer to layer, and a training
        forward refuses a loss of NaN.
        """

        def real(visit: Visit) -> Any:
            return self._learn(visit).answer()

        def count(visit: Visit) -> None:
            self.calls[visit.call[0]] += 1

        before = forward_state(self.model)
        self._run(real, count)
        # What one probe writes (the step of a counter, an average) must not move the next.
        self._unsteady = [state for state in before if state.written]
        for state in self._unsteady:
            state.restore()

    def _learn(self, visit: Visit) -> StandIn:
        """Keep an output for a layer at this call, of the shape that it would return."""
        drawn = self._drawn(visit)
        first = first_tensor(drawn)
        known = StandIn(list(visit.inputs.shape), drawn, self._draw(first.shape))
        self._stand_ins[visit.call] = known
        return known

    def _watch(self) -> dict[Call, Output]:
        """One real forward in which nothing is changed: inputs and outputs of the mixers that run."""
        seen: dict[Call, Output] = {}

        def real(visit: Visit) -> Any:
            answer = visit.real()
            if visit.role.kind == "mixer":
                seen[visit.call] = (list(visit.inputs.shape), answer)
            return answer

        before = forward_state(self.model)  # norms write theirs in a real forward, and only there
        run(self.model, self.view, self._roles.values(), real, lambda visit: None)
        for state in before:
            state.restore()
        return seen

    def _draw(self, shape: Any) -> np.ndarray:
        return self._random.uniform(*RANGE, list(shape)).astype("float32")

    def _draw_like(self, leaf: Any) -> Any:
        return (
            paddle.to_tensor(self._draw(leaf.shape)).astype(leaf.dtype)
            if isinstance(leaf, paddle.Tensor)
            else leaf
        )

    def other_values(self, tensor: paddle.Tensor, axis: int, chosen: np.ndarray) -> paddle.Tensor:
        """The values of a parameter with the chosen entries along an axis drawn anew."""
        values = numbers(tensor).copy()
        where = tuple(chosen if a == axis else slice(None) for a in range(values.ndim))
        values[where] = self._random.uniform(*OWN_RANGE, values[where].shape)
        return paddle.to_tensor(values).astype(tensor.dtype)

    def _moved(
        self, movement: Movement, answer: Callable[[Visit], Any], arguments: tuple[Any, ...] | None = None
    ) -> Movement:
        """Note what differs from the undisturbed probe, from where something was disturbed."""
        seen: Counter[str] = Counter()

        def compare(visit: Visit) -> None:
            path = visit.call[0]
            seen[path] += 1
            if not movement.begun:
                return
            straight = visit.inputs is self._tensors.get(visit.call) and not written(visit.inputs)
            if straight and not visit.further:
                return  # from a stand-in that was not disturbed
            base, got = self._entries.get(visit.call), numbers(visit.inputs)
            if base is None or base.shape != got.shape:
                movement.flow = True
                return
            axis = visit.role.input_axis % got.ndim
            moved = (bits(base) != bits(got)).any(axis=tuple(a for a in range(got.ndim) if a != axis))
            if moved.any():
                movement.positions[path] = movement.positions.get(path, False) | moved
            if any(map(differ, visit.further, self._further[visit.call])):
                movement.arguments.add(path)

        outputs = self._run(answer, compare, arguments)
        movement.flow = movement.flow or seen != self.calls
        movement.outputs = len(outputs) != len(self._outputs) or any(map(differ, outputs, self._outputs))
        return movement

    def _keep(self, visit: Visit) -> None:
        self._entries[visit.call] = numbers(visit.inputs)
        self._tensors[visit.call] = visit.inputs
        self._further[visit.call] = visit.further

    def _first_answer(self, visit: Visit) -> Any:
        """The same; the output of a layer that did not run in the recording is kept for all later probes."""
        if visit.call not in self._stand_ins:
            self._learn(visit)
        return self._answer(visit)

    def _answer(self, visit: Visit) -> Any:
        """The mixer's fixed output; at a call that differs from the recording, one of the shape that it would have."""
        known = self._stand_ins.get(visit.call)
        axis = visit.role.input_axis
        if known is not None and without_axis(visit.inputs.shape, axis) == without_axis(
            known.entry_shape, axis
        ):
            return known.answer()
        return self._drawn(visit)

    def _drawn(self, visit: Visit) -> Any:
        """Random numbers in the shape of what a layer would return; for a depthwise convolution, what it scales means by."""
        drawn = map_leaves(self._draw_like, visit.real())
        return drawn if visit.role.kind == "mixer" else drawn + 1.0

    def _disturbed(self, visit: Visit, mask: np.ndarray, beyond: int = 0) -> Any:
        answer, role = self._answer(visit), visit.role
        known = self._stand_ins.get(visit.call)
        plain = first_tensor(answer)
        if mask is STATES or mask is EVERYTHING:
            moved = map_leaves(
                lambda leaf: leaf * 0.5 + 0.01 if isinstance(leaf, paddle.Tensor) else leaf, answer
            )
            return moved if mask is EVERYTHING else with_first(moved, plain)
        if known is None or list(plain.shape) != list(known.other.shape):
            return with_first(answer, plain + 0.01)
        axis = role.output_axis % plain.ndim
        # Stand-ins are positive, and stay so but for what lies far beyond: thresholds may lie anywhere.
        if abs(beyond) == FAR:
            moved = known.other + np.float32(beyond * known.largest)
        elif beyond:
            moved = known.other * np.float32(0.2 ** -min(beyond, 0)) + np.float32(
                max(beyond, 0) * known.largest
            )
        else:
            moved = known.other
        chosen = mask.reshape([-1 if a == axis else 1 for a in range(plain.ndim)])
        return with_first(answer, paddle.to_tensor(np.where(chosen, moved, known.values)).astype(plain.dtype))


class _Enough(Exception):
    """Ends a forward that has shown what was asked."""


@contextmanager
def _holding(values: Iterable[tuple[paddle.Tensor, paddle.Tensor]]) -> Iterator[None]:
    """For a while, let tensors hold other values."""
    pairs = list(values)
    states = [TensorState(tensor) for tensor, _ in pairs]
    try:
        for tensor, other in pairs:
            swap_storage(tensor, other)
        yield
    finally:
        for state in states:
            state.restore()
