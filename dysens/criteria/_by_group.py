"""Criteria that score the units of a group: from the weights as they are now, or by how much channels vary on data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import paddle
from paddle import nn

from dysens.criteria._norms import Criterion, GroupCriterion, Scores, checked_scores, scores_by
from dysens.errors import InputError
from dysens.groups import ChannelGroup, Intake, Port, Role, filters_of, roles_of
from dysens.model import preserved

Tensors = Mapping[str, paddle.Tensor]
GroupScores = Callable[[ChannelGroup], np.ndarray]


class LowestScores:
    """Chooses the units with the lowest scores, from the weights as they are when a group is first asked for.

    Args:
        tensors: The model's tensors by path.
        criterion: How filters are scored.
    """

    def __init__(self, tensors: Tensors, criterion: Criterion) -> None:
        self._score_group = (
            _by_group(criterion, tensors)
            if isinstance(criterion, GroupCriterion)
            else _by_filters(scores_by(criterion), tensors)
        )
        self._known: dict[ChannelGroup, np.ndarray] = {}

    def __call__(self, group: ChannelGroup, ratio: float) -> np.ndarray:
        """The units of a group that a ratio removes."""
        return group.weakest(self.scores(group), ratio)

    def scores(self, group: ChannelGroup) -> np.ndarray:
        """The score of every unit of a group."""
        if group not in self._known:
            self._known[group] = self._score_group(group)
        return self._known[group]


def _by_group(criterion: GroupCriterion, tensors: Tensors) -> GroupScores:
    def score(group: ChannelGroup) -> np.ndarray:
        what = f"units of {group.path}"
        return checked_scores(criterion.score(group, tensors), group.size, criterion.name, what)

    return score


def _by_filters(scores: Scores, tensors: Tensors) -> GroupScores:
    def score(group: ChannelGroup) -> np.ndarray:
        filters: dict[Port, np.ndarray] = {}
        for port, piece in group.scored:
            own = filters_of(tensors[piece.tensor], piece)
            if port in filters:  # a hidden unit is made from what comes in and from the time step before
                before = filters[port]
                own = np.concatenate([each.reshape(len(each), -1) for each in (before, own)], axis=1)
            filters[port] = own
        return group.unit_scores({port: scores(f) for port, f in filters.items()})

    return score


@dataclass(frozen=True)
class ChannelStatistics:
    """Mean and variance of every channel that a layer reads."""

    mean: np.ndarray
    variance: np.ndarray


class Variance(GroupCriterion):
    """Removes what varies least for its readers, and lets their biases take over its mean.

    A channel that is nearly constant is worth nothing but its mean, and that can go into the bias of each layer that reads it
    (or into the running mean of the batch norm behind that layer). What is lost is the variation: the channel's variance times
    the weights that read it. Norms of filters say nothing about that. This matters most for networks whose batch norms are
    fused, as those of released inference models: nothing in them adapts to a mean that is gone.

    Args:
        model: The whole live layer; it is run in eval mode and left as found.
        calls: Arguments of its forward: a few dozen real images in batches.

    Raises:
        InputError: There are no calls.

    Example:
        >>> model = paddle.vision.models.LeNet()
        >>> Variance(model, [(paddle.rand([8, 1, 28, 28]),)]).name
        'variance'
    """

    def __init__(self, model: nn.Layer, calls: Iterable[tuple[Any, ...]]) -> None:
        watch = _Watch(roles_of(model))
        with preserved(model), paddle.no_grad():
            watch.attach()
            model.eval()
            for arguments in calls:
                model(*arguments)
        self._read = watch.statistics()
        self._norms = watch.norms
        if not self._read:
            raise InputError("The criterion variance looks at data, and there were none.")

    @property
    def name(self) -> str:
        """What journals call it."""
        return "variance"

    def score(self, group: ChannelGroup, tensors: Mapping[str, paddle.Tensor]) -> np.ndarray:
        """For every unit, the variation that its readers would miss.

        Readers that did not run on the data (branches for training) count only where there are no others, and then as if
        all that they read varied alike.
        """
        readers = [port for port in group.units if port.side == "in"]
        readers = [port for port in readers if port.layer in self._read] or readers
        readers += [port for port in group.units if port.reads_inside]
        missed = np.zeros(group.size)
        for port in readers:
            weights = [
                filters_of(tensors[piece.tensor], piece).reshape(port.size, -1) for piece in port.slices
            ]
            power = sum((weight.astype("float64") ** 2).sum(axis=1) for weight in weights)
            unit, inside = group.units[port], group.units[port] >= 0
            seen = port.side == "in" and port.layer in self._read
            lost = self._read[port.layer].variance * power if seen else power
            missed += np.bincount(unit[inside], weights=lost[inside], minlength=group.size)
        return np.sqrt(missed)

    def compensate(self, layers: Mapping[str, Role]) -> dict[str, Role]:
        """The layers with what each of them reads on average, so that plans can make up for what goes."""
        return {path: replace(layer, intake=self._intake(layer)) for path, layer in layers.items()}

    def _intake(self, role: Role) -> Intake | None:
        if role.path not in self._read or not role.averages:
            return None
        mean = self._read[role.path].mean
        if role.layer.bias is not None:
            return Intake(mean, f"{role.path}.bias", 1.0)
        norm = self._norms.get(role.path)
        return Intake(mean, f"{norm}._mean", -1.0) if norm is not None else None


class _Watch:
    """Records the inputs of mixers, and which batch norm takes exactly a mixer's output."""

    def __init__(self, roles: Mapping[str, Role]) -> None:
        self._roles = roles
        self._sums: dict[str, tuple[int, np.ndarray, np.ndarray]] = {}
        self._last: tuple[Any, str] = (None, "")
        self.norms: dict[str, str] = {}

    def attach(self) -> None:
        for role in self._roles.values():
            if role.kind == "mixer" and role.inputs is not None:
                role.layer.register_forward_pre_hook(self._reads(role))
                role.layer.register_forward_post_hook(self._says(role.path))
            elif isinstance(role.layer, (nn.BatchNorm, nn.BatchNorm2D)):
                role.layer.register_forward_pre_hook(self._normalises(role.path))

    def statistics(self) -> dict[str, ChannelStatistics]:
        return {
            path: ChannelStatistics(total / count, np.maximum(squares / count - (total / count) ** 2, 0.0))
            for path, (count, total, squares) in self._sums.items()
        }

    def _reads(self, role: Role) -> Any:
        def hook(layer: nn.Layer, inputs: tuple[Any, ...]) -> None:
            assert role.inputs is not None
            values = np.moveaxis(inputs[0].astype("float32").numpy(), role.input_axis, 0)
            values = values.reshape(role.inputs.size, -1)
            total, squares = (
                values.sum(axis=1, dtype="float64"),
                np.square(values).sum(axis=1, dtype="float64"),
            )
            count, *sums = self._sums.get(role.path, (0, np.zeros(len(total)), np.zeros(len(total))))
            self._sums[role.path] = (count + values.shape[1], sums[0] + total, sums[1] + squares)

        return hook

    def _says(self, path: str) -> Any:
        def hook(layer: nn.Layer, inputs: Any, output: Any) -> None:
            self._last = (output, path)

        return hook

    def _normalises(self, path: str) -> Any:
        def hook(layer: nn.Layer, inputs: tuple[Any, ...]) -> None:
            if inputs[0] is self._last[0]:
                self.norms[self._last[1]] = path

        return hook
