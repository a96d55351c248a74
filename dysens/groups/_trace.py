"""Follows the channels of the mixers of one view: where they arrive, which one it is, and what keeps them from being cut."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np
import paddle

from dysens.errors import ForwardError
from dysens.groups._bits import Bits, Further, Origin, Reach, numbering
from dysens.groups._layers import Role
from dysens.groups._meetings import Meetings
from dysens.groups._probe import EVERYTHING, STATES, Movement, Probe
from dysens.groups._reach import Square, apart, same, united

if TYPE_CHECKING:
    from dysens.groups._channel_graph import ChannelGraph

# With more probes than this, other numbers for a source's channels are looked for.
_FEW_TURNS = 8
# With more, its channels count as mixed.
_MOST_TURNS = 64

_LAYER_NORM = " by a layer norm: a masked channel still counts in its mean and variance, so no mask can tell what a cut would do"


class Tracer:
    """Follows the channels of one view."""

    def __init__(self, probe: Probe, graph: ChannelGraph, before: Tracer | None = None) -> None:
        """Begin with what is known.

        Args:
            probe: A started probe.
            graph: Gets the joins and the reasons.
            before: What another view has shown; where this one moves alike, nothing is followed again.
        """
        self._probe = probe
        self._graph = graph
        self._before = before
        self._roles = {path: role for path, role in graph.roles.items() if probe.calls[path]}
        self._reach: dict[str, Reach] = {}
        self._arrived: dict[str, list[Origin]] = {}
        self._mixed: dict[
            str, str
        ] = {}  # sources whose channels are mixed, and the layer before which they are

    def trace(self, into: Collection[str] | None = None) -> list[Reach]:
        """Join and fix what this view shows; returns where the channels arrive that may be cut.

        Args:
            into: If given, only what arrives at these layers is followed: the rest is known from another view.
        """
        graph = self._graph
        for role in self._roles.values():
            graph.add_all(role)
        self._doubt_what_cannot_move()
        self._refuse_states()
        filters = [role for role in self._roles.values() if role.makes_units(graph.layers)]
        if into is None and self._before is not None:
            filters = self._unlike(self._before, filters)
        adopted = set(self._reach)
        self._follow(filters, into)
        followed = [
            role
            for role in filters
            if role.path in self._reach and role.path not in adopted and role.path not in graph.reasons
        ]
        self._follow(self._partners(followed))
        self._refuse_hidden_meetings()
        self._blame_layer_norms()
        for path in self._reach:
            if path in graph.reasons:
                self._fix_reached(path)
        return [reach for path, reach in self._reach.items() if path not in graph.reasons]

    def _follow(self, sources: list[Role], into: Collection[str] | None = None) -> None:
        """Find where the channels of these mixers arrive, and join them with what they arrive at.

        Args:
            sources: The mixers.
            into: If given, only those that may reach one of these layers, or are one.
        """
        square = Square(self._probe, {role.path: _exit_size(role) for role in sources})
        wanted = [
            path
            for path, possible in square.possible.items()
            if into is None or path in into or possible.flow or not possible.positions.keys().isdisjoint(into)
        ]
        for path, movement in square.movements(wanted).items():
            self._note_reach(path, movement)
        for path, origins in self._origins(wanted).items():
            self._arrived[path] = origins
            for origin in origins:
                self._join(self._roles[path], origin)

    def _unlike(self, before: Tracer, filters: list[Role]) -> list[Role]:
        """The filters that have to be followed here: those that were not before, or reach layers that did not run there.

        What the others move must be what they moved there: all channels of rows and columns of sources, and channels by the
        bits of their numbers. Otherwise everything is followed.
        """
        new = set(self._roles) - set(before._roles)
        known = {path: reach for path, reach in before._reach.items() if path in self._roles}
        movable = [path for path in known if path in before._arrived and path not in self._graph.reasons]
        square = Square(self._probe, {path: _exit_size(self._roles[path]) for path in movable})
        alike = [
            self._is_alike(movement, [known[path] for path in some], new) for some, movement in square.groups
        ]
        reaching = {path for path, p in square.possible.items() if not p.positions.keys().isdisjoint(new)}
        stuck = {path: np.ones(_exit_size(self._roles[path]), bool) for path in known if path not in movable}
        movement = self._probe.perturb(stuck) if stuck else Movement()
        alike.append(
            not movement.flow and _within(self._old(movement, new), united(known[path] for path in stuck))
        )
        if not movement.positions.keys().isdisjoint(new):
            reaching.update(stuck)
        plain = [path for path in movable if path not in reaching]
        if not all(alike) or not self._moves_alike(plain, before._arrived):
            return filters
        for path in known:
            if path not in reaching:
                self._reach[path] = {p: m for p, m in known[path].items() if p in self._roles}
                if path in before._arrived:
                    self._arrived[path] = [
                        {p: i for p, i in origin.items() if p in self._roles}
                        for origin in before._arrived[path]
                    ]
        return [role for role in filters if role.path not in known or role.path in reaching]

    def _old(self, movement: Movement, new: Collection[str]) -> Reach:
        return {
            p: m for p, m in movement.positions.items() if p not in new and self._roles[p].inputs is not None
        }

    def _is_alike(self, movement: Movement, reaches: list[Reach], new: Collection[str]) -> bool:
        expected = {p: m for p, m in united(reaches).items() if p in self._roles}
        quiet = not movement.flow and not movement.arguments
        quiet = quiet and (self._probe.view.implied or not movement.outputs)
        return quiet and same(self._old(movement, new), expected)

    def _moves_alike(self, sources: list[str], arrived: Mapping[str, list[Origin]]) -> bool:
        """Whether channels, by the bits of their numbers, move what they are known to."""
        sizes = {path: _exit_size(self._roles[path]) for path in sources}
        for bit in range(max([1, *((size - 1).bit_length() for size in sizes.values())]) if sizes else 0):
            for value in (1, 0):
                masks = {path: (np.arange(size) >> bit & 1) == value for path, size in sizes.items()}
                moving = {path: mask for path, mask in masks.items() if mask.any()}
                expected = [
                    {p: (index >= 0) & mask[index] for p, index in origin.items() if p in self._roles}
                    for path, mask in moving.items()
                    for origin in arrived[path]
                ]
                if moving and not self._is_alike(self._probe.perturb(moving), expected, ()):
                    return False
        return True

    def _doubt_what_cannot_move(self) -> None:
        layers = self._graph.layers
        fixed = {
            path: EVERYTHING if role.is_fixed(layers) else STATES
            for path, role in self._roles.items()
            if role.is_fixed(layers) or role.inside
        }
        recurrent = self._probe.perturb(fixed) if fixed else Movement()
        for movement, reason in (
            (self._probe.perturb_inputs(), "it is joined with the network's own input at layer '{}'"),
            (recurrent, "it is joined with the output of a recurrent layer at layer '{}'"),
        ):
            for path, moved in movement.positions.items():
                entry = self._roles[path].inputs
                if entry is not None:
                    self._graph.doubt(self._graph.nodes(entry, np.flatnonzero(moved)), reason.format(path))

    def _refuse_states(self) -> None:
        """Keep recurrent layers whose states are given or used: they are as wide as the hidden units, whoever holds them."""
        recurrent = [
            role for role in self._roles.values() if role.inside and not role.is_fixed(self._graph.layers)
        ]
        quiet = not recurrent or self._nothing(self._probe.perturb({role.path: STATES for role in recurrent}))
        for role in recurrent:
            path, why = role.path, ""
            if self._probe.gets_states(path):
                why = f"layer '{path}' is given initial states, which are as wide as its hidden units"
            elif not quiet and not self._nothing(moved := self._probe.perturb({path: STATES})):
                where = f"layer '{min(moved.positions)}'" if moved.positions else "the model's output"
                why = f"the final states of layer '{path}' reach {where}, and are as wide as its hidden units"
            if why:
                assert role.outputs is not None
                self._graph.reasons.setdefault(path, why)
                self._graph.fix(self._graph.nodes(role.outputs), why)

    def _nothing(self, movement: Movement) -> bool:
        outputs = movement.outputs and not self._probe.view.implied
        return not (movement.positions or movement.arguments or movement.flow or outputs)

    def _note_reach(self, path: str, movement: Movement) -> None:
        """Keep what a source moves alone, and why it cannot be cut if that tells."""
        self._reach[path] = {p: m for p, m in movement.positions.items() if self._roles[p].inputs is not None}
        reason = self._why_stuck(path, movement)
        if reason is not None:
            self._graph.reasons.setdefault(path, reason)

    def _why_stuck(self, path: str, movement: Movement) -> str | None:
        if movement.outputs and not self._probe.view.implied:
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
            if r.kind == "mixer"
            and r.outputs is not None
            and not r.makes_units(self._graph.layers)
            and not r.is_fixed(self._graph.layers)
        ]
        if not others:
            return []
        together = self._probe.perturb(
            {r.path: np.ones(r.outputs.size, bool) for r in others if r.outputs is not None}
        )
        if not any(meets(self._reach[role.path], together.positions) for role in filters):
            return []
        square = Square(self._probe, {role.path: _exit_size(role) for role in others})
        moved = square.movements([role.path for role in others])
        return [
            role
            for role in others
            if any(meets(self._reach[f.path], moved[role.path].positions) for f in filters)
        ]

    # Which channel it is

    def _origins(self, sources: list[str]) -> dict[str, list[Origin]]:
        """For each of the sources that may be cut, the channels that arrive at the positions that it reaches."""
        movable = [path for path in sources if path not in self._graph.reasons and self._reach[path]]
        shared = self._bits(movable)
        origins: dict[str, list[Origin]] = {}
        unclear: list[str] = []
        for path in movable:
            if shared.unclear(self._reach[path], _exit_size(self._roles[path])) is None:
                origins[path] = [shared.single(self._reach[path])]
            else:
                unclear.append(path)
        suspects = {
            path: self._reach[path]
            for path in unclear
            if shared.shows_nothing(self._reach[path], _exit_size(self._roles[path]))
        }
        for some in apart(suspects):
            self._refuse_mixed(some)
        unclear = [path for path in unclear if path not in self._graph.reasons]
        for some in apart({path: self._reach[path] for path in unclear}):
            for path, found in self._told_apart(some).items():
                if found is not None:
                    origins[path] = found
        return origins

    def _refuse_mixed(self, sources: list[str]) -> None:
        """Say of sources that reach nothing in common which are mixed by something like a layer norm, from three probes.

        The number of the first channel has no bit, those of two others have all between them. Where each of the three alone
        moves all that its source reaches of a layer, no bit tells channels apart there, and no further probe does.
        """
        sizes = {path: _exit_size(self._roles[path]) for path in sources}
        whole = {path: list(self._reach[path]) for path in sources}
        for turn in range(3):
            chosen = {path: np.arange(sizes[path]) == _with_all_bits(sizes[path])[turn] for path in whole}
            movement = self._probe.perturb(chosen) if chosen else Movement()
            if movement.flow:
                return
            for path, layers in whole.items():
                reach, moved = self._reach[path], movement.positions
                whole[path] = [p for p in layers if p in moved and not (reach[p] & ~moved[p]).any()]
            whole = {path: layers for path, layers in whole.items() if layers}
        for path, layers in whole.items():
            self._refuse_as_mixed(path, layers[0])

    def _told_apart(self, sources: list[str]) -> dict[str, list[Origin] | None]:
        """The same for sources that reach nothing in common, so that each probe can ask all of them."""
        bits = self._bits(sources)
        if bits.flow and len(sources) > 1:
            return {path: found for each in sources for path, found in self._told_apart([each]).items()}
        found: dict[str, list[Origin] | None] = {}
        asked: dict[str, tuple[Bits, Further]] = {}
        for path in sources:
            reach, size = self._reach[path], _exit_size(self._roles[path])
            if bits.unclear(reach, size) is None:
                found[path] = [bits.single(reach)]
                continue
            further = bits.further(reach, size)
            if further is None:
                found[path] = None
                self._refuse_unclear(path, bits)
            else:
                asked[path] = (bits, further)
        # Where the first channel moves all there is, no other numbers will tell them apart.
        self._ask({path: further for path, (_, further) in asked.items()})
        many = [
            path for path, (_, further) in asked.items() if not further.done and further.turns > _FEW_TURNS
        ]
        for path, (coded, fewer) in self._renumbered(many).items():
            if fewer.turns < asked[path][1].turns:
                asked[path] = (coded, fewer)
        for _ in range(_MOST_TURNS):
            waiting = {path: further for path, (_, further) in asked.items() if not further.done}
            if not waiting:
                break
            self._ask(waiting)
        for path, (own, further) in asked.items():
            found[path] = further.origins() if further.done else None
            if found[path] is None:
                self._refuse_unclear(path, own)
        return found

    def _ask(self, asked: Mapping[str, Further]) -> None:
        """One turn of each of these sources, which reach nothing in common."""
        moving = {path: further.chosen() for path, further in asked.items()}
        movement = self._probe.perturb(moving) if moving else Movement()
        for further in asked.values():
            further.take(movement.positions)

    def _renumbered(self, sources: list[str]) -> dict[str, tuple[Bits, Further]]:
        """What the bits of other numbers for the channels of these sources show, where such numbers are found.

        Sources of one size are mostly the same layer of several blocks, and the numbers of one of them do for the next.
        """
        found: dict[str, tuple[Bits, Further]] = {}
        left = list(sources)
        tried: set[tuple[int, bytes]] = set()
        while left:
            first, size = left[0], _exit_size(self._roles[left[0]])
            codes = self._numbers(first, size)
            if codes is None or (size, codes.tobytes()) in tried:
                left.remove(first)
                continue
            tried.add((size, codes.tobytes()))
            alike = [path for path in left if _exit_size(self._roles[path]) == size]
            coded = self._bits(alike, codes)
            for path in alike:
                fewer = coded.further(self._reach[path], size)
                if fewer is not None and fewer.turns < size:
                    found[path] = (coded, fewer)
            left = [path for path in left if path not in found and path != first]
        return found

    def _numbers(self, path: str, size: int) -> np.ndarray | None:
        return numbering(size, lambda chosen: self._probe.perturb({path: chosen}), self._reach[path])

    def _refuse_unclear(self, path: str, bits: Bits) -> None:
        if bits.flow:
            self._graph.reasons[path] = self._turns_away(path)
            return
        mixed = bits.unclear(self._reach[path], _exit_size(self._roles[path]))
        assert mixed is not None
        self._refuse_as_mixed(path, mixed)

    def _refuse_as_mixed(self, path: str, layer: str) -> None:
        self._mixed[path] = layer
        self._graph.reasons[path] = (
            f"its channels are mixed with each other before they reach layer '{layer}'"
        )

    def _blame_layer_norms(self) -> None:
        """Say so where it is a layer norm that mixes channels: without it they would arrive one by one."""
        layers = self._probe.model.sublayers()
        norms = [layer for layer in layers if isinstance(layer, paddle.nn.LayerNorm)]
        if not norms or not self._mixed:
            return
        plain = self._probe.passing(norms)
        try:
            plain.start()
            bits = self._bits(list(self._mixed), probe=plain)
        except ForwardError:
            return  # something counts on what the norm does; the reason stays as it is
        for path, layer in self._mixed.items():
            if bits.unclear({layer: self._reach[path][layer]}, _exit_size(self._roles[path])) is None:
                self._graph.reasons[path] += _LAYER_NORM

    def _bits(self, sources: list[str], codes: np.ndarray | None = None, probe: Probe | None = None) -> Bits:
        """Ask which channels arrive where, of several sources at once: the same channels of all of them move."""
        sizes = {path: _exit_size(self._roles[path]) for path in sources}

        def move(chosen: np.ndarray) -> Movement:
            masks = {path: chosen[:size] for path, size in sizes.items()}
            asked = self._probe if probe is None else probe
            return asked.perturb({path: mask for path, mask in masks.items() if mask.any()})

        return Bits(max(sizes.values(), default=1), move, codes)

    def _join(self, source: Role, origin: Origin) -> None:
        assert source.outputs is not None
        for path, channels in origin.items():
            entry = self._roles[path].inputs
            assert entry is not None
            at = np.flatnonzero(channels >= 0)
            self._graph.join(self._graph.nodes(source.outputs, channels[at]), self._graph.nodes(entry, at))

    def _refuse_hidden_meetings(self) -> None:
        """Channels of which only one that stands out arrives cannot be cut."""
        sources = [path for path in self._arrived if path not in self._graph.reasons]
        meetings = Meetings(
            self._probe,
            {path: self._arrived[path] for path in sources},
            {path: _exit_size(self._roles[path]) for path in sources},
            {path: role.inputs.size for path, role in self._roles.items() if role.inputs is not None},
        )
        for path, layer in meetings.refused(sources).items():
            self._graph.reasons[path] = (
                f"which of its channels counts depends on the values (a maximum, a norm, an order) before layer '{layer}'"
            )

    def _fix_reached(self, path: str) -> None:
        """Fix the channels that a source which cannot be cut reaches: they may be the same channels."""
        role, reason = self._roles[path], self._graph.reasons[path]
        assert role.outputs is not None
        self._graph.fix(self._graph.nodes(role.outputs), reason)
        for layer, reached in self._reach[path].items():
            entry = self._roles[layer].inputs
            assert entry is not None
            met = f"its channels meet those of layer '{path}', which cannot be cut: {reason}"
            self._graph.doubt(self._graph.nodes(entry, np.flatnonzero(reached)), met)


def meets(reach: Reach, moved: Mapping[str, np.ndarray]) -> bool:
    """Whether both arrive at some position together."""
    return any((positions & moved[path]).any() for path, positions in reach.items() if path in moved)


def _within(reach: Reach, other: Reach) -> bool:
    return all(path in other and not (mask & ~other[path]).any() for path, mask in reach.items())


def _with_all_bits(size: int) -> tuple[int, int, int]:
    """A number below ``size`` without any bit, and two that have all of them between them."""
    highest = 1 << max(0, (size - 1).bit_length() - 1)
    return 0, highest - 1, min(highest, size - 1)


def _exit_size(role: Role) -> int:
    assert role.outputs is not None
    return role.outputs.size
