"""How much the network's outputs answer to what each layer makes, from a few backward passes for all layers at once.

With J the derivative of the outputs by what a layer makes and v a vector of random signs, the gradient of ``v . outputs`` is
``J^T v``, and the mean of its square over probes is the diagonal of ``J^T J``. So an error d in what a layer makes becomes an
error of about ``sum((J^T v)^2 d^2)`` in the outputs, with nothing measured group by group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddle import nn

from dysens.compress._output_error import comparable
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
    watched: Sequence[Role] = (),
    probes: int = _PROBES,
) -> dict[str, Answer]:
    """By layer path; layers that no gradient reaches are missing. The model is left as found.

    Args:
        model: The live layer.
        consumers: Whose outputs are watched.
        calls: What the model is run on.
        watched: Layers whose outputs stand for the model's, where those are no plain maps.
        probes: Random signs that are drawn for every call.
    """
    random = np.random.default_rng(0)
    sums: dict[str, _Sum] = {}
    met: list[tuple[str, paddle.Tensor]] = []
    collected: list[Any] = []

    def hook(path: str, axis: int) -> Any:
        def seen(layer: nn.Layer, inputs: Any, output: Any) -> None:
            tensor = next((leaf for leaf in leaves(output) if isinstance(leaf, paddle.Tensor)), None)
            if tensor is not None:
                tensor.stop_gradient = False
                met.append((path, tensor))
                sums.setdefault(path, _Sum(axis % tensor.ndim)).see(tensor)

        return seen

    with preserved(model), _nothing_detached():
        model.eval()
        for path, role in consumers.items():
            role.layer.register_forward_post_hook(hook(path, role.output_axis))
        for role in watched:
            role.layer.register_forward_post_hook(lambda layer, given, output: collected.append(output))
        with eagerly(model, [View(tuple(call)) for call in calls]) as views:
            for view in views:
                met.clear()
                collected.clear()
                returned = model(*view.arguments)
                outputs = [
                    comparable(leaf.astype("float32"))
                    for leaf in leaves(collected if watched else returned)
                    if isinstance(leaf, paddle.Tensor) and leaf.is_floating_point() and not leaf.stop_gradient
                ]
                for _ in range(probes if outputs and met else 0):
                    total = sum((_probed(output, random) for output in outputs), paddle.zeros([]))
                    tensors = [tensor for _, tensor in met]
                    gradients = paddle.grad(total, tensors, retain_graph=True, allow_unused=True)
                    for (path, _), gradient in zip(met, gradients):
                        if gradient is not None:
                            sums[path].answer(gradient, len(outputs))
    found = {path: each.result(probes * len(calls)) for path, each in sums.items()}
    return {path: answer for path, answer in found.items() if answer is not None}


class _Sum:
    """What is added up of one layer; one that runs several times in a forward errs every time."""

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self._squares: Any = 0.0
        self._variance: Any = 0.0
        self._seen = 0

    def see(self, tensor: paddle.Tensor) -> None:
        """Note how what the layer makes varies."""
        values = tensor.numpy().astype("float64")
        self._variance = self._variance + values.var(axis=self._others(values.ndim))
        self._seen += 1

    def answer(self, gradient: paddle.Tensor, outputs: int) -> None:
        """Note one probe."""
        squares = np.square(gradient.numpy().astype("float64"))
        self._squares = self._squares + squares.sum(axis=self._others(squares.ndim)) / outputs

    def result(self, probes: int) -> Answer | None:
        """All together; None where no gradient came."""
        weights = np.asarray(self._squares) / probes
        if not weights.ndim or not np.isfinite(weights).all() or weights.max() <= 0:
            return None
        return Answer(weights, float(weights @ (self._variance / self._seen)))

    def _others(self, axes: int) -> tuple[int, ...]:
        return tuple(axis for axis in range(axes) if axis != self._axis)


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
