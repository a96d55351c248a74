"""Parameters that no known layer owns: scales, offsets, weights of functions. Each axis that runs along channels is joined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import paddle

from dysens.groups.origins import Bits, Reach
from dysens.groups.probe import Movement, Probe
from dysens.groups.roles import Port, Role, Slice
from dysens.groups.tracer import meets
from dysens.groups.wiring import Wiring


def own_parameters(tensors: Mapping[str, paddle.Tensor], roles: Iterable[Role]) -> dict[str, paddle.Tensor]:
    """Trainable parameters that none of these layers owns, once each."""
    known = {id(t) for role in roles for t in role.layer.parameters()}
    found: dict[int, str] = {}
    for path, tensor in tensors.items():
        if id(tensor) not in known and not tensor.stop_gradient and tensor.is_floating_point():
            found.setdefault(id(tensor), path)
    return {path: tensors[path] for path in found.values()}


def follow_own_parameters(
    probe: Probe, wiring: Wiring, own: Mapping[str, paddle.Tensor], movable: Sequence[Reach]
) -> None:
    """Join what the parameters do to channels.

    Args:
        probe: A started probe.
        wiring: Gets the joins.
        own: The parameters by path.
        movable: Where channels arrive that may be cut.
    """
    wide = {name: tensor for name, tensor in own.items() if tensor.size > 1}
    if not wide or not _concerns(_moved_by(probe, wide.values()), wide.values(), movable):
        return
    for name, tensor in wide.items():
        movement = _moved_by(probe, [tensor])
        # What reaches the output stays as it is, and so does the parameter.
        if _concerns(movement, [tensor], movable) and not movement.outputs:
            for axis in [a for a, side in enumerate(tensor.shape) if side > 1]:
                _follow_axis(probe, wiring, name, tensor, axis, movement.positions)


def _moved_by(probe: Probe, tensors: Iterable[paddle.Tensor]) -> Movement:
    others = [(t, probe.other_values(t, 0, np.ones(t.shape[0], bool))) for t in tensors]
    return probe.perturb({}, own=others)


def _concerns(movement: Movement, tensors: Iterable[paddle.Tensor], movable: Sequence[Reach]) -> bool:
    """Whether parameters act on channels that may be cut, or make channels themselves (a 4-D weight)."""
    makes_channels = any(tensor.ndim == 4 for tensor in tensors) and bool(movement.positions)
    return makes_channels or any(meets(reach, movement.positions) for reach in movable)


def _follow_axis(
    probe: Probe, wiring: Wiring, name: str, tensor: paddle.Tensor, axis: int, moved: Reach
) -> None:
    size = int(tensor.shape[axis])

    def move(chosen: np.ndarray) -> Movement:
        return probe.perturb({}, own=[(tensor, probe.other_values(tensor, axis, chosen))])

    port = Port(name, "own", size, (Slice(name, axis),))
    reach = {path: positions for path, positions in moved.items() if wiring.roles[path].entry is not None}
    for origin in Bits(size, move).origins(reach) or ():
        for path, index in origin.items():
            entry = wiring.roles[path].entry
            at = np.flatnonzero(index >= 0)
            if len(at) and entry is not None:
                wiring.add(port)
                wiring.join(wiring.nodes(port, index[at]), wiring.nodes(entry, at))
