"""From graph to candidate groups: connected layers, their units, and why the rest must stay.

After a split, around a channel shuffle or in a grouped convolution, a network only stays right if removal is balanced. The
functions in the second half take candidate groups and give them back with other units; whether that works the proof says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import paddle

from dysens.groups._channel_graph import ChannelGraph
from dysens.groups._group import ChannelGroup
from dysens.groups._layers import Port, Role, Slice

FREE = "any channels"

_REPARAMETERISED = "layer '{}' computes its weight anew in every forward, from its parameter '{}'{}"
_HINTS = {
    "weight_v": " (weight norm); call paddle.nn.utils.remove_weight_norm on it first, and it can be cut",
    "weight_orig": " (spectral norm); give it a plain weight of the same values first, and it can be cut",
}


@dataclass(frozen=True)
class Candidates:
    """What the graph suggests; every group still has to prove itself.

    Attributes:
        groups: Candidate groups with free choice of units, in parameter order.
        reasons: Why a 4-D weight is in none, by its path.
        doubts: Why a group may not work, by the path of its first weight.
    """

    groups: list[ChannelGroup]
    reasons: dict[str, str]
    doubts: dict[str, str]


def candidates(graph: ChannelGraph, tensors: Mapping[str, paddle.Tensor]) -> Candidates:
    """Gather connected layers and split their channels into units."""
    label = graph.components()
    _fix_recurrent(graph, label)
    fixed = _by_component(graph.fixed, label)
    doubted = _by_component(graph.doubts, label)
    filters = {port: pieces for port in graph.ports if (pieces := _filters(graph, port, tensors))}
    # A scale of shape [1, C, 1, 1] behind a concat must not tie its sources together: it makes no channels.
    makers = [port for port in graph.ports if port.side == "out" or port in filters]
    order = {path: position for position, path in enumerate(tensors)}
    groups: list[ChannelGroup] = []
    named: set[str] = set()
    reasons: dict[str, str] = {}
    doubts: dict[str, str] = {}
    for cluster in _clusters(makers, {port: label[graph.nodes(port)] for port in makers}):
        scored = [(port, piece) for port in cluster for piece in filters.get(port, ())]
        # A layer's weight names the group rather than a bare parameter along its channels.
        scored.sort(key=lambda pair: (pair[0].side == "own", order[pair[1].tensor]))
        if not scored:
            continue
        own = np.unique(np.concatenate([label[graph.nodes(port)] for port, _ in scored]))
        free = np.array([component for component in own if int(component) not in fixed], dtype=int)
        group = _group(graph, label, free, scored, tensors, named) if len(free) else None
        reason = _why_not(group, named) if group is not None else None
        if group is not None and reason is None:
            group, reason = _of_one_width(group)
        if group is not None and reason is None:
            groups.append(group)
            named.add(group.name)
            doubt = next((doubted[int(node)] for node in free if int(node) in doubted), None)
            doubts.update({group.path: doubt} if doubt is not None else {})
        for port, piece in scored:
            if group is None or port not in group.units:
                why = next(fixed[int(node)] for node in label[graph.nodes(port)])
                reasons[piece.tensor] = graph.reasons.get(port.layer, why)
            elif reason is not None:
                reasons[piece.tensor] = graph.reasons.get(port.layer, reason)
    groups.sort(key=lambda group: order[group.path])
    not_makers = _not_makers(graph, label, {**doubted, **fixed}, tensors)
    return Candidates(groups, {**not_makers, **reasons}, doubts)


def _fix_recurrent(graph: ChannelGraph, label: np.ndarray) -> None:
    """A recurrent layer has one hidden size for all that is inside it: where some of it stays, all of it does."""
    hidden: dict[str, np.ndarray] = {}
    for port in graph.ports:
        if port.makes:
            hidden[port.layer] = np.concatenate([hidden.get(port.layer, np.empty(0, int)), graph.nodes(port)])
    waiting = True
    while waiting:
        fixed = _by_component(graph.fixed, label)
        waiting = False
        for nodes in hidden.values():
            stays = [int(node) for node in nodes if int(label[node]) in fixed]
            if stays and len(stays) < len(nodes):
                graph.fix(nodes, fixed[int(label[stays[0]])])
                waiting = True


def _of_one_width(group: ChannelGroup) -> tuple[ChannelGroup, str | None]:
    """The group, so that all layers and directions inside a recurrent layer lose the same number; or why that is impossible."""
    hidden = [units for port, units in group.units.items() if port.makes]
    if not hidden:
        return group, None
    inside = np.stack([np.bincount(units, minlength=group.size) > 0 for units in hidden])
    _, block = np.unique(inside, axis=1, return_inverse=True)
    blocks = [np.flatnonzero(block.reshape(-1) == each) for each in range(int(block.max()) + 1)]
    if len(blocks) == 1:
        return group, None
    if len({len(units) for units in blocks}) > 1 or not inside.any(axis=0).all():
        layer = next(port.layer for port in group.units if port.makes)
        return group, f"the hidden units of layer '{layer}' meet other channels in unequal numbers"
    blocks.sort(key=lambda units: int(units[0]))
    return replace(group, blocks=tuple(blocks), rule=EQUAL.format(len(blocks))), None


def _by_component(of_nodes: Mapping[int, str], label: np.ndarray) -> dict[int, str]:
    """Notes on nodes, by the component that they belong to; the first node's note counts."""
    return {int(label[node]): said for node, said in sorted(of_nodes.items(), reverse=True)}


