"""Calibration: mean and covariance of what every consumer reads, from one pass over unlabelled data."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.nn.layer.conv import _ConvNd

from dysens.compress._samples import Call
from dysens.errors import InputError, in_a_sentence
from dysens.groups import CONV_GROUPS, ChannelGroup, Port, Role
from dysens.model import View, eagerly, preserved

logger = logging.getLogger(__name__)

# More places of one image say little that is new.
_PLACES_AN_IMAGE = 4096
_PLACES_A_CALL = 32768
# Wider than this, only variances are kept: a covariance would take more than 250 MB.
WIDEST = 5632
_BATCH_NORMS = (nn.BatchNorm, nn.BatchNorm1D, nn.BatchNorm2D, nn.BatchNorm3D, nn.SyncBatchNorm)


@dataclass(frozen=True, eq=False)
class Reading:
    """What one layer reads.

    Attributes:
        count: How many vectors were seen.
        mean: Of every channel.
        covariance: Of every pair of entries; only the variances (one axis) where a layer is too wide.
        repeat: How many neighbouring channels are one entry: the places of a flattened map are alike.
    """

    count: int
    mean: np.ndarray
    covariance: np.ndarray
    repeat: int = 1

    def moments(self, centred: bool) -> np.ndarray:
        """The covariance; or the second moments, for a layer that nothing behind relieves of means."""
        if centred:
            return self.covariance
        means = self.mean.reshape(-1, self.repeat)
        if self.covariance.ndim == 1:
            return np.asarray(self.covariance + (means**2).mean(axis=1))
        return np.asarray(self.covariance + means @ means.T / self.repeat)


@dataclass(frozen=True)
class Calibration:
    """What was seen of the data.

    Attributes:
        readings: By layer path.
        norms: For a layer without bias, the batch norms that read exactly what it makes, whenever it runs.
        short: Layers that read fewer vectors than they have channels, with both numbers.
    """

    readings: Mapping[str, Reading]
    norms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    short: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def calibrate(
    model: nn.Layer,
    roles: Mapping[str, Role],
    groups: Sequence[ChannelGroup],
    calls: Iterable[Call],
    training_views: Sequence[View] = (),
    advance: Callable[[], None] = lambda: None,
) -> Calibration:
    """Run the model over the data, and note what the consumers of all groups read. The model is left as found.

    Args:
        model: The live layer.
        roles: Its layers with weights.
        groups: Whose consumers to watch.
        calls: Arguments of the forward.
        training_views: Training forwards; layers that run in them only are calibrated on their example inputs.
        advance: Called after every forward.

    Raises:
        InputError: A forward fails on the data, or gives NaN.
    """
    ports = {port.layer: port for group in groups for port in group.units if port.side == "in"}
    watch = _Watch(
        {path: role for path, role in roles.items() if path in ports}, _repeats(ports, groups, roles)
    )
    with preserved(model), paddle.no_grad():
        watch.attach(roles)
        with eagerly(model, [View(tuple(call)) for call in calls]) as views:
            model.eval()
            for view in views:
                _forward(model, view)
                advance()
        watch.settle()
        with eagerly(model, training_views) as views:
            for view in views:
                model.train()
                _forward(model, view)
    return watch.calibration()


def _forward(model: nn.Layer, view: View) -> None:
    try:
        model(*view.arguments)
    except Exception as error:
        raise InputError(f"The model does not run on the calibration data: {in_a_sentence(error)}") from error


def _repeats(
    ports: Mapping[str, Port], groups: Sequence[ChannelGroup], roles: Mapping[str, Role]
) -> dict[str, int]:
    """How many neighbouring channels of each consumer are places of one flattened channel."""
    found = {}
    for path, port in ports.items():
        units = [group.units[port] for group in groups if port in group.units]
        whole_groups = any(group.rule == CONV_GROUPS for group in groups if port in group.units)
        flat = not isinstance(roles[path].layer, _ConvNd) and not whole_groups
        found[path] = _run_length(units, port.size) if flat else 1
    return found


def _run_length(units: Sequence[np.ndarray], size: int) -> int:
    """The longest run of neighbours that always belong to one unit, if the whole entry is made of such runs."""
    changes = np.zeros(size + 1, bool)
    changes[[0, size]] = True
    for unit in units:
        changes[1:size] |= np.diff(unit) != 0
        # Channels that stay do not show where one ends and the next begins.
    return int(np.gcd.reduce(np.diff(np.flatnonzero(changes))))


class _Sums:
    """Adds up vectors, in double precision and around the mean of the first batch: large means cost no digits."""

    def __init__(self, size: int, repeat: int) -> None:
        self._repeat = repeat
        self._wide = size // repeat > WIDEST
        self._count = 0
        self._origin = np.zeros(size)
        self._total = np.zeros(size)
        self._products = np.zeros(size // repeat if self._wide else (size // repeat,) * 2)

    def add(self, vectors: np.ndarray) -> None:
        """Add vectors (across: one column each)."""
        if not self._count:
            self._origin = vectors.mean(axis=1, dtype="float64")
        moved = vectors - self._origin[:, None].astype("float32")
        self._count += vectors.shape[1]
        self._total += moved.sum(axis=1, dtype="float64")
        entries = moved.reshape(len(self._origin) // self._repeat, -1)
        if self._wide:
            self._products += np.square(entries).sum(axis=1, dtype="float64")
        else:
            self._products += entries @ entries.T

    def reading(self) -> Reading:
        offset = self._total / self._count
        places = offset.reshape(-1, self._repeat)
        products = self._products / (self._count * self._repeat)
        if self._wide:
            covariance = np.maximum(products - (places**2).mean(axis=1), 0.0)
        else:
            covariance = products - places @ places.T / self._repeat
        # The origin was rounded to what was subtracted.
        origin = self._origin.astype("float32").astype("float64")
        return Reading(self._count * self._repeat, origin + offset, covariance, self._repeat)


class _Watch:
    """Notes what consumers read, and which batch norms get exactly what a consumer makes."""

    def __init__(self, consumers: Mapping[str, Role], repeats: Mapping[str, int]) -> None:
        self._consumers = consumers
        self._repeats = repeats
        self._random = np.random.default_rng(0)
        self._sums: dict[str, _Sums] = {}
        self._calls: dict[str, int] = {}
        self._followed: dict[str, list[str]] = {}
        self._last: tuple[Any, str] = (None, "")
        # A weight that several layers share is changed once, for all of them.
        self._owner: dict[str, str] = {}
        by_weight: dict[tuple[int, ...], str] = {}
        for path, role in consumers.items():
            assert role.inputs is not None
            key = tuple(id(getattr(role.layer, s.tensor.rpartition(".")[2])) for s in role.inputs.slices)
            self._owner[path] = by_weight.setdefault(key, path)
        self._settled: frozenset[str] | None = None  # what is known of these is not to be touched any more

    def attach(self, roles: Mapping[str, Role]) -> None:
        for path, role in roles.items():
            if path in self._consumers:
                role.layer.register_forward_pre_hook(self._reads(role))
                role.layer.register_forward_post_hook(self._makes(path))
            elif isinstance(role.layer, _BATCH_NORMS):
                role.layer.register_forward_pre_hook(self._normalises(path))

    def settle(self) -> None:
        """From now on, note only what layers read that have not run so far."""
        self._settled = frozenset(self._sums)

    def calibration(self) -> Calibration:
        read = {owner: sums.reading() for owner, sums in self._sums.items()}
        readings = {path: read[owner] for path, owner in self._owner.items() if owner in read}
        broken = [path for path, reading in readings.items() if not np.isfinite(reading.covariance).all()]
        if broken:
            raise InputError(
                f"Layer '{broken[0]}' reads NaN or infinite values on the calibration data; check data and weights."
            )
        norms = {
            path: tuple(dict.fromkeys(followed))
            for path, followed in self._followed.items()
            if len(followed) == self._calls[path]
        }
        short = {
            path: (reading.count, len(reading.covariance))
            for path, reading in readings.items()
            if reading.count < len(reading.covariance)
        }
        return Calibration(readings, norms, short)

    def _reads(self, role: Role) -> Any:
        assert role.inputs is not None
        owner, size = self._owner[role.path], role.inputs.size

        def hook(layer: nn.Layer, inputs: tuple[Any, ...]) -> None:
            if self._settled is not None and owner in self._settled:
                return
            values = self._vectors(inputs[0], role.input_axis, size)
            if owner not in self._sums:
                self._sums[owner] = _Sums(size, self._repeats[role.path])
            self._sums[owner].add(values)

        return hook

    def _vectors(self, tensor: paddle.Tensor, axis: int, size: int) -> np.ndarray:
        """What is read, one column a place; a random part where there are many."""
        values: np.ndarray = np.moveaxis(tensor.astype("float32").numpy(), axis, 0).reshape(size, -1)
        most = min(_PLACES_AN_IMAGE * max(1, tensor.shape[0]), _PLACES_A_CALL)
        if values.shape[1] > most:
            values = values[:, np.sort(self._random.choice(values.shape[1], most, replace=False))]
        return values

    def _makes(self, path: str) -> Any:
        def hook(layer: nn.Layer, inputs: Any, output: Any) -> None:
            if self._settled is None:
                self._last = (output, path)
                self._calls[path] = self._calls.get(path, 0) + 1

        return hook

    def _normalises(self, path: str) -> Any:
        def hook(layer: nn.Layer, inputs: tuple[Any, ...]) -> None:
            if inputs[0] is self._last[0] and self._settled is None:
                self._followed.setdefault(self._last[1], []).append(path)

        return hook
