"""Plans carried out on a live model: masked (same shapes) or cut (new shapes), one after the other, and undone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import paddle
from paddle.nn.layer.rnn import RNNBase

from dysens.costs import cost_of
from dysens.errors import InputError
from dysens.model import (
    ModelState,
    Preserved,
    TensorState,
    View,
    isolate,
    preserved,
    run_through,
    swap_storage,
    tensors_by_path,
)
from dysens.pruning._costs import PruneOutcome
from dysens.pruning._plan import PrunePlan, TensorCut, TensorMix, TensorShift

# Where the model remembers the plans that were carried out on it, for `save_pruned`. Part of the model, so that a copy of the
# model knows them too.
_HISTORY = "_dysens_plans"
# Entries of a weight that are masked at a time.
_AT_ONCE = 4_000_000


def history(model: paddle.nn.Layer) -> tuple[PrunePlan, ...]:
    """The plans that have been carried out on this model and not undone, in order."""
    return tuple(model.__dict__.get(_HISTORY, ()))


def cut(
    model: paddle.nn.Layer,
    plan: PrunePlan,
    optimizer: paddle.optimizer.Optimizer | None = None,
    gradients: bool = True,
) -> None:
    """Remove the planned channels in place: weights, gradients, optimizer state, layer attributes.

    Every tensor stays the same object under the same name, so whoever holds it (an optimizer, a wrapper) goes on working.

    Args:
        model: The live layer.
        plan: What goes.
        optimizer: Its state loses the same entries.
        gradients: False for a cut that is undone before anybody looks at gradients.
    """
    tensors = tensors_by_path(model)
    fold_into(tensors, plan.mixes, plan.shifts)
    for tensor, cuts in _by_tensor(plan, tensors):
        if optimizer is not None:
            _cut_optimizer_state(optimizer, tensor, cuts)
        gradient = tensor.grad if gradients else None
        shorter = without(tensor, cuts)
        swap_storage(tensor, shorter)
        if gradient is not None:
            tensor.grad = without(gradient, cuts)
    layers = dict(model.named_sublayers(include_self=True))
    for path, values in plan.attributes.items():
        for name, value in values.items():
            now = getattr(layers[path], name, None)
            setattr(layers[path], name, tuple(value) if isinstance(now, tuple) else value)
    _rebuild_flat_weights(layers[path] for path in plan.attributes)
    # What was folded is in the weights now; its matrices would only take up memory.
    model.__dict__[_HISTORY] = (*history(model), replace(plan, mixes=()))


def note_cut(model: paddle.nn.Layer, plan: PrunePlan) -> None:
    """Remember a cut of a network that was built as the cut leaves it."""
    model.__dict__[_HISTORY] = (*history(model), plan)


def _by_tensor(
    plan: PrunePlan, tensors: Mapping[str, paddle.Tensor]
) -> Iterable[tuple[paddle.Tensor, list[TensorCut]]]:
    """Every tensor with its cuts. A tied weight is in the plan under each of its paths, and is cut once along an axis."""
    found: dict[int, tuple[paddle.Tensor, dict[int, TensorCut]]] = {}
    for item in plan.cuts:
        tensor = tensors[item.tensor]
        found.setdefault(id(tensor), (tensor, {}))[1].setdefault(item.axis, item)
    return [(tensor, list(cuts.values())) for tensor, cuts in found.values()]


@contextmanager
def masked(model: paddle.nn.Layer, plan: PrunePlan) -> Iterator[None]:
    """For a while, let the consuming weights hold zeros where channels would be cut: same outputs, same shapes."""
    tensors = tensors_by_path(model)
    paths = [
        *(item.tensor for item in plan.masks),
        *(item.tensor for item in plan.shifts),
        *(item.tensor for item in plan.mixes),
    ]
    touched = {id(tensors[path]): tensors[path] for path in paths}
    states = [TensorState(tensor) for tensor in touched.values()]
    try:
        fold_into(tensors, plan.mixes, plan.shifts)
        zero(model, plan.masks)
        yield
    finally:
        run_through(lambda: _restore(states))


def holds(model: paddle.nn.Layer, plan: PrunePlan) -> bool:
    """Whether a masked model still holds zeros where the plan's masks are: training gives such weights values again."""
    tensors = tensors_by_path(model)
    pairs = (
        (_workable(t)[0], _zeroed_values(t, item)) for item in plan.masks for t in [tensors[item.tensor]]
    )
    static = (
        not paddle.in_dynamic_mode()
    )  # an evaluation may have turned it on; Paddle ends the process if tensors are touched then
    if static:
        paddle.disable_static()
    try:
        return all(np.array_equal(now.numpy(), zeroed.numpy(), equal_nan=True) for now, zeroed in pairs)
    finally:
        if static:
            paddle.enable_static()