def _clusters(makers: list[Port], labels: Mapping[Port, np.ndarray]) -> Iterable[list[Port]]:
    """Ports that share a channel, directly or through others."""
    parent = {port: port for port in makers}

    def root(port: Port) -> Port:
        while parent[port] is not port:
            parent[port] = parent[parent[port]]
            port = parent[port]
        return port

    first: dict[int, Port] = {}
    recurrent: dict[str, Port] = {}
    for port in makers:
        for component in np.unique(labels[port]):
            parent[root(port)] = root(first.setdefault(int(component), port))
        if port.makes:
            parent[root(port)] = root(recurrent.setdefault(port.layer, port))
    clusters: dict[Port, list[Port]] = {}
    for port in makers:
        clusters.setdefault(root(port), []).append(port)
    return clusters.values()


def _filters(graph: ChannelGraph, port: Port, tensors: Mapping[str, paddle.Tensor]) -> tuple[Slice, ...]:
    """The weights that make the channels of a port, 4-D ones or all; a scale of shape [1, C, 1, 1] makes none."""
    if (port.side == "out" or port.makes) and graph.roles[port.layer].makes_units(graph.layers):
        return tuple(piece for piece in port.slices if tensors[piece.tensor].ndim > 1)
    if port.side != "own":
        return ()
    return tuple(
        piece
        for piece in port.slices
        for shape in [tensors[piece.tensor].shape]
        if len(shape) == 4 and sum(side > 1 for side in shape) > 1
    )


def _group(
    graph: ChannelGraph,
    label: np.ndarray,
    free: np.ndarray,
    scored: list[tuple[Port, Slice]],
    tensors: Mapping[str, paddle.Tensor],
    named: Collection[str],
) -> ChannelGroup:
    unit_of = np.full(len(label), -1)
    unit_of[free] = np.arange(len(free))
    units = {port: unit_of[label[graph.nodes(port)]] for port in graph.ports}
    units = {port: unit for port, unit in units.items() if (unit >= 0).any()}
    scored = [pair for pair in scored if pair[0] in units]
    # A tied weight may make channels along both its axes; only one of the two groups can have its name.
    scored.sort(key=lambda pair: tensors[pair[1].tensor].name in named)
    return ChannelGroup(
        name=tensors[scored[0][1].tensor].name,
        path=scored[0][1].tensor,
        channels=scored[0][0].size,
        members=members_of(units, tensors),
        units=units,
        blocks=(np.arange(len(free)),),
        rule=FREE,
        scored=tuple(scored),
    )


def members_of(ports: Iterable[Port], tensors: Mapping[str, paddle.Tensor]) -> tuple[tuple[str, int], ...]:
    """Every (parameter name, axis) that the ports stand for, in model order."""
    order = {id(tensor): position for position, tensor in enumerate(tensors.values())}
    pairs = {
        (tensors[piece.tensor].name, piece.axis): order[id(tensors[piece.tensor])]
        for p in ports
        for piece in p.slices
    }
    return tuple(sorted(pairs, key=lambda pair: (pairs[pair], pair[1])))


