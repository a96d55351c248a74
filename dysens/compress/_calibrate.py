"""Calibration: mean and covariance of what every consumer reads, from one pass over unlabelled data.

Not every place counts alike. Most of a page is paper, and an error there changes nothing in what a text detector says. So, where
gradients come back from the outputs, every place counts by how much the outputs answer to it, and statistics are those of the
places that matter. The same backward pass says how much each channel matters (`Answer`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.nn.layer.conv import _ConvNd

from dysens.compress._gradients import Answer, AnswerSum, Probe, gradients_pass
from dysens.compress._samples import Call, pieces
from dysens.errors import InputError, in_a_sentence
from dysens.groups import CONV_GROUPS, ChannelGroup, Port, Role
from dysens.model import View, eagerly, leaves, preserved

logger = logging.getLogger(__name__)

# More places of one image say little that is new.
_PLACES_AN_IMAGE = 4096
_PLACES_A_CALL = 32768
# Wider than this, only variances are kept: a covariance would take more than 250 MB.
WIDEST = 5632
# The least that a place counts, in means of all places of a call.
_LEAST_WEIGHT = 0.1
# Numbers in the inputs of one forward that is followed by a backward one: all that layers read is kept until then.
AT_ONCE = 2**18
_BATCH_NORMS = (nn.BatchNorm, nn.BatchNorm1D, nn.BatchNorm2D, nn.BatchNorm3D, nn.SyncBatchNorm)


@dataclass(frozen=True, eq=False)
class Reading:
    """What one layer reads.

    Attributes:
        count: How many vectors were seen; where they count unlike, how many that count alike would tell as much.
        mean: Of every channel.
        covariance: Of every pair of entries; only the variances (one axis) where a layer is too wide.
        repeat: How many neighbouring channels are one entry: the places of a flattened map are alike.
    """

    count: float
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
        answers: How the outputs answer to what each layer makes, by path; empty where no gradient came back.
        weights: By layer path, for every piece of the data what its places count, in the order of `pieces`.
    """

    readings: Mapping[str, Reading]
    norms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    short: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    answers: Mapping[str, Answer] = field(default_factory=dict)
    weights: Mapping[str, Sequence[np.ndarray]] = field(default_factory=dict)


def calibrate(
    model: nn.Layer,
    roles: Mapping[str, Role],
    groups: Sequence[ChannelGroup],
    calls: Iterable[Call],
    training_views: Sequence[View] = (),
    advance: Callable[[], None] = lambda: None,
    outputs: Sequence[Role] | None = None,
) -> Calibration:
    """Run the model over the data, and note what the consumers of all groups read. The model is left as found.

    Args:
        model: The live layer.
        roles: Its layers with weights.
        groups: Whose consumers to watch.
        calls: Arguments of the forward.
        training_views: Training forwards; layers that run in them only are calibrated on their example inputs.
        advance: Called after every call.
        outputs: Weigh places by what they do to the model's outputs: layers whose outputs stand for them, none for the model's
            own. None to count all places alike.

    Raises:
        InputError: A forward fails on the data, or gives NaN.
    """
    calls = list(calls)
    if outputs is not None:
        try:
            return _calibrated(model, roles, groups, calls, training_views, advance, outputs)
        except InputError:
            raise
        except Exception as failure:  # a backward pass is no part of what a model has to be able to do
            logger.info("no gradients, so all places count alike: %s", in_a_sentence(failure))
    return _calibrated(model, roles, groups, calls, training_views, advance, None)


