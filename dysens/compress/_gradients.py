"""How much the network's outputs answer to what each layer makes, from one backward pass for all layers at once.

With J the derivative of the outputs by what a layer makes and v a vector of random signs, the gradient of ``v . outputs`` is
``J^T v``, and the mean of its square over probes is the diagonal of ``J^T J``. So an error d in what a layer makes becomes an
error of about ``sum((J^T v)^2 d^2)`` in the outputs, with nothing measured group by group. One probe a call is enough: its
squares are added up over all places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from dysens.compress._output_error import comparable
from dysens.model import leaves


@dataclass(frozen=True, eq=False)
class Answer:
    """How the outputs answer to one layer.

    Attributes:
        weights: For every channel that the layer makes, the relative error of the outputs for each unit of squared error in it.
        power: The variance of what the layer makes, weighted alike: the error of the outputs if all of it were lost.
    """

    weights: np.ndarray
    power: float


class Probe:
    """Random signs for the outputs, in units of how much those have varied so far."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._varied: dict[int, tuple[float, int]] = {}

    def gradients(self, outputs: Any, made: Sequence[paddle.Tensor]) -> list[np.ndarray | None]:
        """The gradients of the probed outputs by what layers made; None where there is none."""
        compared = [
            comparable(leaf.astype("float32"))
            for leaf in leaves(outputs)
            if isinstance(leaf, paddle.Tensor) and leaf.is_floating_point() and not leaf.stop_gradient
        ]
        if not compared or not made:
            return [None] * len(made)
        total = paddle.zeros([])
        for place, output in enumerate(compared):
            total = total + self._probed(output, place) / len(compared) ** 0.5
        found = paddle.grad(total, list(made), allow_unused=True)
        return [None if gradient is None else gradient.astype("float32").numpy() for gradient in found]

    def _probed(self, output: paddle.Tensor, place: int) -> paddle.Tensor:
        values = output.detach()
        varied, seen = self._varied.get(place, (0.0, 0))
        varied, seen = varied + float((values - values.mean()).square().sum()), seen + 1
        self._varied[place] = (varied, seen)
        signs = paddle.to_tensor(self._random.choice([-1.0, 1.0], values.shape).astype("float32"))
        return (output.astype("float32") * signs).sum() / max(varied / seen, 1e-30) ** 0.5


class AnswerSum:
    """What is added up of one layer; one that runs several times in a forward errs every time.

    Args:
        axis: Of the channels that it makes.
    """

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self._squares: Any = 0.0
        self._variance: Any = 0.0
        self._seen = 0

    def add(self, made: np.ndarray, squares: np.ndarray | None) -> None:
        """Note what the layer made in one turn, and the squared gradients by it."""
        others = tuple(axis for axis in range(made.ndim) if axis != self._axis)
        self._variance = self._variance + made.var(axis=others, dtype="float64")
        self._seen += 1
        if squares is not None:
            self._squares = self._squares + squares.sum(axis=others, dtype="float64")

    def result(self, calls: int) -> Answer | None:
        """All together, of so many calls; None where no gradient came."""
        weights = np.asarray(self._squares) / calls
        if not weights.ndim or not np.isfinite(weights).all() or weights.max() <= 0:
            return None
        return Answer(weights, float(weights @ (self._variance / self._seen)))


@contextmanager
def gradients_pass() -> Iterator[None]:
    """Gradients are on, also where a network stops them on purpose."""
    with paddle.enable_grad(), _nothing_detached():
        yield


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
