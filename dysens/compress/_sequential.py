"""Sequential folding: every consumer is refitted on what it really gets, once everything before it has been cut and folded.

Folding as in `_fold` takes each consumer alone: what it reads is as it was, but for the channels that go. In a deep cut, errors
of earlier layers add up, and a consumer can make up for a part of them. So the calibration data run through the network once
more; just before a consumer runs, its weights are fitted from what it reads now to what it read in the whole network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import paddle
from paddle import nn

from dysens.compress._calibrate import AT_ONCE, Calibration, Reading
from dysens.compress._fold import Fold, blocks_of, mix_of, offsets, ridge_for
from dysens.compress._samples import Call, pieces
from dysens.groups import Role
from dysens.model import View, eagerly, leaves, map_leaves, preserved, tensors_by_path
from dysens.progress import progress
from dysens.pruning import Folded, PrunePlan, TensorMix, TensorShift, fold_into, zero

_PLACES = 4096
# Numbers of input that run as one batch: ten pages, thirty scenes, two hundred lines of text.
_NUMBERS = 2**23
# What consumers read in the whole network is kept for as long as plans are made.
_MOST_BYTES = 512 * 2**20


class SequentialFolding:
    """Refolds plans.

    Args:
        model: The whole live layer.
        roles: Its layers with weights.
        calibration: What they read.
        calls: The calibration data; those of one shape are taken, as one batch.
    """

    def __init__(
        self, model: nn.Layer, roles: Mapping[str, Role], calibration: Calibration, calls: Sequence[Call]
    ) -> None:
        self._model = model
        self._calibration = calibration
        self._call, self._taken = _joined(calls)
        consumers = {path: roles[path] for path in calibration.readings}
        width = sum(role.inputs.size for role in consumers.values() if role.inputs is not None)
        self._places = max(1, min(_PLACES, _MOST_BYTES // (4 * max(width, 1))))
        self._read: dict[str, np.ndarray] = {}
        self._chosen: dict[
            str, tuple[int, np.ndarray, np.ndarray]
        ] = {}  # of how many, which, what they count
        calls_of: Counter[str] = Counter()

        def keep(role: Role) -> Any:
            def hook(layer: nn.Layer, inputs: tuple[Any, ...]) -> None:
                calls_of[role.path] += 1
                self._read[role.path] = self._vectors(role, inputs[0])

            return hook

        self._forward({path: keep(role) for path, role in consumers.items()}, consumers)
        # A layer that runs several times, or shares its weight, cannot be fitted to one of its turns.
        owners = Counter(
            id(role.layer.weight) for role in consumers.values() if hasattr(role.layer, "weight")
        )
        self._consumers = {
            path: role
            for path, role in consumers.items()
            if calls_of[path] == 1 and owners.get(id(getattr(role.layer, "weight", None)), 1) == 1
        }

    def refolded(self, plan: PrunePlan, shown: bool = False) -> PrunePlan:
        """The same cut, folded in sequence. The model is left as found.

        Args:
            plan: The cut.
            shown: Whether to show progress.
        """
        gone = {mask.tensor: np.array(mask.removed, int) for mask in plan.masks}
        own = {
            piece.tensor
            for role in self._consumers.values()
            if role.inputs is not None
            for piece in role.inputs.slices
        }
        taken = {
            offset.tensor
            for role in self._consumers.values()
            for some in offsets(role, self._calibration).values()
            for offset in some
        }
        others = replace(
            plan,
            masks=tuple(mask for mask in plan.masks if mask.tensor not in own),
            mixes=tuple(mix for mix in plan.mixes if mix.tensor not in own),
            shifts=tuple(shift for shift in plan.shifts if shift.tensor not in taken),
        )
        mixes: list[TensorMix] = list(others.mixes)
        shifts: list[TensorShift] = list(others.shifts)

        def fit(role: Role) -> Any:
            def hook(layer: nn.Layer, inputs: tuple[Any, ...]) -> None:
                assert role.inputs is not None
                removed = gone.get(role.inputs.slices[0].tensor, np.empty(0, int))
                folded = self._fitted(role, self._vectors(role, inputs[0]), removed)
                fold_into(tensors, folded.mixes, folded.shifts)
                mixes.extend(folded.mixes)
                shifts.extend(folded.shifts)
                fitted.append(role.path)
                display.reach(len(fitted))

            return hook

        fitted: list[str] = []
        total = progress(len(self._consumers), "fold in sequence", shown, unit="layer")
        with preserved(self._model), total as display:
            tensors = tensors_by_path(self._model)
            fold_into(tensors, others.mixes, others.shifts)
            zero(self._model, others.masks)
            self._forward({path: fit(role) for path, role in self._consumers.items()}, self._consumers)
        return replace(plan, mixes=tuple(mixes), shifts=tuple(shifts))

    def _fitted(self, role: Role, now: np.ndarray, removed: np.ndarray) -> Folded:
        """From what a layer reads now to what it read in the whole network, without the channels that go."""
        assert role.inputs is not None
        repeat = self._calibration.readings[role.path].repeat
        # Every place counts by the square root here, so that squares count by what it counts.
        _, _, counts = self._chosen[role.path]
        roots = np.sqrt(counts / counts.mean())
        wanted = self._read[role.path].astype("float64")
        given = now.astype("float64")
        taking = offsets(role, self._calibration)
        wanted_mean, given_mean = wanted @ counts / counts.sum(), given @ counts / counts.sum()
        if taking:
            wanted, given = wanted - wanted_mean[:, None], given - given_mean[:, None]
        entries = role.inputs.size // repeat
        wanted, given = (wanted * roots).reshape(entries, -1), (given * roots).reshape(entries, -1)
        told = repeat * counts.sum() ** 2 / np.square(counts).sum()
        lost = np.unique(removed // repeat)
        mixes: list[TensorMix] = []
        missing = np.zeros((entries, repeat))
        for block in blocks_of(entries, role.conv_groups):
            kept = np.setdiff1d(block, lost)
            matrix = _regression(wanted[block], given[kept], np.searchsorted(block, kept), told)
            missing[block] = (
                wanted_mean.reshape(entries, -1)[block] - matrix @ given_mean.reshape(entries, -1)[kept]
            )
            # As what is added to the weights; those that read what goes become zero.
            change = np.zeros((len(block), len(block)))
            change[np.searchsorted(block, kept)] = matrix.T
            change -= np.eye(len(block))
            mixes += [mix_of(role, piece, block, block, change, repeat) for piece in role.inputs.slices]
        fold = Fold(Reading(wanted.shape[1], wanted_mean, np.ones(entries), repeat), taking)
        return Folded(mixes, fold.shifts(role, missing.reshape(-1)))

    def _forward(self, hooks: Mapping[str, Any], consumers: Mapping[str, Role]) -> None:
        with preserved(self._model), eagerly(self._model, [View(self._call)]) as (view,), paddle.no_grad():
            self._model.eval()
            for path, hook in hooks.items():
                consumers[path].layer.register_forward_pre_hook(hook)
            self._model(*view.arguments)

    def _vectors(self, role: Role, tensor: paddle.Tensor) -> np.ndarray:
        """What a layer reads, at places that are the same in every forward."""
        assert role.inputs is not None
        values: np.ndarray = np.moveaxis(tensor.astype("float32").numpy(), role.input_axis, 0)
        values = values.reshape(role.inputs.size, -1)
        if role.path not in self._chosen or self._chosen[role.path][0] != values.shape[1]:
            self._chosen[role.path] = (values.shape[1], *self._drawn(role.path, values.shape[1]))
        _, places, _ = self._chosen[role.path]
        return values if len(places) == values.shape[1] else values[:, places]

    def _drawn(self, path: str, places: int) -> tuple[np.ndarray, np.ndarray]:
        """Which places are looked at, and what each of them counts: what counts more is drawn more often."""
        known = self._calibration.weights.get(path, ())
        some = [known[number] for number in self._taken if number < len(known)]
        counts = np.concatenate(some).astype("float64")[:places] if some else np.empty(0)
        if len(counts) < places:  # it ran several times, or nothing is known
            counts = np.ones(places)
        if places <= self._places:
            return np.arange(places), counts
        draws = np.random.default_rng(places).choice(places, self._places, p=counts / counts.sum())
        chosen, often = np.unique(draws, return_counts=True)
        return chosen, often.astype("float64")


def _regression(wanted: np.ndarray, given: np.ndarray, kept: np.ndarray, told: float) -> np.ndarray:
    """The least-squares matrix from what is given to what is wanted; a ridge draws it to leaving what is kept as it is.

    Args:
        wanted: An entry a row, a place a column.
        given: The same of the entries that stay.
        kept: Which of those wanted are given.
        told: How many places that count alike tell as much.
    """
    if not len(given):
        return np.zeros((len(wanted), 0))
    count = given.shape[1]
    moments = given @ given.T / count
    ridge = ridge_for(Reading(told, np.zeros(len(given)), moments), moments)
    start = np.zeros((len(wanted), len(kept)))
    start[kept, np.arange(len(kept))] = ridge
    inner = moments + ridge * np.eye(len(kept))
    return np.linalg.solve(inner, (wanted @ given.T / count + start).T).T


def _joined(calls: Sequence[Call]) -> tuple[Call, list[int]]:
    """As many samples of the first call's shape as fit into one batch, and which pieces of the calls (see `pieces`) they are."""
    shapes = [
        [list(leaf.shape) for leaf in leaves(call) if isinstance(leaf, paddle.Tensor)] for call in calls
    ]
    numbers, count = [], 0
    for call in calls:
        some = len(list(pieces(call, AT_ONCE)))
        numbers.append(list(range(count, count + some)))
        count += some
    alike = [
        number for number, shape in enumerate(shapes) if [s[1:] for s in shape] == [s[1:] for s in shapes[0]]
    ]
    if any(s[:1] != shapes[0][0][:1] for s in shapes[0]) or len(alike) == 1:
        return tuple(calls[0]), numbers[0]  # inputs without a common axis of samples
    columns = [[leaf for leaf in leaves(calls[n]) if isinstance(leaf, paddle.Tensor)] for n in alike]
    most = max(1, int(_NUMBERS // max(1, sum(np.prod(shape[1:]) for shape in shapes[0]))))
    joined = iter([paddle.concat(list(column))[:most] for column in zip(*columns)])
    call = map_leaves(lambda leaf: next(joined) if isinstance(leaf, paddle.Tensor) else leaf, tuple(calls[0]))
    return tuple(call), [piece for n in alike for piece in numbers[n]]
