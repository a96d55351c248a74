"""Training without labels: the cut network learns the outputs of the whole one, and keeps what was best on held-back data."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddle import nn

from dysens.compress._output_error import comparable, relative_error
from dysens.compress._samples import Call, Samples
from dysens.errors import InputError
from dysens.groups import Role
from dysens.model import View, all_tensors, eagerly, isolate, leaves, preserved
from dysens.progress import progress

logger = logging.getLogger(__name__)

RATE = 1e-4
# So often, the network is compared with the whole one on held-back data.
_LOOKS = 10


@dataclass(frozen=True)
class DistillOutcome:
    """What `DygraphSensitivity.distill` brought.

    Attributes:
        error_before: Of the outputs on held-back data, relative to how much they vary; see `Trial`.
        error_after: The same now.
        steps: How many were taken.
        best_step: The one whose weights the model has now; 0 if none was better than what there was.
        errors: On held-back data, by step.
        seconds: All together.
    """

    error_before: float
    error_after: float
    steps: int
    best_step: int
    errors: Mapping[int, float]
    seconds: float

    def __str__(self) -> str:
        kept = (
            f"step {self.best_step} was best" if self.best_step else "no step was better, so nothing changed"
        )
        errors = f"{self.error_before:.4g} -> {self.error_after:.4g}"
        return f"output error {errors} in {self.steps} steps ({kept}), {self.seconds:.0f} s"


def distill(
    model: nn.Layer,
    whole: Callable[[], AbstractContextManager[Any]],
    roles: Mapping[str, Role],
    samples: Samples,
    steps: int,
    optimizer: paddle.optimizer.Optimizer | None = None,
    rate: float = RATE,
    show: bool = True,
) -> DistillOutcome:
    """Train a cut model on the outputs of the whole one. Batch norms keep their statistics.

    Args:
        model: The live layer, cut. On an error or an interrupt it is as it was before.
        whole: Makes it the whole one for the length of a ``with`` block.
        roles: Layers whose outputs are compared where those of the model are no plain maps; of the whole model.
        samples: What to train on, and what to compare on.
        steps: How many.
        optimizer: Over the model's parameters; Adam if None.
        rate: Its learning rate, if it is made here.
        show: Whether to show a progress bar.

    Raises:
        InputError: The arguments cannot be used, or no outputs can be compared.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise InputError(f"The number of steps has to be a whole number from 1 on, not {steps!r}.")
    start = time.perf_counter()
    outputs = _Outputs(model)
    with whole():
        wanted, compared = outputs.of(samples.calibration), outputs.of(samples.held_back)
    if not math.isfinite(relative_error(compared, outputs.of(samples.held_back))):
        outputs = _Outputs(model, roles)
        with whole():
            wanted, compared = outputs.of(samples.calibration), outputs.of(samples.held_back)
    before = relative_error(compared, outputs.of(samples.held_back))
    if not math.isfinite(before):
        raise InputError(
            "The outputs of the cut and of the whole model cannot be compared: they have other shapes, or are not finite."
        )
    trainable = [parameter for parameter in model.parameters() if not parameter.stop_gradient]
    if not trainable:
        raise InputError("No parameter of the model can be trained: all of them have stop_gradient set.")
    with preserved(model, optimizer) as state, progress(steps, "distill", show) as shown:
        isolate(model, optimizer)
        own = optimizer or paddle.optimizer.Adam(rate, parameters=trainable)
        errors = {0: before}
        best = {id(tensor): tensor.detach().clone() for tensor in all_tensors(model)}
        order = np.random.default_rng(0).permutation(max(steps, len(wanted))) % len(wanted)
        for step in range(1, steps + 1):
            place = int(order[step - 1])
            outputs.learn(samples.calibration[place], wanted[place], own)
            shown.reach(step)
            if step % max(1, steps // _LOOKS) and step < steps:
                continue
            errors[step] = relative_error(compared, outputs.of(samples.held_back))
            logger.info("step %d: output error %.4g", step, errors[step])
            if errors[step] <= min(errors.values()):
                best = {id(tensor): tensor.detach().clone() for tensor in all_tensors(model)}
        for tensor in all_tensors(model):
            tensor.set_value(best[id(tensor)])
        state.keep()
    chosen = min(errors, key=lambda step: errors[step])
    return DistillOutcome(before, errors[chosen], steps, chosen, errors, time.perf_counter() - start)


class _Outputs:
    """What a model makes of calls: its own outputs, or those of the layers that make them.

    Args:
        model: The live layer.
        roles: The layers, if theirs are meant.
    """

    def __init__(self, model: nn.Layer, roles: Mapping[str, Role] | None = None) -> None:
        self._model = model
        self._roles = roles or {}

    def of(self, calls: tuple[Call, ...]) -> list[list[np.ndarray]]:
        """Arrays, for every call."""
        found = []
        for call in calls:
            with preserved(self._model), paddle.no_grad():
                found.append([tensor.numpy() for tensor in self._tensors(call)])
        return found

    def learn(self, call: Call, wanted: list[np.ndarray], optimizer: paddle.optimizer.Optimizer) -> None:
        """One step towards these outputs."""
        training = {layer: layer.training for layer in self._model.sublayers(include_self=True)}
        try:
            made = self._tensors(call)
            losses = [
                (tensor - paddle.to_tensor(array)).square().sum()
                / max(float(array.var()) * array.size, 1e-30)
                for tensor, array in zip(made, wanted)
                if tensor.shape == list(array.shape) and not tensor.stop_gradient
            ]
            if not losses:
                raise InputError(
                    "No gradient comes back from the model's outputs, so they cannot be learned."
                )
            (sum(losses[1:], losses[0]) / len(losses)).backward()
            optimizer.step()
            optimizer.clear_grad()
        finally:
            for layer, was in training.items():
                layer.training = was

    def _tensors(self, call: Call) -> list[paddle.Tensor]:
        collected: list[paddle.Tensor] = []
        self._model.eval()
        hooks = [
            role.layer.register_forward_post_hook(lambda layer, given, output: collected.append(output))
            for role in self._roles.values()
        ]
        try:
            with eagerly(self._model, [View(tuple(call))]) as (view,):
                returned = self._model(*view.arguments)
        finally:
            for hook in hooks:
                hook.remove()
        return [
            comparable(leaf.astype("float32"))
            for leaf in leaves(collected if self._roles else returned)
            if isinstance(leaf, paddle.Tensor) and leaf.is_floating_point() and leaf.size
        ]
