"""Other ways to choose units, for channels that cannot go one by one.

After a split, around a channel shuffle or in a grouped convolution, a network only stays right if removal is balanced. Each
function here takes candidate groups and gives them back with other units; whether that works is for the proof to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import paddle

from dysens.groups._candidates import members_of, regrouped
from dysens.groups._group import ChannelGroup
from dysens.groups._layers import Port, Role

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
