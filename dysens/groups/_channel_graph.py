"""The channel graph of a model: its channels as nodes, joined where one is the other, and what must stay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import paddle
from paddle import nn

from dysens.groups._bits import Bits, Origin, Reach
from dysens.groups._instrument import use_plain_values
from dysens.groups._layers import FILTERS, Port, Role, Slice, roles_of
from dysens.groups._probe import Movement, Probe
from dysens.groups._reach import apart
from dysens.groups._trace import Tracer, meets
from dysens.model import View, tensors_by_path


@dataclass
class ChannelGraph:
    """All channels of a model as nodes, joined where one is the other; and what must stay.

    Attributes:
        roles: The layers with weights, by path.
        layers: Whose units are wanted, see `Role.makes_units`.
        called: The paths of those that run.
        traced: The paths of those whose channels were followed.
        ports: Every port, in order; node ``first[port] + i`` is channel i of a port.
        joins: Pairs of nodes that are one and the same channel.
        fixed: Why a node cannot be removed.
        doubts: What may keep a node from being removed; a trial has to tell.
        reasons: Why a whole source cannot be cut, by layer path.
        probes: One per view, for trying a cut.
    """

    roles: Mapping[str, Role]
    layers: str = FILTERS
    called: set[str] = field(default_factory=set)
    traced: set[str] = field(default_factory=set)
    ports: list[Port] = field(default_factory=list)
    first: dict[Port, int] = field(default_factory=dict)
    joins: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    fixed: dict[int, str] = field(default_factory=dict)
    doubts: dict[int, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    probes: list[Probe] = field(default_factory=list)

    def add(self, port: Port) -> None:
        """Number the channels of a port."""
        if port not in self.first:
            self.first[port] = sum(p.size for p in self.ports[-1:]) + (
                self.first[self.ports[-1]] if self.ports else 0
            )
            self.ports.append(port)

    def add_all(self, role: Role) -> None:
        """Number the channels of a layer, and join those of a recurrent one with what it reads itself."""
        if role.inputs is not None:
            self.add(role.inputs)
        if role.outputs is None:
            return
        known = role.outputs in self.first
        self.add(role.outputs)
        if known or not role.inside or not role.makes_units(self.layers):
            return
        for port in role.inside:
            self.add(port)
        for port in (role.outputs, *role.inside):
            if port.parts:
                self.join(self.nodes(port), np.concatenate([self.nodes(part) for part in port.parts]))

    def nodes(self, port: Port, channels: np.ndarray | None = None) -> np.ndarray:
        """The nodes of some (or all) channels of a port."""
        return self.first[port] + (np.arange(port.size) if channels is None else channels)

    def join(self, one: np.ndarray, other: np.ndarray) -> None:
        """Join nodes pairwise: they are the same channel."""
        self.joins.append((one, other))

    def fix(self, nodes: Iterable[int], reason: str) -> None:
        """Mark nodes as channels that must stay."""
        for node in nodes:
            self.fixed.setdefault(int(node), reason)

    def doubt(self, nodes: Iterable[int], reason: str) -> None:
        """Say that something which cannot be cut arrives at nodes: added channel by channel, it keeps them; spread over all
        of them, as the map of a spatial attention is, it does not.
        """
        for node in nodes:
            self.doubts.setdefault(int(node), reason)

    def components(self) -> np.ndarray:
        """For every node, the smallest node that is the same channel."""
        label = np.arange(self.first[self.ports[-1]] + self.ports[-1].size if self.ports else 0)
        if not self.joins:
            return label
        one = np.concatenate([a for a, _ in self.joins])
        other = np.concatenate([b for _, b in self.joins])
        while True:
            least = np.minimum(label[one], label[other])
            before = label.copy()
            for nodes in (one, other, before[one], before[other]):
                np.minimum.at(label, nodes, least)
            label = label[label]
            if np.array_equal(label, before):
                return label


def channel_graph(model: nn.Layer, views: Iterable[View], layers: str = FILTERS) -> ChannelGraph:
    """Probe every view of the model and put together what they show. Runs inside `dysens.model.preserved`."""
    roles = roles_of(model)
    tensors = tensors_by_path(model)
    probes = [Probe(model, view, roles) for view in views]
    graph = ChannelGraph(roles, layers)
    graph.called.update(*(probe.calls for probe in probes))
    # A layer that never runs may still lend its weights to a function: those are then nobody's.
    running = [role for path, role in roles.items() if path in graph.called]
    own = own_parameters(tensors, running)
    use_plain_values(own.values())
    first: Tracer | None = None
    for probe in probes:
        tracer = _follow_view(probe, graph, own, first)
        first = first or tracer
        another = probe.real_way()
        if another is not None:
            _follow_view(another, graph, own)
    _join_tied(graph, tensors)
    return graph


def _follow_view(
    probe: Probe, graph: ChannelGraph, own: Mapping[str, paddle.Tensor], first: Tracer | None = None
) -> Tracer:
    probe.start()
    # What nobody asked for matters only where it runs further layers: auxiliary heads.
    further = set(probe.calls) - graph.traced if probe.view.implied else None
    graph.probes.append(probe)
    graph.called.update(probe.calls)
    graph.traced.update(probe.calls)
    tracer = Tracer(probe, graph, first)
    follow_own_parameters(probe, graph, own, tracer.trace(further))
    return tracer


def _join_tied(graph: ChannelGraph, tensors: Mapping[str, paddle.Tensor]) -> None:
    """Where two ports share a tensor along one axis, cutting one cuts the other: their channels are the same."""
    users: dict[tuple[int, int], list[tuple[Port, Slice]]] = {}
    for port in graph.ports:
        for piece in port.slices:
            users.setdefault((id(tensors[piece.tensor]), piece.axis), []).append((port, piece))
    for uses in users.values():
        for (port, piece), (other, match) in zip(uses, uses[1:]):
            if (piece.blocks, port.size) == (match.blocks, other.size):
                graph.join(graph.nodes(port), graph.nodes(other))
            else:
                reason = f"layers '{port.layer}' and '{other.layer}' share a weight but use it differently"
                graph.fix(graph.nodes(port), reason)
                graph.fix(graph.nodes(other), reason)


def own_parameters(tensors: Mapping[str, paddle.Tensor], roles: Iterable[Role]) -> dict[str, paddle.Tensor]:
    """Trainable parameters that none of these layers owns, once each."""
    known = {id(t) for role in roles for t in role.layer.parameters()}
    found: dict[int, str] = {}
    for path, tensor in tensors.items():
        if id(tensor) not in known and not tensor.stop_gradient and tensor.is_floating_point():
            found.setdefault(id(tensor), path)
    return {path: tensors[path] for path in found.values()}


def follow_own_parameters(
    probe: Probe, graph: ChannelGraph, own: Mapping[str, paddle.Tensor], movable: Sequence[Reach]
) -> None:
    """Join what the parameters do to channels.

    Args:
        probe: A started probe.
        graph: Gets the joins.
        own: The parameters by path.
        movable: Where channels arrive that may be cut.
    """
    wide = {name: tensor for name, tensor in own.items() if tensor.size > 1}
    if not wide or not _concerns(_moved_by(probe, wide.values()), wide.values(), movable):
        return
    axes: dict[str, _Axis] = {}
    for name, tensor in wide.items():
        movement = _moved_by(probe, [tensor])
        # What reaches the output stays as it is, and so does the parameter.
        if _concerns(movement, [tensor], movable) and not movement.outputs:
            reach = {
                path: m for path, m in movement.positions.items() if graph.roles[path].inputs is not None
            }
            for axis in [a for a, side in enumerate(tensor.shape) if side > 1]:
                axes[f"{axis} {name}"] = _Axis(name, tensor, axis, reach)
    for some in apart({key: axis.reach for key, axis in axes.items()}):
        _follow_axes(probe, graph, [axes[key] for key in some])


@dataclass(frozen=True, eq=False)
class _Axis:
    """An axis of a parameter that no layer owns, and where the parameter arrives."""

    name: str
    tensor: paddle.Tensor
    axis: int
    reach: Reach

    @property
    def size(self) -> int:
        """How many entries lie along it."""
        return int(self.tensor.shape[self.axis])


def _moved_by(probe: Probe, tensors: Iterable[paddle.Tensor]) -> Movement:
    others = [(t, probe.other_values(t, 0, np.ones(t.shape[0], bool))) for t in tensors]
    return probe.perturb({}, own=others)


def _concerns(movement: Movement, tensors: Iterable[paddle.Tensor], movable: Sequence[Reach]) -> bool:
    """Whether parameters act on channels that may be cut, or make channels themselves (a 4-D weight)."""
    makes_channels = any(tensor.ndim == 4 for tensor in tensors) and bool(movement.positions)
    return makes_channels or any(meets(reach, movement.positions) for reach in movable)


def _follow_axes(probe: Probe, graph: ChannelGraph, axes: Sequence[_Axis]) -> None:
    """Join the entries along axes that reach nothing in common with what they arrive at: all are asked at once."""

    def move(chosen: np.ndarray) -> Movement:
        own = [
            (each.tensor, probe.other_values(each.tensor, each.axis, mask))
            for each in axes
            if (mask := chosen[: each.size]).any()
        ]
        return probe.perturb({}, own=own)

    bits = Bits(max(each.size for each in axes), move)
    for each in axes:
        if bits.unclear(each.reach, each.size) is None:
            _join_axis(graph, each, [bits.single(each.reach)])
        elif len(axes) > 1:
            _follow_axes(probe, graph, [each])
        else:
            _join_axis(graph, each, bits.origins(each.reach) or [])


def _join_axis(graph: ChannelGraph, axis: _Axis, origins: Iterable[Origin]) -> None:
    port = Port(axis.name, "own", axis.size, (Slice(axis.name, axis.axis),))
    for origin in origins:
        for path, index in origin.items():
            entry = graph.roles[path].inputs
            at = np.flatnonzero(index >= 0)
            if len(at) and entry is not None:
                graph.add(port)
                graph.join(graph.nodes(port, index[at]), graph.nodes(entry, at))
