"""Probe every view of a model and put together what they show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import paddle
from paddle import nn

from dysens.groups.own_parameters import follow_own_parameters, own_parameters
from dysens.groups.probe import Probe
from dysens.groups.roles import Port, Slice, roles_of, tensors_by_path
from dysens.groups.stand_ins import use_plain_values
from dysens.groups.tracer import Tracer
from dysens.groups.wiring import Wiring
from dysens.inputs import View


def wire(model: nn.Layer, views: Iterable[View]) -> Wiring:
    """Probe every view of the model and put together what they show. Runs inside `dysens.live.preserved`."""
    roles = roles_of(model)
    tensors = tensors_by_path(model)
    probes = [Probe(model, view, roles) for view in views]
    wiring = Wiring(roles)
    wiring.called.update(*(probe.calls for probe in probes))
    # A layer that never runs may still lend its weights to a function: those are then nobody's.
    running = [role for path, role in roles.items() if path in wiring.called]
    own = own_parameters(tensors, running)
    use_plain_values(own.values())
    for probe in probes:
        _follow(probe, wiring, own)
        another = probe.real_way()
        if another is not None:
            _follow(another, wiring, own)
    _join_tied(wiring, tensors)
    return wiring


def _follow(probe: Probe, wiring: Wiring, own: Mapping[str, paddle.Tensor]) -> None:
    probe.start()
    wiring.probes.append(probe)
    wiring.called.update(probe.calls)
    movable = Tracer(probe, wiring).trace()
    follow_own_parameters(probe, wiring, own, movable)


def _join_tied(wiring: Wiring, tensors: Mapping[str, paddle.Tensor]) -> None:
    """Where two ports share a tensor along one axis, cutting one cuts the other: their channels are the same."""
    users: dict[tuple[int, int], list[tuple[Port, Slice]]] = {}
    for port in wiring.ports:
        for piece in port.slices:
            users.setdefault((id(tensors[piece.tensor]), piece.axis), []).append((port, piece))
    for uses in users.values():
        for (port, piece), (other, match) in zip(uses, uses[1:]):
            if (piece.blocks, port.size) == (match.blocks, other.size):
                wiring.join(wiring.nodes(port), wiring.nodes(other))
            else:
                reason = f"layers '{port.layer}' and '{other.layer}' share a weight but use it differently"
                wiring.fix(wiring.nodes(port), reason)
                wiring.fix(wiring.nodes(other), reason)