def _why_not(group: ChannelGroup, named: Collection[str]) -> str | None:
    if group.name in named:
        return f"layer '{group.scored[0][0].layer}' and others share a weight but use it differently"
    if not any(port.side == "in" for port in group.units):
        return f"nothing that dysens can see depends on the channels of layer '{group.scored[0][0].layer}'"
    if group.size == 1:
        return f"layer '{group.scored[0][0].layer}' has only one channel that could be removed"
    return None


def _not_makers(
    graph: ChannelGraph, label: np.ndarray, fixed: Mapping[int, str], tensors: Mapping[str, paddle.Tensor]
) -> dict[str, str]:
    """Reasons for weights that make no channels here; those that do are judged with their group."""
    reasons = {}
    for path, tensor in tensors.items():
        layer = path.rpartition(".")[0]
        role = graph.roles.get(layer)
        wanted = role is not None and path in role.unit_weights(graph.layers)
        if not tensor.persistable or not (tensor.ndim == 4 or wanted):
            continue
        if role is None:
            reasons[path] = (
                f"parameter '{path}' belongs to no layer that dysens knows, and follows no channel"
            )
        elif layer not in graph.called:
            reasons[path] = f"layer '{layer}' does not run in this forward"
        elif role.fixed_outputs:
            reasons[path] = (
                f"the state of recurrent layer '{layer}' is carried on, or projected, by other code"
            )
        elif not any(piece.tensor == path for port in _sides(role) for piece in port.slices):
            reasons[path] = _reparameterised(path)
        elif role.kind == "passing" and role.inputs is not None:
            components = {int(component) for component in label[graph.nodes(role.inputs)]}
            why = next((fixed[component] for component in components if component in fixed), None)
            reasons[path] = (
                why or f"the channels that pass layer '{layer}' come from no filter that can be cut"
            )
    return reasons


def _reparameterised(path: str) -> str:
    layer, _, name = path.rpartition(".")
    return _REPARAMETERISED.format(layer, name, _HINTS.get(name, ""))


def _sides(role: Role) -> list[Port]:
    return [port for port in (role.inputs, role.outputs) if port is not None]


def regrouped(
    group: ChannelGroup, unit_of: np.ndarray, blocks: tuple[np.ndarray, ...], rule: str
) -> ChannelGroup:
    """The same layers with other units: old unit u becomes part of unit ``unit_of[u]`` (or stays, if that is -1)."""
    lookup = np.append(unit_of, -1)  # so that a channel that stays (-1) stays
    units = {port: lookup[unit] for port, unit in group.units.items()}
    units = {port: unit for port, unit in units.items() if (unit >= 0).any()}
    return replace(group, units=units, blocks=blocks, rule=rule)


def part_of(
    group: ChannelGroup, kind: np.ndarray, tensors: Mapping[str, paddle.Tensor]
) -> ChannelGroup | None:
    """Only some of a group's units, while the others stay; None if no weight makes them.

    Args:
        group: The group.
        kind: The units.
        tensors: The tensors, by path.
    """
    unit_of = np.full(group.size, -1)
    unit_of[kind] = np.arange(len(kind))
    part = regrouped(group, unit_of, (np.arange(len(kind)),), PART.format(len(kind), group.size))
    scored = tuple(pair for pair in group.scored if pair[0] in part.units)
    if len(kind) < 2 or not scored:
        return None
    port, piece = scored[0]
    return replace(
        part,
        name=tensors[piece.tensor].name,
        path=piece.tensor,
        channels=port.size,
        members=members_of(part.units, tensors),
        scored=scored,
    )


PART = "{} of {} channels, the others stay"
CONV_GROUPS = "whole convolution groups"
EQUAL = "the same number from each of {} blocks"
SAME = "the same places in each of {} blocks"
REARRANGED = "one of {} narrower forms, rearranged"


def connected(groups: Sequence[ChannelGroup], roles: Mapping[str, Role]) -> list[list[ChannelGroup]]:
    """Groups that may need each other: both sides of a grouped convolution, or neighbours at one entry (a concat)."""
    sets: list[tuple[set[object], list[ChannelGroup]]] = []
    for group in groups:
        keys: set[object] = set()
        for port in group.units:
            role = roles.get(port.layer)
            grouped = role is not None and role.conv_groups > 1
            if port.side in ("in", "through") or grouped:
                keys.add(port.layer if grouped else port)
        touching = [entry for entry in sets if entry[0] & keys]
        merged = (keys.union(*(k for k, _ in touching)), [*(g for _, gs in touching for g in gs), group])
        sets = [entry for entry in sets if entry not in touching] + [merged]
    return [members for _, members in sets]


