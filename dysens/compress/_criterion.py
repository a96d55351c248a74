"""The criterion "elimination": units in the order in which the others can best take over their work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import nn

from dysens.compress._calibrate import Calibration, Reading, calibrate
from dysens.compress._eliminate import Order, Reader, eliminate, set_error
from dysens.compress._fold import folding, offsets, ridge_for
from dysens.compress._gradients import Answer
from dysens.compress._output_error import last_layers
from dysens.compress._samples import read_samples
from dysens.criteria import GroupCriterion
from dysens.engines import Analysis
from dysens.groups import ChannelGroup, Port, Role, filters_of
from dysens.model import View, tensors_by_path
from dysens.ratios import predicted_loss, ratio_key
from dysens.sweep import TaylorCurves

ELIMINATION = "elimination"


class Elimination(GroupCriterion):
    """Removes first what folding can best repair, see `dysens.compress`.

    Args:
        model: The live layer, as it was calibrated.
        roles: Its layers with weights.
        calibration: What they read.
        fold: Whether plans fold what goes into what stays.
        answers: How the outputs answer to each layer, see `Calibration`: then errors of layers count by what they do to the
            network's outputs, channel by channel, and not by the layer's own power.

    Attributes:
        calibration: What they read.
    """

    def __init__(
        self,
        model: nn.Layer,
        roles: Mapping[str, Role],
        calibration: Calibration,
        fold: bool = True,
        answers: Mapping[str, Answer] | None = None,
    ) -> None:
        self._tensors = tensors_by_path(model)
        self._roles = roles
        self.calibration = calibration
        self._fold = fold
        self._answers = dict(answers or {})
        self._inverses: dict[str, tuple[np.ndarray, float]] = {}
        self._orders: dict[ChannelGroup, Order] = {}

    @classmethod
    def of_data(
        cls,
        model: nn.Layer,
        analysis: Analysis,
        views: Sequence[View],
        data: Any,
        fold: bool = True,
        limit: int = 64,
    ) -> Elimination:
        """Calibrate a model on data; errors count by what they do to the network's outputs, where gradients come back from them.

        Args:
            model: The live layer; it is left as found.
            analysis: Its layers and groups.
            views: How it is run, the eval forward first.
            data: See `read_samples`.
            fold: Whether plans fold what goes into what stays.
            limit: How many samples to take.
        """
        samples = read_samples(data, views[0], limit, hold_back=False)
        training = [view for view in views if view.training]
        roles, groups = analysis.roles, analysis.groups
        calibration = calibrate(model, roles, groups, samples.calibration, training, outputs=())
        if not calibration.answers:  # outputs behind a selection, such as boxes
            heads = list(last_layers(roles, groups).values())
            calibration = calibrate(model, roles, groups, samples.calibration, training, outputs=heads)
        return cls(model, roles, calibration, fold, calibration.answers)

    def weighted(self, model: nn.Layer) -> Elimination:
        """The same calibration, with errors that count by what they do to the network's outputs."""
        found = Elimination(model, self._roles, self.calibration, self._fold, self.calibration.answers)
        found._inverses = self._inverses
        return found

    def __getstate__(self) -> dict[str, Any]:
        """For other processes, which are told what goes, and only fold it: neither live layers nor tensors."""
        return {**vars(self), "_tensors": {}, "_roles": {}, "_inverses": {}, "_orders": {}}

    @property
    def name(self) -> str:
        """What journals call it."""
        return ELIMINATION if self._fold else f"{ELIMINATION} without folding"

    def score(self, group: ChannelGroup, tensors: Mapping[str, paddle.Tensor]) -> np.ndarray:
        """When each unit goes. The order belongs to the weights that were calibrated, and is found once."""
        return self.order(group).rank.astype("float64")

    def compensate(self, layers: Mapping[str, Role]) -> Mapping[str, Role]:
        """The layers, so that plans fold what goes into what stays."""
        return folding(layers, self.calibration) if self._fold else layers

    def order(self, group: ChannelGroup) -> Order:
        """The order in which the units of a group go."""
        if group not in self._orders:
            self._orders[group] = eliminate(self._readers(group), group.blocks)
        return self._orders[group]

    def units(self, group: ChannelGroup, ratio: float) -> np.ndarray:
        """The units that a ratio removes."""
        return group.weakest(self.order(group).rank, ratio)

    def curve(self, group: ChannelGroup) -> dict[float, float]:
        """The relative error of what the group's consumers make, by the share of units that is gone."""
        order = self.order(group)
        if group.layouts:
            readers = self._readers(group)
            gone = [form.weakest(order.rank) for form in group.layouts]
            return {len(units) / group.size: set_error(readers, units) for units in gone}
        rounds = len(order.errors) + 1
        return {(number + 1) / rounds: float(error) for number, error in enumerate(order.errors)}

    # What the consumers of a group read, and what they make of it

    def _readers(self, group: ChannelGroup) -> list[Reader]:
        ports = [port for port in group.units if port.side == "in" and port.layer in self._roles]
        seen = [port for port in ports if port.layer in self.calibration.readings]
        # Layers that did not run on the data count only where there are no others, as if all that they read varied alike.
        inside = [port for port in group.units if port.reads_inside]
        return [self._reader(group, port) for port in (*(seen or ports), *inside)]

    def _reader(self, group: ChannelGroup, port: Port) -> Reader:
        role = self._roles[port.layer]
        known = None if port.reads_inside else self.calibration.readings.get(port.layer)
        reading = known or Reading(1, np.zeros(port.size), np.ones(port.size))
        unit = group.units[port][:: reading.repeat]
        inside = np.flatnonzero(unit >= 0)
        weight = self._weight(port, reading.repeat)
        moments = reading.moments(self._is_centred(role))
        if moments.ndim == 1:
            return _independent(unit, weight, moments, group.size)
        inverse, power = self._inverse(role, reading, weight, moments)
        own, power = self._weighted(role, weight, power)
        own = own[inside]
        gram = own @ own.T
        if role.conv_groups > 1:
            gram *= _same_block(inside, port.size // role.conv_groups)
        return Reader(unit[inside], inverse[np.ix_(inside, inside)], gram, power)

    def _weighted(self, role: Role, weight: np.ndarray, power: float) -> tuple[np.ndarray, float]:
        """The weights, so that errors of what they make are errors of the network's outputs, and what to divide them by."""
        answer = self._answers.get(role.path)
        if answer is None:
            # Where no gradient comes from, an error counts little, and not nothing: the layer may matter in training.
            powers = [answer.power for answer in self._answers.values() if answer.power > 0]
            return weight, power / min(powers, default=1.0)
        if role.outputs is None or role.inside:
            return weight, power / max(answer.power, 1e-30)
        made = len(answer.weights) // role.conv_groups
        by_block = np.sqrt(answer.weights).reshape(role.conv_groups, made)
        rows = np.repeat(by_block, len(weight) // role.conv_groups, axis=0)
        return (weight.reshape(len(weight), made, -1) * rows[:, :, None]).reshape(len(weight), -1), 1.0

    def _is_centred(self, role: Role) -> bool:
        return bool(offsets(role, self.calibration))

    def _weight(self, port: Port, repeat: int) -> np.ndarray:
        """All weights of a layer, what it reads in front."""
        parts = [filters_of(self._tensors[piece.tensor], piece) for piece in port.slices]
        return np.concatenate([part.reshape(port.size // repeat, -1) for part in parts], axis=1).astype(
            "float64"
        )

    def _inverse(
        self, role: Role, reading: Reading, weight: np.ndarray, moments: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """The inverse of what a layer reads, and the power of what it makes; both are the same for all its groups."""
        if role.path not in self._inverses:
            if role.conv_groups > 1:
                moments = moments * _same_block(np.arange(len(moments)), len(moments) // role.conv_groups)
            ridged = moments + ridge_for(reading, moments) * np.eye(len(moments))
            power = max(float(np.einsum("ij,ij->", moments @ weight, weight)), 1e-30)
            self._inverses[role.path] = (np.linalg.inv(ridged), power)
        return self._inverses[role.path]


class ErrorCurves(TaylorCurves):
    """The relative error of the outputs once units are gone and folded in, as gradients foresee it, by group and ratio.

    It needs no labels and no evaluation. It says which groups can be cut deep, not how many points of accuracy they cost.
    """

    _value = "error"
    _note = "foreseen relative error of the outputs, after folding, by share of channels removed"


def error_curves(
    elimination: Elimination, groups: Sequence[ChannelGroup], ratios: Sequence[float]
) -> ErrorCurves:
    """The curves of calibrated groups at these ratios."""
    curves: dict[str, dict[float, float]] = {}
    for group in groups:
        known = elimination.curve(group)
        most = max(known, default=0.0)
        curves[group.name] = {
            ratio_key(ratio): predicted_loss(known, min(ratio, most)) for ratio in sorted(ratios) if known
        }
    return ErrorCurves(curves, {group.name: group.path for group in groups})


def _same_block(entries: np.ndarray, width: int) -> np.ndarray:
    """Where two entries enter the same group of a grouped convolution."""
    block = entries // width
    return np.asarray(block[:, None] == block[None, :])


def _independent(unit: np.ndarray, weight: np.ndarray, variances: np.ndarray, size: int) -> Reader:
    """A consumer of which only variances are known: no unit can make up for another."""
    lost = variances * (weight**2).sum(axis=1)
    inside = unit >= 0
    missed = np.bincount(unit[inside], weights=lost[inside], minlength=size)
    return Reader(np.arange(size), np.eye(size), np.diag(missed), max(float(lost.sum()), 1e-30))
