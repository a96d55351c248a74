"""Where the channels of mixers arrive: from probes of one view to joins in the wiring.

Reach is told apart source by source; which channel arrives where is asked of all sources at once (see `origins`). Positions
at which different channels meet need a closer look at each of their sources. Channels of one source that meet at a position
go together; if all of them meet, something on the way mixes channels, and that source cannot be cut.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dysens.groups.origins import Bits, Origin, Reach
from dysens.groups.probe import Movement, Probe
from dysens.groups.roles import Role
from dysens.groups.wiring import Wiring


class Tracer:
    """Follows the channels of one view."""

    def __init__(self, probe: Probe, wiring: Wiring) -> None:
        self._probe = probe
        self._wiring = wiring
        self._roles = {path: role for path, role in wiring.roles.items() if probe.calls[path]}
        self._reach: dict[str, Reach] = {}

    def trace(self) -> list[Reach]:
        """Join and fix what this view shows; returns where the channels arrive that may be cut."""
        wiring = self._wiring
        for role in self._roles.values():
            for port in (role.entry, role.exit):
                if port is not None:
                    wiring.add(port)
        self._doubt_what_cannot_move()
        filters = [role for role in self._roles.values() if _has_filters(role)]
        self._follow(filters)
        self._follow(self._partners([role for role in filters if role.path not in wiring.reasons]))
        for path in self._reach:
            if path in wiring.reasons:
                self._fix_reached(path)
        return [reach for path, reach in self._reach.items() if path not in wiring.reasons]

    def _follow(self, sources: list[Role]) -> None:
        """Find where the channels of these mixers arrive, and join them with what they arrive at."""
        for role in sources:
            self._find_reach(role)
        for path, origins in self._origins([role.path for role in sources]).items():
            for origin in origins:
                self._join(self._roles[path], origin)

    def _doubt_what_cannot_move(self) -> None:
        for movement, reason in (
            (self._probe.perturb_inputs(), "it is joined with the network's own input at layer '{}'"),
            (self._probe.perturb_fixed(), "it is joined with the output of a recurrent layer at layer '{}'"),
        ):
            for path, moved in movement.positions.items():
                entry = self._roles[path].entry
                if entry is not None:
                    self._wiring.doubt(self._wiring.nodes(entry, np.flatnonzero(moved)), reason.format(path))

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
            return self._turns_away(path)
        if _exit_size(self._roles[path]) == 1:
            return f"layer '{path}' has only one channel that could be removed"
        return None

    def _turns_away(self, path: str) -> str:
        return f"the {self._probe.view.name} takes another way when the values of layer '{path}' change"

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
        if not any(meets(self._reach[role.path], together.positions) for role in filters):
            return []
        partners = []
        for role in others:
            assert role.exit is not None
            moved = self._probe.perturb({role.path: np.ones(role.exit.size, bool)}).positions
            if any(meets(self._reach[f.path], moved) for f in filters):
                partners.append(role)
        return partners

    # Which channel it is

    def _origins(self, sources: list[str]) -> dict[str, list[Origin]]:
        """For each of the sources that may be cut, the channels that arrive at the positions that it reaches."""
        movable = [path for path in sources if path not in self._wiring.reasons and self._reach[path]]
        shared = self._bits(movable)
        origins: dict[str, list[Origin]] = {}
        for path in movable:
            reach = self._reach[path]
            if shared.unclear(reach, _exit_size(self._roles[path])) is None:
                origins[path] = [shared.single(reach)]
                continue
            alone = self._bits([path])
            found = alone.origins(reach)
            if found is not None:
                origins[path] = found
            elif alone.flow:
                self._wiring.reasons[path] = self._turns_away(path)
            else:
                mixed = alone.unclear(reach)
                self._wiring.reasons[path] = (
                    f"its channels are mixed with each other before they reach layer '{mixed}'"
                )
        return origins

    def _bits(self, sources: list[str]) -> Bits:
        """Ask which channels arrive where, of several sources at once: the same channels of all of them move."""
        sizes = {path: _exit_size(self._roles[path]) for path in sources}

        def move(chosen: np.ndarray) -> Movement:
            masks = {path: chosen[:size] for path, size in sizes.items()}
            return self._probe.perturb({path: mask for path, mask in masks.items() if mask.any()})

        return Bits(max(sizes.values(), default=1), move)

    def _join(self, source: Role, origin: Origin) -> None:
        assert source.exit is not None
        for path, channels in origin.items():
            entry = self._roles[path].entry
            assert entry is not None
            at = np.flatnonzero(channels >= 0)
            self._wiring.join(self._wiring.nodes(source.exit, channels[at]), self._wiring.nodes(entry, at))

    def _fix_reached(self, path: str) -> None:
        """Wherever a source that cannot be cut arrives, it may be that nobody else's channel can go either."""
        role, reason = self._roles[path], self._wiring.reasons[path]
        assert role.exit is not None
        self._wiring.fix(self._wiring.nodes(role.exit), reason)
        for layer, reached in self._reach[path].items():
            entry = self._roles[layer].entry
            assert entry is not None
            met = f"its channels meet those of layer '{path}', which cannot be cut: {reason}"
            self._wiring.doubt(self._wiring.nodes(entry, np.flatnonzero(reached)), met)


def meets(reach: Reach, moved: Mapping[str, np.ndarray]) -> bool:
    """Whether both arrive at some position together."""
    return any((positions & moved[path]).any() for path, positions in reach.items() if path in moved)


def _exit_size(role: Role) -> int:
    assert role.exit is not None
    return role.exit.size


def _has_filters(role: Role) -> bool:
    """Whether the layer makes channels with a 4-D weight: what pruning is about."""
    return role.kind == "mixer" and role.exit is not None and role.layer.weight.ndim == 4
