"""How much the network's outputs answer to what each layer makes: from a few backward passes with random probes, for all layers at once.

With J the derivative of the outputs by what a layer makes and v a vector of random signs, the gradient of ``v . outputs`` is
``J^T v``, and the mean of its square over probes is the diagonal of ``J^T J``. So an error d in what a layer makes becomes an error of
about ``sum((J^T v)^2 d^2)`` in the outputs, with nothing measured group by group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddle import nn

from dysens.compress._samples import Call
from dysens.groups import Role
from dysens.model import View, eagerly, leaves, preserved

_PROBES = 4


@dataclass(frozen=True, eq=False)
class Answer:
    """How the outputs answer to one layer.

    Attributes:
        weights: For every channel that the layer makes, the relative error of the outputs for each unit of squared error in it.
        power: The variance of what the layer makes, weighted alike: the error of the outputs if all of it were lost.
    """

    weights: np.ndarray
    power: float


def output_answers(
    model: nn.Layer,
    consumers: Mapping[str, Role],
    calls: Sequence[Call],
    outputs_of: Callable[[], Any] | None = None,
    probes: int = _PROBES,
) -> dict[str, Answer]:
    """By layer path; layers that no gradient reaches are missing. The model is left as found.

    Args:
        model: The live layer.
        consumers: Whose outputs are watched.
        calls: What the model is run on.
        outputs_of: Gives the tensors to look at after a forward, where those that the model returns are no plain maps.
        probes: Random signs that are drawn for every call.
    """
    random = np.random.default_rng(0)
    sums: dict[str, list[np.ndarray]] = {}
    variances: dict[str, list[np.ndarray]] = {}
    made: list[tuple[str, int, Any]] = []

    def hook(path: str, axis: int) -> Any:
        def seen(layer: nn.Layer, inputs: Any, output: Any) -> None:
            tensor = next((leaf for leaf in leaves(output) if isinstance(leaf, paddle.Tensor)), None)
            if tensor is not None:
                if tensor.stop_gradient:
                    tensor.stop_gradient = False
                made.append((path, axis % tensor.ndim, tensor))

        return seen

    with preserved(model), _nothing_detached():
        model.eval()
        for path, role in consumers.items():
            role.layer.register_forward_post_hook(hook(path, role.output_axis))
        with eagerly(model, [View(tuple(call)) for call in calls]) as views:
            for view in views:
                made.clear()
                returned = model(*view.arguments)
                outputs = [
                    leaf
                    for leaf in leaves(outputs_of() if outputs_of is not None else returned)
                    if isinstance(leaf, paddle.Tensor) and leaf.is_floating_point() and not leaf.stop_gradient
                ]
                if not outputs or not made:
                    continue
                for path, axis, tensor in made:
                    others = [place for place in range(tensor.ndim) if place != axis]
                    values = tensor.detach()
                    variances.setdefault(path, []).append(
                        (values.square().mean(others) - values.mean(others).square()).numpy().astype("float64")
                    )
                for _ in range(probes):
                    total = sum((_probed(output, random) for output in outputs), paddle.zeros([]))
                    gradients = paddle.grad(
                        total, [tensor for *_, tensor in made], retain_graph=True, allow_unused=True
                    )
                    for (path, axis, tensor), gradient in zip(made, gradients):
                        if gradient is not None:
                            others = [place for place in range(tensor.ndim) if place != axis]
                            square = gradient.square().sum(others).numpy().astype("float64")
                            sums.setdefault(path, []).append(square / len(outputs))
    found = {}
    for path, squares in sums.items():
        # A layer that runs several times in a forward errs every time.
        weights = np.sum(squares, axis=0) / (probes * len(calls))
        if np.isfinite(weights).all() and weights.max() > 0:
            found[path] = Answer(weights, float(weights @ np.mean(variances[path], axis=0)))
    return found


@contextmanager
def _nothing_detached() -> Iterator[None]:
    """Let gradients pass where a network stops them on purpose for training: what follows depends on it all the same."""
    kind = paddle.Tensor
    stopping, detach = kind.stop_gradient, kind.detach
    if not hasattr(stopping, "__set__"):  # nothing to stand in for
        yield
        return

    def keep(tensor: paddle.Tensor, value: bool) -> None:
        if not value:
            stopping.__set__(tensor, value)

    try:
        kind.stop_gradient = property(stopping.__get__, keep)
        kind.detach = lambda tensor: tensor
        yield
    finally:
        kind.stop_gradient, kind.detach = stopping, detach


def _probed(output: paddle.Tensor, random: np.random.Generator) -> paddle.Tensor:
    """The output times random signs, in units of how much it varies."""
    values = output.detach()
    varies = float(((values - values.mean()).square()).sum())
    signs = paddle.to_tensor(random.choice([-1.0, 1.0], values.shape).astype("float32"))
    return (output.astype("float32") * signs).sum() / max(varies, 1e-30) ** 0.5
