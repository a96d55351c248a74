"""The steps of a forward pass: the calls of its innermost layers, in order."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import paddle
from paddle.nn.layer.rnn import RNNBase, RNNCellBase

from dysens.live import preserved

# What happens after a step: number of the step, layer, outputs; it may return other outputs.
AfterStep = Callable[[int, paddle.nn.Layer, Any], Any]


def step_layers(model: paddle.nn.Layer) -> list[paddle.nn.Layer]:
    """The layers whose calls are steps: those without layers of their own, and recurrent ones as a whole."""
    found: dict[int, paddle.nn.Layer] = {}
    inside: set[int] = set()
    for layer in model.sublayers():
        if id(layer) in inside:
            continue
        if isinstance(layer, (RNNBase, RNNCellBase)):
            inside.update(id(child) for child in layer.sublayers())
            found[id(layer)] = layer
        elif not layer._sub_layers:
            found[id(layer)] = layer
    return list(found.values())


class StepCounter:
    """Numbers the steps of a forward pass. Inside `preserved`: it leaves hooks on the layers.

    Args:
        model: The live layer.
        after: Called after each step.
    """

    def __init__(self, model: paddle.nn.Layer, after: AfterStep) -> None:
        self._after = after
        self._next = 0
        for layer in step_layers(model):
            layer.register_forward_post_hook(self._count)

    def restart(self) -> None:
        """The next step is the first again."""
        self._next = 0

    def _count(self, layer: paddle.nn.Layer, inputs: Any, outputs: Any) -> Any:
        number = self._next
        self._next += 1
        return self._after(number, layer, outputs)


@dataclass(frozen=True)
class Observation:
    """One forward pass, seen from outside.

    Attributes:
        outputs: What it returned.
        layers: For each step, the id of its layer.
        elapsed: For each step, the share of the time that had passed when it ended.
    """

    outputs: Any
    layers: tuple[int, ...]
    elapsed: tuple[float, ...]

    def first_use(self, layer: paddle.nn.Layer) -> int | None:
        """The first step of a layer; None if it never runs."""
        return self.layers.index(id(layer)) if id(layer) in self.layers else None


def observed(model: paddle.nn.Layer, forward: Callable[[], Any]) -> Observation:
    """Run ``forward``, which calls the model, and note its steps."""
    layers: list[int] = []
    ends: list[float] = []

    def note(number: int, layer: paddle.nn.Layer, outputs: Any) -> None:
        layers.append(id(layer))
        ends.append(time.perf_counter())

    with preserved(model):
        StepCounter(model, note)
        start = time.perf_counter()
        outputs = forward()
        total = time.perf_counter() - start
    return Observation(outputs, tuple(layers), tuple((end - start) / total for end in ends))