def _calibrated(
    model: nn.Layer,
    roles: Mapping[str, Role],
    groups: Sequence[ChannelGroup],
    calls: Sequence[Call],
    training_views: Sequence[View],
    advance: Callable[[], None],
    outputs: Sequence[Role] | None,
) -> Calibration:
    ports = {port.layer: port for group in groups for port in group.units if port.side == "in"}
    watch = _Watch(
        {path: role for path, role in roles.items() if path in ports},
        _repeats(ports, groups, roles),
        outputs is not None,
    )
    with preserved(model):
        watch.attach(roles)
        collected: list[Any] = []
        for role in outputs or ():
            role.layer.register_forward_post_hook(lambda layer, given, output: collected.append(output))
        for call in calls:
            some = list(pieces(call, AT_ONCE)) if outputs is not None else [call]
            with eagerly(model, [View(tuple(each)) for each in some]) as views:
                model.eval()
                for view in views:
                    collected.clear()
                    with gradients_pass() if outputs is not None else paddle.no_grad():
                        made = _forward(model, view)
                        watch.end_of_call(collected if outputs else made)
            advance()
        watch.settle()
        with eagerly(model, training_views) as views, paddle.no_grad():
            for view in views:
                model.train()
                _forward(model, view)
    return watch.calibration()


