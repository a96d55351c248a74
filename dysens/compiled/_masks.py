"""The layers that consume prunable channels: their inputs are masked where the live model's weights would be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import paddle

from dysens.groups import ChannelGroup, Role
from dysens.model import tensors_by_path
from dysens.pruning import PrunePlan, TensorCut


@dataclass(frozen=True, eq=False)
class Consumer:
    """A layer whose input channels can be switched off.

    Attributes:
        path: Where it is in the model.
        layer: The live layer.
        shape: Of a mask that multiplies its input: all ones but for the axis of the channels.
    """

    path: str
    layer: paddle.nn.Layer
    shape: tuple[int, ...]


class Consumers:
    """All layers that consume channels of some groups.

    Zeroing the weights of a consuming layer along its input channels equals zeroing its input there. A weight that several
    layers share is zeroed for all of them, so each of them is masked.

    Args:
        model: The live layer.
        roles: Its layers with weights.
        groups: Whose channels will be masked.
    """

    def __init__(
        self, model: paddle.nn.Layer, roles: Mapping[str, Role], groups: Iterable[ChannelGroup]
    ) -> None:
        self._tensors = {path: id(tensor) for path, tensor in tensors_by_path(model).items()}
        masked = {
            (self._tensors[piece.tensor], piece.axis)
            for group in groups
            for port in group.units
            if port.side == "in"
            for piece in port.slices
        }
        self.all: list[Consumer] = []
        self._fed: dict[tuple[int, int], list[int]] = {}
        for role in roles.values():
            if role.kind == "passing" or role.inputs is None:
                continue
            slots = {(self._tensors[piece.tensor], piece.axis) for piece in role.inputs.slices} & masked
            for slot in slots:
                self._fed.setdefault(slot, []).append(len(self.all))
            if slots:
                self.all.append(Consumer(role.path, role.layer, _mask_shape(role)))

    def masks(self, plan: PrunePlan | None) -> dict[str, np.ndarray]:
        """One mask per consumer, by path: 0 where the plan's masks zero its weights, else 1."""
        masks = [np.ones(consumer.shape, "float32") for consumer in self.all]
        for item in plan.masks if plan is not None else ():
            for index in self._fed[self._tensors[item.tensor], item.axis]:
                masks[index].reshape(-1)[list(item.removed)] = 0.0
        return {consumer.path: mask for consumer, mask in zip(self.all, masks)}

    def paths_fed(self, mask: TensorCut) -> set[str]:
        """The consumers whose input a mask switches off."""
        return {self.all[index].path for index in self._fed[self._tensors[mask.tensor], mask.axis]}


def _mask_shape(role: Role) -> tuple[int, ...]:
    assert role.inputs is not None
    if role.input_axis == -1:
        return (role.inputs.size,)
    # Channels on axis 1 are those of a convolution, and its weight has the rank of its input.
    return (1, role.inputs.size, *[1] * (role.layer.weight.ndim - 2))
