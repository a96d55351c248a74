"""What a model costs: FLOPs as `paddle.flops` counts them (one multiply-add is one FLOP), and parameters.

`paddle.flops` itself prints, takes one tensor only and leaves buffers behind in layers that did not run. So its counting
functions are called here one by one, on the live layer, which stays untouched. What they do not know but has weights
(recurrent layers, subclasses of known ones) is counted by us and named in `Cost.counted_by_us`; weighted layers that nobody
can count are named in `Cost.uncounted`, never added as a silent zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import paddle
from paddle import nn
from paddle.hapi.dynamic_flops import register_hooks as paddle_counters
from paddle.nn.layer.rnn import RNNBase, RNNCellBase

from dysens.model import View, eagerly, preserved


@dataclass(frozen=True)
class Cost:
    """The cost of one forward pass.

    Attributes:
        flops: All layers together.
        params: Entries of all trainable parameters and of batch statistics, as `paddle.flops` counts them.
        by_layer: FLOPs of each layer that has any, by path.
        counted_by_us: Layers that `paddle.flops` counts as zero, and dysens does not.
        uncounted: Layers with weights that nobody can count.
    """

    flops: int
    params: int
    by_layer: dict[str, int] = field(default_factory=dict)
    counted_by_us: tuple[str, ...] = ()
    uncounted: tuple[str, ...] = ()


class _Counter:
    """Stands in for a layer in Paddle's counting functions, which add to ``m.total_ops``."""

    def __init__(self, layer: nn.Layer) -> None:
        self._layer = layer
        self.total_ops = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


def cost_of(model: nn.Layer, view: View) -> Cost:
    """Run the model once and count."""
    flops: dict[str, int] = {}
    ours: list[str] = []
    unknown: list[str] = []

    def watch(path: str, layer: nn.Layer, count: Callable[..., None]) -> None:
        def hook(_: nn.Layer, given: Any, returned: Any) -> None:
            counter = _Counter(layer)
            count(counter, given, returned)
            flops[path] = flops.get(path, 0) + int(counter.total_ops)

        layer.register_forward_post_hook(hook)

    with preserved(model), eagerly(model, [view]) as (eager_view,), paddle.no_grad():
        for path, layer in model.named_sublayers(include_self=True):
            layer.training = False
            if type(layer) in paddle_counters:
                watch(path, layer, paddle_counters[type(layer)])
                continue
            counter = _our_counter(layer)
            if counter is not None:
                ours.append(path)
                watch(path, layer, counter)
            elif not layer.sublayers() and any(p.ndim > 1 for p in layer.parameters()):
                unknown.append(path)
        model(*eager_view.fresh())
    return Cost(
        sum(flops.values()),
        count_params(model),
        {path: count for path, count in flops.items() if count},
        tuple(path for path in ours if flops.get(path)),
        tuple(unknown),
    )


def count_params(model: nn.Layer) -> int:
    """Entries of all parameters, batch statistics included."""
    return sum(int(parameter.size) for parameter in model.parameters())


def _our_counter(layer: nn.Layer) -> Callable[..., None] | None:
    if isinstance(layer, RNNBase):
        return _count_recurrent
    if isinstance(layer, RNNCellBase):
        return _count_cell
    known = next((kind for kind in type(layer).__mro__ if kind in paddle_counters), None)
    return paddle_counters[known] if known is not None else None


def _count_recurrent(counter: Any, given: Any, returned: Any) -> None:
    """Every weight of every layer and direction is used once a time step."""
    outputs = returned[0]
    steps = int(outputs.shape[0]) * int(outputs.shape[1])
    weights = [p for name, p in counter._layer._parameters.items() if name.startswith("weight")]
    counter.total_ops += steps * sum(int(weight.size) for weight in weights)


def _count_cell(counter: Any, given: Any, returned: Any) -> None:
    weights = [p for name, p in counter._layer._parameters.items() if name.startswith("weight")]
    counter.total_ops += int(given[0].shape[0]) * sum(int(weight.size) for weight in weights)