def zero(model: paddle.nn.Layer, entries: Iterable[TensorCut]) -> None:
    """Let these entries of the model's tensors hold zeros; shapes stay, and restoring the values before is up to the caller."""
    tensors = tensors_by_path(model)
    for item in entries:
        tensor = tensors[item.tensor]
        swap_storage(tensor, _zeroed(tensor, item))


def fold_into(
    tensors: Mapping[str, paddle.Tensor], mixes: Iterable[TensorMix], shifts: Iterable[TensorShift]
) -> None:
    """Let weights and biases take over the work of what goes; restoring the values before is up to the caller.

    Args:
        tensors: The model's tensors by path.
        mixes: For weights, as they were before anything was folded.
        shifts: For biases and means.
    """
    _mix(tensors, mixes)
    _shift(tensors, shifts)


def _mix(tensors: Mapping[str, paddle.Tensor], mixes: Iterable[TensorMix]) -> None:
    # A tied weight is in the plan under each of its paths, and is mixed once.
    once = {(id(tensors[item.tensor]), item.axis, item.rows, item.into.tobytes()): item for item in mixes}
    for item in once.values():
        values, back = _workable(tensors[item.tensor])
        mixed = paddle.to_tensor(item.applied(values.numpy()), place=values.place)
        swap_storage(tensors[item.tensor], _as_before(mixed, back))


def _shift(tensors: Mapping[str, paddle.Tensor], shifts: Iterable[TensorShift]) -> None:
    for item in {id(tensors[item.tensor]): item for item in shifts}.values():
        values, back = _workable(tensors[item.tensor])
        shifted = values + paddle.to_tensor(np.array(item.values, "float32")).astype(values.dtype)
        swap_storage(tensors[item.tensor], shifted.astype(back))


def _restore(states: Iterable[TensorState]) -> None:
    for state in states:
        state.restore()


def without(tensor: paddle.Tensor, cuts: Iterable[TensorCut]) -> paddle.Tensor:
    """A copy of the tensor that lacks what the cuts remove."""
    values, back = _workable(tensor)
    # The second axis of a grouped weight is cut within blocks of the first, so it comes before the first is shortened.
    for item in sorted(cuts, key=lambda c: -c.blocks):
        if item.blocks == 1:
            values = paddle.gather(values, paddle.to_tensor(item.kept), axis=item.axis)
        else:
            values = _without_in_blocks(values, item)
    return _as_before(values, back)