def _forward(model: nn.Layer, view: View) -> Any:
    try:
        return model(*view.arguments)
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
        self._count = 0.0
        self._squares = 0.0  # of what vectors count
        self._origin: np.ndarray | None = None
        self._total = np.zeros(size)
        self._products = np.zeros(size // repeat if self._wide else (size // repeat,) * 2)

    def add(self, vectors: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Add vectors (across: one column each), and what each of them counts."""
        if self._origin is None:
            self._origin = vectors.mean(axis=1, dtype="float64")
        moved = vectors - self._origin[:, None].astype("float32")
        weighted = moved if weights is None else moved * weights
        self._count += vectors.shape[1] if weights is None else float(weights.sum(dtype="float64"))
        self._squares += (
            vectors.shape[1] if weights is None else float(np.square(weights, dtype="float64").sum())
        )
        self._total += weighted.sum(axis=1, dtype="float64")
        entries = moved.reshape(len(self._origin) // self._repeat, -1)
        weighted = weighted.reshape(entries.shape)
        if self._wide:
            self._products += (weighted * entries).sum(axis=1, dtype="float64")
        else:
            self._products += weighted @ entries.T

    def reading(self) -> Reading:
        offset = self._total / self._count
        places = offset.reshape(-1, self._repeat)
        products = self._products / (self._count * self._repeat)
        if self._wide:
            covariance = np.maximum(products - (places**2).mean(axis=1), 0.0)
        else:
            covariance = products - places @ places.T / self._repeat
        # The origin was rounded to what was subtracted.
        origin = np.asarray(self._origin).astype("float32").astype("float64")
        told = self._count**2 / self._squares * self._repeat
        return Reading(told, origin + offset, covariance, self._repeat)


class _Watch:
    """Notes what consumers read, and which batch norms get exactly what a consumer makes."""

    def __init__(
        self, consumers: Mapping[str, Role], repeats: Mapping[str, int], weighs: bool = False
    ) -> None:
        self._consumers = consumers
        self._weighs = weighs
        self._probe = Probe()
        self._ended = 0
        self._counted: dict[str, tuple[float, int]] = {}
        self._met: list[_Met] = []
        self._answers: dict[str, AnswerSum] = {}
        self._weights: dict[str, list[np.ndarray]] = {}
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
            path: (round(reading.count), len(reading.covariance))
            for path, reading in readings.items()
            if reading.count < len(reading.covariance)
        }
        answers = {path: each.result(self._ended) for path, each in self._answers.items()}
        known = {path: answer for path, answer in answers.items() if answer is not None}
        return Calibration(readings, norms, short, known, {} if not known else self._weights)

    def end_of_call(self, outputs: Any) -> None:
        """Add up what was read, now that it can be told what its places count."""
        if not self._weighs:
            return
        self._ended += 1
        gradients = self._probe.gradients(outputs, [met.made for met in self._met])
        for met, gradient in zip(self._met, gradients):
            squares = None if gradient is None else np.square(gradient)
            axis = self._consumers[met.path].output_axis % met.made.ndim
            self._answers.setdefault(met.path, AnswerSum(axis)).add(met.made.numpy(), squares)
            counts = self._counts(met, None if squares is None else squares.sum(axis=axis))
            self._weights.setdefault(met.path, []).append(counts.astype("float16"))
            chosen = counts if met.chosen is None else counts[met.chosen]
            self._sums_of(met.path).add(met.values, chosen.astype("float32"))
        self._met.clear()

    def _counts(self, met: _Met, squares: np.ndarray | None) -> np.ndarray:
        """What each place counts, in means of all so far."""
        counts = _by_place(met, squares)
        total, places = self._counted.get(met.path, (0.0, 0))
        total, places = total + float(counts.sum(dtype="float64")), places + len(counts)
        self._counted[met.path] = (total, places)
        return counts * (places / total) + _LEAST_WEIGHT if total > 0 else np.ones(len(counts))

    def _sums_of(self, path: str) -> _Sums:
        owner = self._owner[path]
        if owner not in self._sums:
            inputs = self._consumers[path].inputs
            assert inputs is not None
            self._sums[owner] = _Sums(inputs.size, self._repeats[path])
        return self._sums[owner]

    def _reads(self, role: Role) -> Any:
        assert role.inputs is not None
        owner, size = self._owner[role.path], role.inputs.size

        def hook(layer: nn.Layer, inputs: tuple[Any, ...]) -> None:
            if self._settled is not None and owner in self._settled:
                return
            values, chosen, places = self._vectors(inputs[0], role.input_axis, size)
            if self._weighs and self._settled is None:
                self._met.append(_Met(role.path, values, chosen, places))
            else:
                self._sums_of(role.path).add(values)

        return hook

    def _vectors(
        self, tensor: paddle.Tensor, axis: int, size: int
    ) -> tuple[np.ndarray, np.ndarray | None, tuple[int, ...]]:
        """What is read, one column a place; a random part where there are many, then which; and how places lie."""
        moved: np.ndarray = np.moveaxis(tensor.astype("float32").numpy(), axis, 0)
        values = moved.reshape(size, -1)
        most = min(_PLACES_AN_IMAGE * max(1, tensor.shape[0]), _PLACES_A_CALL)
        if values.shape[1] <= most:
            return values, None, moved.shape[1:]
        chosen = np.sort(self._random.choice(values.shape[1], most, replace=False))
        return values[:, chosen], chosen, moved.shape[1:]

    def _makes(self, path: str) -> Any:
        def hook(layer: nn.Layer, inputs: Any, output: Any) -> None:
            if self._settled is not None:
                return
            self._last = (output, path)
            self._calls[path] = self._calls.get(path, 0) + 1
            if self._weighs:
                made = next(leaf for leaf in leaves(output) if isinstance(leaf, paddle.Tensor))
                made.stop_gradient = False
                self._met[-1].made = made

        return hook

    def _normalises(self, path: str) -> Any:
        def hook(layer: nn.Layer, inputs: tuple[Any, ...]) -> None:
            if inputs[0] is self._last[0] and self._settled is None:
                self._followed.setdefault(self._last[1], []).append(path)

        return hook


@dataclass(eq=False)
class _Met:
    """One turn of a layer: what it read, at which of its places, how those lie, and what it made."""

    path: str
    values: np.ndarray
    chosen: np.ndarray | None
    places: tuple[int, ...]
    made: Any = None


def _by_place(met: _Met, squares: np.ndarray | None) -> np.ndarray:
    """For each place of what a layer read, the squared gradient of what it made there, or nearest to there."""
    if squares is None or squares.ndim != len(met.places):
        return np.ones(int(np.prod(met.places)))
    for axis, (ours, theirs) in enumerate(zip(met.places, squares.shape)):
        if ours != theirs:
            squares = np.take(squares, np.arange(ours) * theirs // ours, axis=axis)
    return squares.reshape(-1)
