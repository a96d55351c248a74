"""Folding: what goes is mostly a linear function of what stays, so the weights that read what stays take over its work.

With mean mu and covariance C of what a layer reads, R removed and K kept: ``x_R`` is about ``B x_K + (mu_R - B mu_K)`` with
``B = C_RK (C_KK + ridge)^-1``. So ``W_K += B^T W_R``, and the bias (or the running mean of the batch norm behind) takes the
rest. Where nothing can take over a mean, the second moments stand for the covariance, and there is no rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from paddle import nn
from paddle.nn.layer.rnn import RNNBase, RNNCellBase
from paddle.vision.ops import DeformConv2D

from dysens.compress._calibrate import Calibration, Reading
from dysens.groups import Role, Slice, filters_of
from dysens.model import tensors_by_path
from dysens.pruning import Folded, TensorMix, TensorShift

RIDGE = 1e-3
_MOST_RIDGE = 0.1
_TRANSPOSED = (nn.Conv1DTranspose, nn.Conv2DTranspose, nn.Conv3DTranspose)


class Offset(NamedTuple):
    """A vector that can take over means.

    Attributes:
        tensor: Its path.
        sign: 1 if it is added, -1 if it is taken off.
    """

    tensor: str
    sign: float


def folding(roles: Mapping[str, Role], calibration: Calibration) -> dict[str, Role]:
    """The roles, so that every plan made with them folds what goes into what stays."""
    return {
        path: replace(role, fold=Fold(calibration.readings[path], offsets(role, calibration)))
        if path in calibration.readings
        else role
        for path, role in roles.items()
    }


def offsets(role: Role, calibration: Calibration) -> dict[str, tuple[Offset, ...]]:
    """For every reading weight of a layer, what can take over the mean of what it makes; empty where some weight has nothing."""
    assert role.inputs is not None
    found: dict[str, tuple[Offset, ...]] = {}
    for piece in role.inputs.slices:
        if isinstance(role.layer, (RNNBase, RNNCellBase)):
            bias = piece.tensor.rpartition(".")[2].replace("weight_ih", "bias_ih")
            there = getattr(role.layer, bias, None) is not None
            found[piece.tensor] = (Offset(_beside(piece, bias), 1.0),) if there else ()
        elif isinstance(role.layer, DeformConv2D):
            found[piece.tensor] = ()  # what it samples has another mean than what it reads
        elif role.layer.bias is not None:
            found[piece.tensor] = (Offset(_beside(piece, "bias"), 1.0),)
        else:
            norms = calibration.norms.get(role.path, ())
            found[piece.tensor] = tuple(Offset(f"{norm}._mean", -1.0) for norm in norms)
    return found if all(found.values()) else {}


def _beside(piece: Slice, name: str) -> str:
    layer, dot, _ = piece.tensor.rpartition(".")
    return f"{layer}{dot}{name}"


def ridge_for(reading: Reading, moments: np.ndarray) -> float:
    """What is added to every variance: the more, the fewer vectors were seen for every entry."""
    size = len(moments)
    relative = min(_MOST_RIDGE, RIDGE * max(1.0, 10.0 * size / max(reading.count, 1)))
    variances = moments if moments.ndim == 1 else np.diag(moments)
    return float(relative * variances.mean() + 1e-12)


@dataclass(frozen=True, eq=False)
class Fold:
    """Makes up for inputs that a layer loses; see `dysens.pruning.Folded`.

    Args:
        reading: What the layer reads.
        offsets: What can take over means, by weight; empty for none.
    """

    reading: Reading
    offsets: Mapping[str, tuple[Offset, ...]]

    def __call__(self, role: Role, removed: np.ndarray) -> Folded:
        """What the weights and the bias of the layer take over when these channels go."""
        assert role.inputs is not None
        repeat = self.reading.repeat
        gone = np.unique(removed // repeat)
        moments = self.reading.moments(bool(self.offsets))
        ridge = ridge_for(self.reading, moments)
        mixes: list[TensorMix] = []
        missing = np.zeros(role.inputs.size)  # the part of the mean that no channel takes over
        means = self.reading.mean.reshape(-1, repeat)
        for block in blocks_of(len(means), role.conv_groups):
            lost, kept = np.intersect1d(block, gone), np.setdiff1d(block, gone)
            if not len(lost):
                continue
            rest = means[lost]
            if len(kept) and moments.ndim == 2:
                inner = moments[np.ix_(kept, kept)] + ridge * np.eye(len(kept))
                matrix = np.linalg.solve(inner, moments[np.ix_(kept, lost)])
                rest = rest - matrix.T @ means[kept]
                mixes += [mix_of(role, piece, kept, lost, matrix, repeat) for piece in role.inputs.slices]
            missing.reshape(-1, repeat)[lost] = rest
        return Folded(mixes, self.shifts(role, missing))

    def shifts(self, role: Role, missing: np.ndarray) -> Sequence[TensorShift]:
        """What is to be added where, so that the layer makes up for means that nobody reads any more."""
        assert role.inputs is not None
        found = []
        tensors = tensors_by_path(role.layer) if self.offsets else {}
        for piece in role.inputs.slices if self.offsets else ():
            weight = filters_of(tensors[piece.tensor.rpartition(".")[2]], piece).astype("float64")
            through = weight.reshape(*weight.shape[:2], -1).sum(
                axis=2
            )  # by channel read and channel made in its block
            if isinstance(role.layer, _TRANSPOSED):
                through = through / np.prod(role.layer._stride)  # an output meets one tap in so many
            blocks = blocks_of(len(missing), role.conv_groups)
            made = np.concatenate([missing[block] @ through[block] for block in blocks])
            found += [
                TensorShift(o.tensor, tuple((o.sign * made).tolist())) for o in self.offsets[piece.tensor]
            ]
        return found


def blocks_of(size: int, number: int) -> Iterator[np.ndarray]:
    """What a grouped convolution reads, group by group."""
    yield from np.arange(size).reshape(number, -1)


def mix_of(
    role: Role, piece: Slice, kept: np.ndarray, lost: np.ndarray, matrix: np.ndarray, repeat: int
) -> TensorMix:
    """The mix of one weight, for entries of one block of what its layer reads."""
    if piece.blocks == 1:
        return TensorMix(piece.tensor, piece.axis, kept, lost, matrix, None, repeat)
    # The second axis counts within a block of the first.
    assert role.inputs is not None
    width = role.inputs.size // piece.blocks
    rows = role.layer.weight.shape[0] // piece.blocks
    block = int(kept[0]) // width
    return TensorMix(
        piece.tensor,
        piece.axis,
        kept % width,
        lost % width,
        matrix,
        (block * rows, (block + 1) * rows),
        repeat,
    )
