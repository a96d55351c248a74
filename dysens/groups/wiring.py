"""From probes to wiring: which exit channel of which layer arrives at which entry channel of which other.

Reach is told apart source by source; then two probes per bit of the channel's index, shared by all sources, say for every
entry position which channel it comes from: where only the probe with the bit set moves a position, its channel has that bit.
Positions at which both move need a closer look at each of their sources. If even one source alone moves a position from two
channels, something on the way mixes channels, and that source cannot be cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import paddle
from paddle import nn

from dysens.groups.probe import Movement, Probe, use_plain_values
from dysens.groups.roles import Port, Role, Slice, roles_of, tensors_by_path
from dysens.inputs import View

Reach = dict[str, np.ndarray]  # layer path: which of its entry channels are reached
Origin = dict[
    str, np.ndarray
]  # layer path: the source's channel that arrives at each entry channel, -1 for none


@dataclass
class Wiring:
    """All channels of a model as nodes, joined where one is the other; and what must stay.

    Attributes:
        roles: The layers with weights, by path.
        called: The paths of those that run.
        ports: Every port, in order; node ``first[port] + i`` is channel i of a port.
        joins: Pairs of nodes that are one and the same channel.
        fixed: Why a node cannot be removed.
        reasons: Why a whole source cannot be cut, by layer path.
        probes: One per view, for trying a cut.
    """

    roles: Mapping[str, Role]
    called: set[str] = field(default_factory=set)
    ports: list[Port] = field(default_factory=list)
    first: dict[Port, int] = field(default_factory=dict)
    joins: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    fixed: dict[int, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    probes: list[Probe] = field(default_factory=list)

    def add(self, port: Port) -> None:
        """Number the channels of a port."""
        if port not in self.first:
            self.first[port] = sum(p.size for p in self.ports[-1:]) + (
                self.first[self.ports[-1]] if self.ports else 0
            )
            self.ports.append(port)

    def nodes(self, port: Port, channels: np.ndarray | None = None) -> np.ndarray:
        """The nodes of some (or all) channels of a port."""
        return self.first[port] + (np.arange(port.size) if channels is None else channels)

    def join(self, one: np.ndarray, other: np.ndarray) -> None:
        """Say that nodes are pairwise the same channel."""
        self.joins.append((one, other))

    def fix(self, nodes: Iterable[int], reason: str) -> None:
        """Say that nodes must stay."""
        for node in nodes:
            self.fixed.setdefault(int(node), reason)

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


def wire(model: nn.Layer, views: Iterable[View]) -> Wiring:
    """Probe every view of the model and put together what they show. Runs inside `dysens.live.preserved`."""
    roles = roles_of(model)
    tensors = tensors_by_path(model)
    wiring = Wiring(roles, probes=[Probe(model, view, roles) for view in views])
    wiring.called.update(*(probe.calls for probe in wiring.probes))
    # A layer that never runs may still lend its weights to a function: those are then nobody's.
    running = [role for path, role in roles.items() if path in wiring.called]
    own = _own(tensors, running)
    use_plain_values(own.values())
    for probe in wiring.probes:
        probe.start()
        _Tracer(probe, wiring, own).trace()
    _join_tied(wiring, tensors)
    return wiring


class _Tracer:
    """Follows the channels of one view."""

    def __init__(self, probe: Probe, wiring: Wiring, own: Mapping[str, paddle.Tensor]) -> None:
        self._probe = probe
        self._wiring = wiring
        self._own = own
        self._roles = {path: role for path, role in wiring.roles.items() if probe.calls[path]}
        self._reach: dict[str, Reach] = {}

    def trace(self) -> None:
        wiring = self._wiring
        for role in self._roles.values():
            for port in (role.entry, role.exit):
                if port is not None:
                    wiring.add(port)
        self._fix_what_cannot_move()
        filters = [role for role in self._roles.values() if _has_filters(role)]
        self._follow(filters)
        self._follow(self._partners([role for role in filters if role.path not in wiring.reasons]))
        for path in self._reach:
            if path in wiring.reasons:
                self._fix_reached(path)
        self._follow_own_parameters()

    def _follow(self, sources: list[Role]) -> None:
        """Find where the channels of these mixers arrive, and join them with what they arrive at."""
        for role in sources:
            self._find_reach(role)
        for path, origin in self._origins([role.path for role in sources]).items():
            self._join(self._roles[path], origin)

    def _fix_what_cannot_move(self) -> None:
        for movement, reason in (
            (self._probe.perturb_inputs(), "it is joined with the network's own input at layer '{}'"),
            (self._probe.perturb_fixed(), "it is joined with the output of a recurrent layer at layer '{}'"),
        ):
            for path, moved in movement.positions.items():
                entry = self._roles[path].entry
                if entry is not None:
                    self._wiring.fix(self._wiring.nodes(entry, np.flatnonzero(moved)), reason.format(path))

    def _find_reach(self, role: Role) -> None:
        assert role.exit is not None
        movement = self._probe.perturb({role.path: np.ones(role.exit.size, bool)})
        self._reach[role.path] = {
            p: m for p, m in movement.positions.items() if self._roles[p].entry is not None
        }
        reason = self._why_stuck(role.path, movement)
        if reason is not None:
            self._wiring.reasons.setdefault(role.path, reason)

    def _why_stuck(self, path: str, movement: Movement) -> str | None:
        if movement.outputs:
            where = "output in training" if self._probe.view.training else "output"
            return f"the channels of layer '{path}' reach the model's {where}"
        if movement.arguments:
            return f"it feeds a further argument of layer '{min(movement.arguments)}', which is not along channels"
        if movement.flow:
            return f"the {self._probe.view.name} takes another way when the values of layer '{path}' change"
        return None

    def _partners(self, filters: list[Role]) -> list[Role]:
        """Mixers without 4-D weights whose channels meet those of one that has them (the linear layers of an SE block)."""
        others = [
            r
            for r in self._roles.values()
            if r.kind == "mixer" and r.exit is not None and not _has_filters(r)
        ]
        if not others:
            return []
        together = self._probe.perturb(
            {r.path: np.ones(r.exit.size, bool) for r in others if r.exit is not None}
        )
        if not any(self._meets(self._reach[role.path], together.positions) for role in filters):
            return []
        partners = []
        for role in others:
            assert role.exit is not None
            moved = self._probe.perturb({role.path: np.ones(role.exit.size, bool)}).positions
            if any(self._meets(self._reach[f.path], moved) for f in filters):
                partners.append(role)
        return partners

    def _meets(self, reach: Reach, moved: Mapping[str, np.ndarray]) -> list[str]:
        return [
            path for path, positions in reach.items() if path in moved and (positions & moved[path]).any()
        ]

    # Which channel it is

    def _origins(self, sources: list[str]) -> dict[str, Origin]:
        """For each of the sources that may be cut, the channel that arrives at each position that it reaches."""
        movable = [path for path in sources if path not in self._wiring.reasons and self._reach[path]]
        shared = self._decode(movable)
        unclear = [path for path in movable if self._is_unclear(path, shared)]
        origins = {path: self._masked(path, shared) for path in movable if path not in unclear}
        for path in unclear:
            alone = self._decode([path])
            mixed = self._first_unclear(path, alone)
            if mixed is None:
                origins[path] = self._masked(path, alone)
            else:
                self._wiring.reasons[path] = (
                    f"its channels are mixed with each other before they reach layer '{mixed}'"
                )
        return origins

    def _decode(self, sources: list[str]) -> Origin:
        """The common channel index of the sources at every position; -2 where no single index explains what moves."""
        sizes = {path: _exit_size(self._roles[path]) for path in sources}
        bits = max(((size - 1).bit_length() for size in sizes.values()), default=0)
        index: Origin = {}
        unclear: dict[str, np.ndarray] = {}
        for bit in range(max(bits, 1)):
            with_bit = {path: (np.arange(size) >> bit & 1).astype(bool) for path, size in sizes.items()}
            ones = self._probe.perturb(
                {path: mask for path, mask in with_bit.items() if mask.any()}
            ).positions
            zeros = self._probe.perturb({path: ~mask for path, mask in with_bit.items()}).positions
            for path in {*ones, *zeros}:
                entry = self._roles[path].entry
                if entry is None:
                    continue
                nothing = np.zeros(entry.size, bool)
                one, zero = ones.get(path, nothing), zeros.get(path, nothing)
                index[path] = index.get(path, np.zeros(entry.size, int)) | (one.astype(int) << bit)
                unclear[path] = unclear.get(path, nothing) | (one == zero)
        return {path: np.where(unclear[path], -2, index[path]) for path in index}

    def _is_unclear(self, path: str, origin: Origin) -> bool:
        return self._first_unclear(path, origin) is not None

    def _first_unclear(self, path: str, origin: Origin) -> str | None:
        size = _exit_size(self._roles[path])
        for layer, reached in self._reach[path].items():
            arriving = origin[layer][reached] if layer in origin else np.array([-2])
            if ((arriving < 0) | (arriving >= size)).any():
                return layer
        return None

    def _masked(self, path: str, origin: Origin) -> Origin:
        return {layer: np.where(reached, origin[layer], -1) for layer, reached in self._reach[path].items()}

    def _join(self, source: Role, origin: Origin) -> None:
        assert source.exit is not None
        for path, channels in origin.items():
            entry = self._roles[path].entry
            assert entry is not None
            at = np.flatnonzero(channels >= 0)
            self._wiring.join(self._wiring.nodes(source.exit, channels[at]), self._wiring.nodes(entry, at))

    def _fix_reached(self, path: str) -> None:
        """Wherever a source that cannot be cut arrives, nobody else's channel can go either."""
        role, reason = self._roles[path], self._wiring.reasons[path]
        assert role.exit is not None
        self._wiring.fix(self._wiring.nodes(role.exit), reason)
        for layer, reached in self._reach[path].items():
            entry = self._roles[layer].entry
            assert entry is not None
            met = f"its channels meet those of layer '{path}', which cannot be cut: {reason}"
            self._wiring.fix(self._wiring.nodes(entry, np.flatnonzero(reached)), met)

    # Parameters that no layer with a role owns

    def _follow_own_parameters(self) -> None:
        """Scales, offsets and functional weights: join each of their axes that runs along channels."""
        wide = {name: tensor for name, tensor in self._own.items() if tensor.size > 1}
        if not wide or not self._concerns_channels(*wide.values()):
            return
        for name, tensor in wide.items():
            if self._concerns_channels(tensor):
                for axis in [a for a, side in enumerate(tensor.shape) if side > 1]:
                    self._follow_axis(name, tensor, axis)

    def _concerns_channels(self, *tensors: paddle.Tensor) -> bool:
        """Whether these parameters act on channels that may be cut, or make channels themselves (a 4-D weight)."""
        others = [(t, self._probe.other_values(t, 0, np.ones(t.shape[0], bool))) for t in tensors]
        moved = self._probe.perturb({}, own=others).positions
        movable = (reach for path, reach in self._reach.items() if path not in self._wiring.reasons)
        filters = any(tensor.ndim == 4 for tensor in tensors)
        return (filters and bool(moved)) or any(self._meets(reach, moved) for reach in movable)

    def _follow_axis(self, name: str, tensor: paddle.Tensor, axis: int) -> None:
        size = int(tensor.shape[axis])
        index: dict[str, np.ndarray] = {}
        clear: dict[str, np.ndarray] = {}
        for bit in range((size - 1).bit_length()):
            mask = (np.arange(size) >> bit & 1).astype(bool)
            ones, zeros = (
                self._probe.perturb({}, own=[(tensor, self._probe.other_values(tensor, axis, m))])
                for m in (mask, ~mask)
            )
            if ones.outputs or zeros.outputs:
                return  # what reaches the output stays as it is, and so does this
            for path in {*ones.positions, *zeros.positions}:
                entry = self._roles[path].entry
                if entry is None:
                    continue
                nothing = np.zeros(entry.size, bool)
                one, zero = ones.positions.get(path, nothing), zeros.positions.get(path, nothing)
                index[path] = index.get(path, np.zeros(entry.size, int)) | (one.astype(int) << bit)
                clear[path] = clear.get(path, ~nothing) & (one != zero)
        port = Port(name, "own", size, (Slice(name, axis),))
        for path, certain in clear.items():
            at = np.flatnonzero(certain & (index[path] < size))
            entry = self._roles[path].entry
            if len(at) and entry is not None:
                self._wiring.add(port)
                self._wiring.join(self._wiring.nodes(port, index[path][at]), self._wiring.nodes(entry, at))


def _exit_size(role: Role) -> int:
    assert role.exit is not None
    return role.exit.size


def _has_filters(role: Role) -> bool:
    """Whether the layer makes channels with a 4-D weight: what pruning is about."""
    return role.kind == "mixer" and role.exit is not None and role.layer.weight.ndim == 4


def _own(tensors: Mapping[str, paddle.Tensor], roles: Iterable[Role]) -> dict[str, paddle.Tensor]:
    """Trainable parameters that none of these layers owns, once each."""
    known = {id(t) for role in roles for t in role.layer.parameters()}
    found: dict[int, str] = {}
    for path, tensor in tensors.items():
        if id(tensor) not in known and not tensor.stop_gradient and tensor.is_floating_point():
            found.setdefault(id(tensor), path)
    return {path: tensors[path] for path in found.values()}


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