def by_conv_groups(
    groups: Sequence[ChannelGroup], roles: Mapping[str, Role], tensors: Mapping[str, paddle.Tensor]
) -> ChannelGroup | None:
    """Let a grouped convolution pass its groups through: a unit is all that enters and leaves one of its groups."""
    joint = together(groups, tensors)
    parent = np.arange(joint.size)

    def root(unit: int) -> int:
        while parent[unit] != unit:
            unit = int(parent[unit])
        return unit

    grouped = {
        p.layer: roles[p.layer] for p in joint.units if p.layer in roles and roles[p.layer].conv_groups > 1
    }
    if not grouped:
        return None
    for role in grouped.values():
        for conv_group in range(role.conv_groups):
            inside: list[int] = []
            for port in (role.inputs, role.outputs):
                if port not in joint.units:
                    return None  # one side of the convolution cannot be cut
                assert port is not None
                width = port.size // role.conv_groups
                units = joint.units[port][conv_group * width : (conv_group + 1) * width]
                if (units < 0).any():
                    return None
                inside += [int(unit) for unit in units]
            for unit in inside[1:]:
                parent[root(unit)] = root(inside[0])
    roots = np.array([root(unit) for unit in range(joint.size)])
    _, unit_of = np.unique(roots, return_inverse=True)
    count = int(unit_of.max()) + 1
    return regrouped(joint, unit_of, (np.arange(count),), CONV_GROUPS) if count > 1 else None


def in_blocks(
    groups: Sequence[ChannelGroup],
    roles: Mapping[str, Role],
    tensors: Mapping[str, paddle.Tensor],
    equal: bool,
) -> ChannelGroup | None:
    """Split units into blocks of the same destiny, and take from all blocks alike.

    Args:
        groups: One group, or several that meet.
        roles: The layers, by path.
        tensors: The tensors, by path.
        equal: True for the same number from each block, False for the same places in each.
    """
    joint = together(groups, tensors)
    destiny: dict[int, set[tuple[str, str, int]]] = {unit: set() for unit in range(joint.size)}
    for port, units in joint.units.items():
        role = roles.get(port.layer)
        width = port.size // (role.conv_groups if role is not None else 1)
        if port.side in ("in", "out"):
            for channel in np.flatnonzero(units >= 0):
                destiny[int(units[channel])].add((port.layer, port.side, int(channel) // width))
    blocks: dict[frozenset[tuple[str, str, int]], list[int]] = {}
    for unit, where in destiny.items():
        blocks.setdefault(frozenset(where), []).append(unit)
    sizes = {len(units) for units in blocks.values()}
    if len(blocks) < 2 or len(sizes) > 1 or min(sizes) < 2:
        return None
    if equal:
        rule = EQUAL.format(len(blocks))
        return regrouped(
            joint, np.arange(joint.size), tuple(np.array(units) for units in blocks.values()), rule
        )
    unit_of = np.empty(joint.size, int)
    for members in blocks.values():
        unit_of[members] = np.arange(len(members))
    return regrouped(joint, unit_of, (np.arange(min(sizes)),), SAME.format(len(blocks)))


def together(groups: Sequence[ChannelGroup], tensors: Mapping[str, paddle.Tensor]) -> ChannelGroup:
    """Several groups as one, their units side by side. The first one gives the name."""
    if len(groups) == 1:
        return groups[0]
    order = {path: position for position, path in enumerate(tensors)}
    groups = sorted(groups, key=lambda group: order[group.path])
    units: dict[Port, np.ndarray] = {}
    offset = 0
    for group in groups:
        for port, unit in group.units.items():
            shifted = np.where(unit >= 0, unit + offset, -1)
            units[port] = np.maximum(units[port], shifted) if port in units else shifted
        offset += group.size
    first = groups[0]
    return ChannelGroup(
        name=first.name,
        path=first.path,
        channels=first.channels,
        members=members_of(units, tensors),
        units=units,
        blocks=(np.arange(offset),),
        rule=first.rule,
        scored=tuple(pair for group in groups for pair in group.scored),
    )
