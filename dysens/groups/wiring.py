"""The wiring of a model: all its channels as nodes, joined where one is the other, and what must stay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from dysens.groups.probe import Probe
from dysens.groups.roles import Port, Role


@dataclass
class Wiring:
    """All channels of a model as nodes, joined where one is the other; and what must stay.

    Attributes:
        roles: The layers with weights, by path.
        called: The paths of those that run.
        ports: Every port, in order; node ``first[port] + i`` is channel i of a port.
        joins: Pairs of nodes that are one and the same channel.
        fixed: Why a node cannot be removed.
        doubts: What may keep a node from being removed; a trial has to tell.
        reasons: Why a whole source cannot be cut, by layer path.
        probes: One per view, for trying a cut.
    """

    roles: Mapping[str, Role]
    called: set[str] = field(default_factory=set)
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
