"""What layers say in a probe instead of computing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import paddle

from dysens.groups.forwarding import Visit
from dysens.groups.values import copied, numbers, written
from dysens.inputs import leaves
from dysens.live import swap_storage

# Positive, so that no ReLU hides a channel, and small, so that sums of many stay below where ReLU6 and hard sigmoid go flat.
RANGE = (0.05, 0.45)
# Near one: scales that follow each other must not shrink what moves to nothing, nor offsets pile up.
OWN_RANGE = (0.4, 0.9)


class StandIn:
    """What a layer answers at one call (a depthwise convolution: its pattern), and a second draw for the first tensor."""

    def __init__(self, entry_shape: list[int], answer: Any, other: np.ndarray) -> None:
        self.entry_shape = entry_shape
        self.other = other
        self._answer = copied(answer)
        self._pristine = answer

    def first(self, number: int, axis: int) -> StandIn:
        """The same with only the first channels."""
        answer = paddle.to_tensor(np.take(numbers(self._pristine), range(number), axis))
        return StandIn(
            self.entry_shape, answer.astype(self._pristine.dtype), np.take(self.other, range(number), axis)
        )

    def answer(self) -> Any:
        """The same tensors each time, unless somebody has written into them (SAR's decoder masks its attention so)."""
        if any(map(written, leaves(self._answer))):
            self._answer = copied(self._pristine)
        return self._answer


def spread(visit: Visit, pattern: paddle.Tensor) -> paddle.Tensor:
    """What stands in for a depthwise convolution: each channel's mean, in a pattern of the shape that it returns.

    Every value of a channel moves it, no other channel does, and a dead filter of a trained model hides nothing.
    """
    axis = visit.role.entry_axis % visit.entry.ndim
    spatial = [a for a in range(1, visit.entry.ndim) if a != axis]
    if pattern.shape[axis] > visit.entry.shape[axis]:  # in a probe of a narrower network
        pattern = paddle.slice(pattern, [axis], [0], [visit.entry.shape[axis]])
    return visit.entry.mean(axis=spatial, keepdim=True) * (pattern + 1.0)


def use_plain_values(own: Iterable[paddle.Tensor]) -> None:
    """Positive values for parameters that no known layer owns: a scale that is zero would hide what it scales."""
    random = np.random.default_rng(0)
    for tensor in own:
        drawn = random.uniform(*OWN_RANGE, list(tensor.shape)).astype("float32")
        swap_storage(tensor, paddle.to_tensor(drawn).astype(tensor.dtype))