def _without_in_blocks(values: paddle.Tensor, item: TensorCut) -> paddle.Tensor:
    width = item.size // item.blocks
    pieces = paddle.split(values, item.blocks, axis=0)
    kept = [item.kept[item.kept // width == block] % width for block in range(item.blocks)]
    return paddle.concat(
        [paddle.gather(p, paddle.to_tensor(k), axis=1) for p, k in zip(pieces, kept)], axis=0
    )


def _zeroed(tensor: paddle.Tensor, item: TensorCut) -> paddle.Tensor:
    return _as_before(_zeroed_values(tensor, item), tensor.dtype)


def _zeroed_values(tensor: paddle.Tensor, item: TensorCut) -> paddle.Tensor:
    values, _ = _workable(tensor)
    flags = np.ones(item.size, "float32")
    flags[list(item.removed)] = 0.0
    if item.blocks == 1:
        shape = [item.size if axis == item.axis else 1 for axis in range(values.ndim)]
        keep = flags.reshape(shape)
    else:
        per_block = flags.reshape(item.blocks, -1)
        rows = np.repeat(per_block, values.shape[0] // item.blocks, axis=0)
        keep = rows.reshape([*rows.shape, *[1] * (values.ndim - 2)])
    return _where_kept(paddle.to_tensor(keep > 0), values)


def _where_kept(keep: paddle.Tensor, values: paddle.Tensor) -> paddle.Tensor:
    """The values where `keep`, a tensor that broadcasts to them, says so, and zeros elsewhere.

    Row by row where there are many: the zeros and the flags of a whole classifier would take more memory than its weight. And
    not a product: zero times infinity would leave a NaN behind.
    """
    rows = max(1, _AT_ONCE * values.shape[0] // values.size) if values.size else values.shape[0]
    if rows >= values.shape[0]:
        return paddle.where(keep.expand_as(values), values, paddle.zeros_like(values))
    found = paddle.empty_like(values)
    for start in range(0, values.shape[0], rows):
        some = slice(start, start + rows)
        found[some] = _where_kept(keep[some] if keep.shape[0] > 1 else keep, values[some])
    return found


def _workable(tensor: paddle.Tensor) -> tuple[paddle.Tensor, Any]:
    """The values in a type that every CPU kernel supports, and the original type; both conversions are exact."""
    values = tensor.detach()
    if tensor.dtype in (paddle.float16, paddle.bfloat16):
        return values.astype("float32"), tensor.dtype
    return values, tensor.dtype


def _as_before(values: paddle.Tensor, dtype: Any) -> paddle.Tensor:
    """In the original type; Paddle 2.6 copies also where there is nothing to convert."""
    return values if values.dtype == dtype else values.astype(dtype)


def _cut_optimizer_state(
    optimizer: paddle.optimizer.Optimizer, parameter: paddle.Tensor, cuts: list[TensorCut]
) -> None:
    """Moments, velocities and master weights have the parameter's shape, and lose the same entries."""
    shape = list(parameter.shape)
    slots = [named.get(parameter.name) for named in optimizer._accumulators.values()]
    for state in [*slots, optimizer._master_weights.get(parameter.name)]:
        if state is not None and list(state.shape) == shape:
            swap_storage(state, without(state, cuts))
    # State that was loaded but not claimed yet is still kept by name, as "<parameter>_<accumulator>_0".
    for key, state in list(optimizer._accumulators_holder.items()):
        if key.startswith(f"{parameter.name}_") and list(getattr(state, "shape", ())) == shape:
            optimizer._accumulators_holder[key] = without(paddle.to_tensor(state), cuts)


def _rebuild_flat_weights(layers: Iterable[paddle.nn.Layer]) -> None:
    """Recurrent layers keep their weights in one flat buffer for cuDNN; the cut weights need a new one."""
    for layer in layers:
        if isinstance(layer, RNNBase):
            layer.flatten_parameters()


Outcome = TypeVar("Outcome")


class Cuts:
    """What was cut from a model so far; all of it can be undone at once.

    Args:
        model: The live layer.
        optimizer: Its state is cut and restored along with the model.
        view: How the model is run where its cost is counted.
        untried: What the analysis could not try, as a sentence; every outcome says so.

    Attributes:
        removed: The share that is gone, by group name.
    """

    def __init__(
        self,
        model: paddle.nn.Layer,
        optimizer: paddle.optimizer.Optimizer | None,
        view: View,
        untried: str = "",
    ) -> None:
        self.removed: dict[str, float] = {}
        self._model = model
        self._optimizer = optimizer
        self._view = view
        self._untried = untried
        self._earlier = len(history(model))  # cuts that others made before
        self._before: ModelState | None = None

    @property
    def plans(self) -> tuple[PrunePlan, ...]:
        """What was cut, in order."""
        return history(self._model)[self._earlier :]

    def require_whole(self, what: str) -> None:
        """Raise InputError if the model is cut.

        Args:
            what: What needs the whole model, with its verb.
        """
        if self.removed:
            raise InputError(
                f"The model is cut already, and {what} the whole one: call restore() first, or make a new "
                "DygraphSensitivity of the cut model."
            )

    def make(
        self,
        plan: PrunePlan,
        widths: tuple[tuple[str, str, int, int], ...],
        removed: Mapping[str, float],
    ) -> PruneOutcome:
        """Cut the model in place, with gradients, optimizer state and layer attributes.

        Args:
            plan: What goes.
            widths: Name, path, channels before and channels after of every group, for the outcome.
            removed: The share of each group that goes, by its name.
        """
        before = cost_of(self._model, self._view)
        with self._preserved() as state:
            # Training goes on, and must not reach what restore() will need.
            isolate(self._model, self._optimizer)
            cut(self._model, plan, self._optimizer)
            after = cost_of(self._model, self._view)
            outcome = PruneOutcome(
                before.flops,
                after.flops,
                before.params,
                after.params,
                plan,
                widths,
                after.counted_by_us,
                self._untried,
            )
            self._before = self._before or state
            self.removed = {**self.removed, **removed}
            state.keep()
        return outcome

    def restore(self) -> None:
        """Undo all of them: weights, gradients and optimizer state are again what they were, bit for bit."""
        if self._before is not None:
            run_through(self._before.restore)

    def for_a_while(self, make: Callable[[], Outcome]) -> Preserved[Outcome]:
        """Have a cut for the length of a ``with`` block.

        Args:
            make: Makes it.
        """
        return Preserved(self._state, lambda _: make())

    def _preserved(self) -> Preserved[ModelState]:
        return preserved(self._model, self._optimizer, gradients=True, also=[self])

    def _state(self) -> ModelState:
        return ModelState(self._model, self._optimizer, gradients=True, also=[self])
