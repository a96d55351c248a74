"""What each layer takes of the time, measured: every layer that has FLOPs is exported by itself and run by Paddle's predictor.

Such times promise more than the whole network keeps (layers are fused, caches are warm), so they only weigh layers against each
other in the allocation; whether a target is met, the whole network's time says.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.nn.layer.rnn import RNNBase
from paddle.static import InputSpec

from dysens.costs import Cost, Predictor, median_seconds
from dysens.model import View, eagerly, preserved

logger = logging.getLogger(__name__)

_ROUNDS = 10


@dataclass(frozen=True)
class _Met:
    """A layer, and what it was given."""

    layer: nn.Layer
    shape: tuple[int, ...]
    dtype: str

    @property
    def alike(self) -> tuple[Any, ...]:
        """The same for layers that do the same work."""
        weights = tuple((name, tuple(tensor.shape)) for name, tensor in self.layer._parameters.items())
        settings = [
            getattr(self.layer, name, None) for name in ("_stride", "_padding", "_groups", "_dilation")
        ]
        return type(self.layer), self.shape, self.dtype, weights, str(settings)


def timed_cost(model: nn.Layer, view: View, cost: Cost, folder: Path) -> Cost:
    """The cost, with nanoseconds in place of FLOPs.

    A layer that cannot be exported by itself counts by its FLOPs, at the pace of all others.

    Args:
        model: The live layer; it is left as found.
        view: What it is run on.
        cost: Its FLOPs by layer.
        folder: Where to export to.
    """
    met = _meet(model, view, cost.by_layer)
    seconds: dict[tuple[Any, ...], float] = {}
    for number, each in enumerate({each.alike: each for runs in met.values() for each in runs}.values()):
        try:
            seconds[each.alike] = _seconds(each, folder / f"layer{number}")
        except Exception as error:  # whatever an export stumbles over: the layer is then counted by its FLOPs
            logger.info("%s is not timed by itself: %s", type(each.layer).__name__, error)
    known = {
        path: sum(seconds[each.alike] for each in runs)
        for path, runs in met.items()
        if runs and all(each.alike in seconds for each in runs)
    }
    pace = sum(known.values()) / max(sum(cost.by_layer[path] for path in known), 1) if known else 1e-9
    by_layer = {
        path: max(1, round(1e9 * known.get(path, pace * flops))) for path, flops in cost.by_layer.items()
    }
    products = {path: max(1, round(1e9 * pace * flops)) for path, flops in cost.products.items()}
    total = sum(by_layer.values()) + sum(products.values())
    return replace(cost, flops=total, by_layer=by_layer, products=products)


def _meet(model: nn.Layer, view: View, paths: Mapping[str, int]) -> dict[str, list[_Met]]:
    """Every layer, once for each time that it runs."""
    met: dict[str, list[_Met]] = {path: [] for path in paths}
    with preserved(model), eagerly(model, [view]) as (view,), paddle.no_grad():
        model.eval()
        for path, layer in model.named_sublayers(include_self=True):
            if path not in paths:
                continue

            def hook(layer: nn.Layer, inputs: tuple[Any, ...], path: str = path) -> None:
                given = inputs[0]
                met[path].append(_Met(layer, tuple(given.shape), str(given.dtype).rpartition(".")[2]))

            layer.register_forward_pre_hook(hook)
        model(*view.fresh())
    return met


def _seconds(met: _Met, folder: Path) -> float:
    with preserved(met.layer), paddle.no_grad():
        met.layer.eval()
        wrapped = _First(met.layer) if isinstance(met.layer, RNNBase) else met.layer
        spec = InputSpec(list(met.shape), met.dtype)
        static = paddle.jit.to_static(wrapped, input_spec=[spec], full_graph=True)
        paddle.jit.save(static, str(folder / "layer"))
    values = np.random.default_rng(0).standard_normal(met.shape).astype(met.dtype)
    predictors = {"layer": Predictor(folder / "layer")}
    return median_seconds(predictors, [values], _ROUNDS, time.process_time)["layer"]


class _First(nn.Layer):
    """A recurrent layer without its state."""

    def __init__(self, layer: nn.Layer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, values: paddle.Tensor) -> paddle.Tensor:
        return self.layer(values)[0]
