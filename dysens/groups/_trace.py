"""Which of many indices (the channels of a source, the entries of a parameter) arrive at every position.

Two probes per bit of the index tell: one moves all indices that have the bit, one all that have not. Where only one of the
two moves a position, every index that arrives there agrees on the bit. Where all bits are clear, it is a single index. Where
some are not (pixel shuffle lays four channels into one, a gate multiplies two), the clear bits still say which indices can
never meet, and one index of each such class can be moved at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from dysens.groups._layers import Role
from dysens.groups._probe import FAR, Movement, Probe

if TYPE_CHECKING:
    from dysens.groups._channel_graph import ChannelGraph

Reach = dict[str, np.ndarray]  # layer path: which of its entry channels are reached
Origin = dict[str, np.ndarray]  # layer path: the index that arrives at each entry channel; negative for none
Move = Callable[[np.ndarray], Movement]  # moves the chosen ones (a boolean mask) of all indices


# With more probes than this, other numberings of a source's channels are tried.
_MANY_TURNS = 48
_MOST_HEADS = 64


class Bits:
    """What the probes bit by bit have shown.

    Attributes:
        size: How many indices there are.
        flow: Whether the forward took another way at some probe.
    """

    def __init__(self, size: int, move: Move, codes: np.ndarray | None = None) -> None:
        """Ask bit by bit.

        Args:
            size: How many indices there are.
            move: Moves some of them.
            codes: Other numbers than their own for the indices, whose bits are asked for: where three times eight heads of
                24 channels lie side by side, a number with fields for the three, the heads and the channels tells heads apart.
        """
        self.size = size
        self.flow = False
        self._move = move
        self._codes = np.arange(size) if codes is None else codes
        number = max(1, int(self._codes.max(initial=0)).bit_length())
        self._all = (1 << number) - 1
        self._index = np.full(self._all + 1, -1)
        self._index[self._codes] = np.arange(size)
        self._ones: Origin = {}  # layer path: for each position, the bits whose bearers move it
        self._zeros: Origin = {}  # the same for those that lack the bit
        for bit in range(number):
            with_bit = (self._codes >> bit & 1).astype(bool)
            for chosen, seen in ((with_bit, self._ones), (~with_bit, self._zeros)):
                if chosen.any():
                    movement = move(chosen)
                    self.flow = self.flow or movement.flow
                    for path, moved in movement.positions.items():
                        seen[path] = seen.get(path, 0) | (moved.astype(int) << bit)
        for path in {*self._ones, *self._zeros}:
            nothing = np.zeros(len(self._ones.get(path, self._zeros.get(path, ()))), int)
            self._ones.setdefault(path, nothing)
            self._zeros.setdefault(path, nothing)

    def origins(self, reach: Reach) -> list[Origin] | None:
        """Origins that together name every index that arrives at these positions; None if everything is mixed."""
        return [self.single(reach)] if self.unclear(reach) is None else self.several(reach)

    def single(self, reach: Reach) -> Origin:
        """The one index that arrives at each of these positions; to be asked where none is unclear."""
        return {path: np.where(reached, self._index[self._ones[path]], -1) for path, reached in reach.items()}

    def unclear(self, reach: Reach, size: int | None = None) -> str | None:
        """The first layer that has one of these positions at which no single index (below ``size``) arrives."""
        for path, reached in reach.items():
            if path not in self._ones:
                return path
            ones, zeros = self._ones[path][reached], self._zeros[path][reached]
            index = self._index[ones]
            if (ones ^ zeros != self._all).any() or (index < 0).any() or (index >= (size or self.size)).any():
                return path
        return None

    def turns(self, reach: Reach) -> int | None:
        """How many probes it takes to tell several indices at one position apart; None where something hides what moves."""
        clear = self._clear(reach)
        return None if clear is None else int(np.bincount(self._codes & clear).max())

    def _clear(self, reach: Reach) -> int | None:
        """The bits in which all indices that arrive at any one position agree."""
        shared = 0
        for path, reached in reach.items():
            if path not in self._ones:
                return None
            ones, zeros = self._ones[path][reached], self._zeros[path][reached]
            if (ones | zeros != self._all).any():
                return None
            shared |= int(np.bitwise_or.reduce(ones & zeros, initial=0))
        return self._all & ~shared

    def several(self, reach: Reach) -> list[Origin] | None:
        """The same where several indices may arrive at one position."""
        clear = self._clear(reach)
        if clear is None:
            return None
        origins: list[Origin] = []
        for chosen in self._turns(clear):
            moved = self._move(np.isin(np.arange(self.size), chosen)).positions
            origins.append(self._arrived(chosen, clear, moved, reach))
            if not clear and any((o >= 0)[reach[path]].all() for path, o in origins[0].items()):
                return None  # a single index moves all there is
        return origins if self._is_told_apart(origins, reach) else None

    def _turns(self, clear: int) -> Iterator[np.ndarray]:
        """Indices that never meet, until all have had their turn: one from each class with the same clear bits."""
        waiting: dict[int, list[int]] = {}
        for index in range(self.size):
            waiting.setdefault(int(self._codes[index]) & clear, []).append(index)
        for turn in range(max(map(len, waiting.values()))):
            yield np.array([members[turn] for members in waiting.values() if turn < len(members)])

    def _arrived(
        self, chosen: np.ndarray, clear: int, moved: Mapping[str, np.ndarray], reach: Reach
    ) -> Origin:
        by_class = np.full(self._all + 1, -1)
        by_class[self._codes[chosen] & clear] = chosen
        return {
            path: np.where(moved[path] & reached, by_class[self._ones[path] & clear], -1)
            for path, reached in reach.items()
            if path in moved
        }

    def _is_told_apart(self, origins: list[Origin], reach: Reach) -> bool:
        """Whether every position got an index, and none got all of them."""
        for path, reached in reach.items():
            arrived = sum((origin[path] >= 0).astype(int) for origin in origins if path in origin)
            counts = np.broadcast_to(arrived, reached.shape)[reached]
            if (counts == 0).any() or (counts == self.size).any():
                return False
        return True


class Tracer:
    """Follows the channels of one view."""

    def __init__(self, probe: Probe, graph: ChannelGraph) -> None:
        self._probe = probe
        self._graph = graph
        self._roles = {path: role for path, role in graph.roles.items() if probe.calls[path]}
        self._reach: dict[str, Reach] = {}
        self._arrived: dict[str, list[Origin]] = {}

    def trace(self, into: Collection[str] | None = None) -> list[Reach]:
        """Join and fix what this view shows; returns where the channels arrive that may be cut.

        Args:
            into: If given, only what arrives at these layers is followed: the rest is known from another view.
        """
        graph = self._graph
        for role in self._roles.values():
            for port in (role.inputs, role.outputs):
                if port is not None:
                    graph.add(port)
        self._doubt_what_cannot_move()
        filters = [role for role in self._roles.values() if role.makes_units(graph.layers)]
        self._follow(filters if into is None else self._arriving(filters, into))
        followed = [role for role in filters if role.path in self._reach and role.path not in graph.reasons]
        self._follow(self._partners(followed))
        self._refuse_hidden_meetings()
        for path in self._reach:
            if path in graph.reasons:
                self._fix_reached(path)
        return [reach for path, reach in self._reach.items() if path not in graph.reasons]

    def _follow(self, sources: list[Role]) -> None:
        """Find where the channels of these mixers arrive, and join them with what they arrive at."""
        for role in sources:
            self._find_reach(role)
        for path, origins in self._origins([role.path for role in sources]).items():
            self._arrived[path] = origins
            for origin in origins:
                self._join(self._roles[path], origin)

    def _arriving(self, sources: list[Role], layers: Collection[str]) -> list[Role]:
        """Those of the sources that reach one of these layers, or are one; halving finds few quickly."""
        if not sources:
            return []
        movement = self._probe.perturb({role.path: np.ones(_exit_size(role), bool) for role in sources})
        arrives = movement.flow or not movement.positions.keys().isdisjoint(layers)
        own = [role for role in sources if role.path in layers]
        if not arrives and not own:
            return []
        if len(sources) == 1 or len(own) == len(sources):
            return sources
        middle = len(sources) // 2
        return [*self._arriving(sources[:middle], layers), *self._arriving(sources[middle:], layers)]

    def _doubt_what_cannot_move(self) -> None:
        for movement, reason in (
            (self._probe.perturb_inputs(), "it is joined with the network's own input at layer '{}'"),
            (self._probe.perturb_fixed(), "it is joined with the output of a recurrent layer at layer '{}'"),
        ):
            for path, moved in movement.positions.items():
                entry = self._roles[path].inputs
                if entry is not None:
                    self._graph.doubt(self._graph.nodes(entry, np.flatnonzero(moved)), reason.format(path))

    def _find_reach(self, role: Role) -> None:
        assert role.outputs is not None
        movement = self._probe.perturb({role.path: np.ones(role.outputs.size, bool)})
        self._reach[role.path] = {
            p: m for p, m in movement.positions.items() if self._roles[p].inputs is not None
        }
        reason = self._why_stuck(role.path, movement)
        if reason is not None:
            self._graph.reasons.setdefault(role.path, reason)

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
            if r.kind == "mixer" and r.outputs is not None and not r.makes_units(self._graph.layers)
        ]
        if not others:
            return []
        together = self._probe.perturb(
            {r.path: np.ones(r.outputs.size, bool) for r in others if r.outputs is not None}
        )
        if not any(meets(self._reach[role.path], together.positions) for role in filters):
            return []
        partners = []
        for role in others:
            assert role.outputs is not None
            moved = self._probe.perturb({role.path: np.ones(role.outputs.size, bool)}).positions
            if any(meets(self._reach[f.path], moved) for f in filters):
                partners.append(role)
        return partners

    # Which channel it is

    def _origins(self, sources: list[str]) -> dict[str, list[Origin]]:
        """For each of the sources that may be cut, the channels that arrive at the positions that it reaches."""
        movable = [path for path in sources if path not in self._graph.reasons and self._reach[path]]
        shared = self._bits(movable)
        origins: dict[str, list[Origin]] = {}
        for path in movable:
            reach = self._reach[path]
            if shared.unclear(reach, _exit_size(self._roles[path])) is None:
                origins[path] = [shared.single(reach)]
                continue
            alone = self._told_apart(path, reach)
            found = alone.origins(reach)
            if found is not None:
                origins[path] = found
            elif alone.flow:
                self._graph.reasons[path] = self._turns_away(path)
            else:
                mixed = alone.unclear(reach)
                self._graph.reasons[path] = (
                    f"its channels are mixed with each other before they reach layer '{mixed}'"
                )
        return origins

    def _told_apart(self, path: str, reach: Reach) -> Bits:
        """What the bits of one source's channels show, by the numbering that needs the fewest further probes."""
        plain = self._bits([path])
        turns = plain.turns(reach)
        if turns is None or turns <= _MANY_TURNS or plain.unclear(reach) is None:
            return plain
        coded = (self._bits([path], codes) for codes in self._codes(path, _exit_size(self._roles[path])))
        return min([plain, *coded], key=lambda bits: bits.turns(reach) or turns)

    def _codes(self, path: str, size: int) -> Iterator[np.ndarray]:
        """Other numberings: parts, heads, and channels of a head, by the small numbers that the blocks around remember."""
        blocks = dict(self._probe.model.named_sublayers(include_self=True))
        parent = blocks.get(path.rpartition(".")[0])
        heads = {
            v for v in vars(parent or self._probe.model).values() if type(v) is int and 1 < v <= _MOST_HEADS
        }
        for number in sorted(heads):
            for parts in (3, 2, 1):
                if size % (parts * number) == 0 and size > parts * number:
                    each = size // (parts * number)
                    low, high = (each - 1).bit_length(), (number - 1).bit_length()
                    index = np.arange(size)
                    part, head, channel = index // (each * number), index // each % number, index % each
                    yield (part << (low + high)) | (head << low) | channel

    def _bits(self, sources: list[str], codes: np.ndarray | None = None) -> Bits:
        """Ask which channels arrive where, of several sources at once: the same channels of all of them move."""
        sizes = {path: _exit_size(self._roles[path]) for path in sources}

        def move(chosen: np.ndarray) -> Movement:
            masks = {path: chosen[:size] for path, size in sizes.items()}
            return self._probe.perturb({path: mask for path, mask in masks.items() if mask.any()})

        return Bits(max(sizes.values(), default=1), move, codes)

    def _join(self, source: Role, origin: Origin) -> None:
        assert source.outputs is not None
        for path, channels in origin.items():
            entry = self._roles[path].inputs
            assert entry is not None
            at = np.flatnonzero(channels >= 0)
            self._graph.join(self._graph.nodes(source.outputs, channels[at]), self._graph.nodes(entry, at))

    # Channels that only sometimes arrive

    def _refuse_hidden_meetings(self) -> None:
        """Where channels meet in a maximum, a norm or a sorted list, only one that stands out moves what comes of it.

        So let others stand out: half of the channels, then the other half, above and below all that were seen so far; and
        where several channels are known to arrive at a place, all but those. What then moves a position that it is not known
        to reach meets there.
        """
        sources = [path for path in self._arrived if path not in self._graph.reasons]
        if self._hidden_meeting(sources) is None:
            return
        for path in sources:
            layer = self._hidden_meeting([path])
            if layer is not None:
                self._graph.reasons[path] = (
                    f"which of its channels counts depends on the values (a maximum, a norm, an order) before layer '{layer}'"
                )

    def _hidden_meeting(self, sources: list[str]) -> str | None:
        """The first layer that channels of these sources reach only when they are the largest or the smallest."""
        tried: set[tuple[bytes, ...]] = set()
        for masks in self._standing_out(sources):
            # The branches of a block read the same sum: what stands out for one of them stands out for all.
            same = tuple(mask.tobytes() for mask in masks.values())
            if same in tried:
                continue
            tried.add(same)
            moving = {path: mask for path, mask in masks.items() if mask.any()}
            for beyond in (1, -1, FAR, -FAR):
                movement = self._probe.perturb(moving, beyond=beyond)
                if movement.outputs and not self._probe.view.implied:
                    return "of the output"
                for layer, moved in movement.positions.items():
                    if (moved & ~self._known_to_move(layer, moving)).any():
                        return layer
        return None

    def _standing_out(self, sources: list[str]) -> Iterator[dict[str, np.ndarray]]:
        """Channels to let stand out together, by source."""
        random = np.random.default_rng(0)
        half = {path: random.random(_exit_size(self._roles[path])) < 0.5 for path in sources}
        yield half
        yield {path: ~mask for path, mask in half.items()}
        layers = {layer for path in sources for origin in self._arrived[path] for layer in origin}
        for layer in sorted(layers):
            arriving = [
                (path, origin[layer]) for path in sources for origin in self._arrived[path] if layer in origin
            ]
            number = sum((channels >= 0).astype(int) for _, channels in arriving)
            several = np.flatnonzero(np.asarray(number) > 1)
            if len(several):
                fewest = several[np.argmin(np.asarray(number)[several])]
                masks = {path: np.ones(_exit_size(self._roles[path]), bool) for path in sources}
                for path, channels in arriving:
                    if channels[fewest] >= 0:
                        masks[path][channels[fewest]] = False
                yield masks

    def _known_to_move(self, layer: str, moving: Mapping[str, np.ndarray]) -> np.ndarray:
        entry = self._roles[layer].inputs
        known = np.zeros(entry.size if entry is not None else 1, bool)
        for path, mask in moving.items():
            for origin in self._arrived[path]:
                if layer in origin:
                    known |= (origin[layer] >= 0) & mask[origin[layer]]
        return known

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


def _exit_size(role: Role) -> int:
    assert role.outputs is not None
    return role.outputs.size
