"""A prune plan: which entries of which tensors go, and which layer attributes change with them. Plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from paddle import nn
from paddle.nn.layer.rnn import RNNBase, RNNCellBase

from dysens.errors import InputError
from dysens.groups import ChannelGroup, Intake, Port, Removal, Role, Slice, filters_of
from dysens.model import tensor_path
from dysens.pruning._widths import block_attributes


class CannotCutError(InputError):
    """The removal leaves a grouped convolution that cannot exist."""


@dataclass(frozen=True)
class TensorCut:
    """Entries to remove from one tensor along one axis (see `dysens.groups.Slice` for ``blocks``).

    ``order`` names those that remain where they have to be rearranged; empty where they stay in order.
    """

    tensor: str
    axis: int
    size: int
    removed: tuple[int, ...]
    blocks: int = 1
    order: tuple[int, ...] = ()

    @property
    def kept(self) -> np.ndarray:
        """The entries that remain, in their order."""
        if self.order:
            return np.array(self.order)
        keep = np.ones(self.size, bool)
        keep[list(self.removed)] = False
        return np.flatnonzero(keep)


@dataclass(frozen=True)
class TensorShift:
    """What is added to a vector because channels go whose mean it takes over."""

    tensor: str
    values: tuple[float, ...]


class Folded(NamedTuple):
    """What a layer that loses inputs does about it: what its weights and its bias take over."""

    mixes: Sequence[TensorMix]
    shifts: Sequence[TensorShift]


@dataclass(frozen=True, eq=False)
class TensorMix:
    """Entries of a tensor that take over the work of others: ``tensor[into] += matrix @ tensor[of]`` along an axis.

    Attributes:
        tensor: Its path.
        axis: Where the entries lie.
        into: The entries that are added to.
        of: The entries that are mixed into them, as they were before.
        matrix: A row for each of ``into``, a column for each of ``of``.
        rows: The part of the first axis that takes part, from and to; all of it if None. For the second axis of a grouped weight.
        repeat: Every entry stands for so many neighbours along the axis, which are mixed place by place (a flattened map).
    """

    tensor: str
    axis: int
    into: np.ndarray
    of: np.ndarray
    matrix: np.ndarray
    rows: tuple[int, int] | None = None
    repeat: int = 1

    def applied(self, values: np.ndarray) -> np.ndarray:
        """A copy of the tensor's values with the mix carried out."""
        result = np.array(values)
        first = slice(*self.rows) if self.rows is not None else slice(None)
        old = np.moveaxis(values[first], self.axis, 0)
        new = np.moveaxis(result[first], self.axis, 0)
        shape = (-1, self.repeat, *old.shape[1:]) if self.repeat > 1 else old.shape
        added = np.tensordot(self.matrix, old.reshape(shape)[self.of].astype("float64"), 1)
        mixed = old.reshape(shape).astype("float64")
        mixed[self.into] += added
        new[...] = mixed.reshape(old.shape)
        return result


@dataclass(frozen=True)
class PrunePlan:
    """Everything that a cut changes.

    Attributes:
        cuts: What goes from which tensor.
        attributes: New values of layer attributes (whole numbers, or lists of them), by layer path.
        masks: The entries of consuming weights that have to be zero to get the same outputs without cutting.
        shifts: What biases take over; carried out before anything is cut or masked.
        mixes: What weights that stay take over from those that go; carried out first, on the weights as they were.
    """

    cuts: tuple[TensorCut, ...] = ()
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    masks: tuple[TensorCut, ...] = ()
    shifts: tuple[TensorShift, ...] = ()
    mixes: tuple[TensorMix, ...] = ()

    def inside(self, layer: str) -> PrunePlan:
        """The same plan, seen from a network that holds the cut one at the path ``layer``."""
        if not layer:
            return self
        return PrunePlan(
            tuple(replace(cut, tensor=f"{layer}.{cut.tensor}") for cut in self.cuts),
            {f"{layer}.{path}" if path else layer: values for path, values in self.attributes.items()},
            tuple(replace(cut, tensor=f"{layer}.{cut.tensor}") for cut in self.masks),
            tuple(replace(shift, tensor=f"{layer}.{shift.tensor}") for shift in self.shifts),
            tuple(replace(mix, tensor=f"{layer}.{mix.tensor}") for mix in self.mixes),
        )

    @property
    def reorders(self) -> bool:
        """Whether something that stays changes its place."""
        return any(cut.order for cut in self.cuts)

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON values; masks, shifts and mixes are left out, they are only needed before the cut."""
        return {
            "cuts": [
                {
                    "tensor": cut.tensor,
                    "axis": cut.axis,
                    "size": cut.size,
                    "removed": list(cut.removed),
                    **({"blocks": cut.blocks} if cut.blocks > 1 else {}),
                    **({"order": list(cut.order)} if cut.order else {}),
                }
                for cut in self.cuts
            ],
            "attributes": {path: dict(values) for path, values in self.attributes.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PrunePlan:
        """Read what `to_json` wrote."""
        cuts = tuple(
            TensorCut(
                c["tensor"],
                c["axis"],
                c["size"],
                tuple(c["removed"]),
                c.get("blocks", 1),
                tuple(c.get("order", ())),
            )
            for c in data["cuts"]
        )
        return cls(cuts, data["attributes"])


def plan_for(roles: Mapping[str, Role], removal: Removal, model: nn.Layer | None = None) -> PrunePlan:
    """Turn removed channels into a plan.

    Args:
        roles: The layers with weights, by path.
        removal: What goes.
        model: If given, blocks that remember widths are told the new ones; a plan that is only for masking needs none.

    Raises:
        CannotCutError: If the groups of a grouped convolution would no longer be equally wide.
    """
    cuts: dict[tuple[str, int], TensorCut] = {}
    masks: dict[tuple[str, int], TensorCut] = {}
    attributes: dict[str, dict[str, Any]] = {}
    shifts: dict[str, TensorShift] = {}
    mixes: list[TensorMix] = []
    for layer, ports in _by_layer(removal).items():
        role = roles.get(layer)
        whole = _whole_groups(role, ports) if role is not None and role.conv_groups > 1 else 0
        for port, channels in ports.items():
            for piece in port.slices:
                cut = _tensor_cut(port, piece, channels, removal.orders.get(port))
                if port.reads:
                    masks[piece.tensor, piece.axis] = cut
                # With whole groups gone along the first axis, the second one (of a single group) is as it was.
                if not (whole and piece.blocks > 1):
                    cuts[piece.tensor, piece.axis] = cut
        if role is not None:
            attributes.update(_attributes(role, ports, whole))
        if role is None or role.inputs is None or role.inputs not in ports:
            continue
        if role.intake is not None:
            shifts[role.intake.offset] = _shift(role, role.intake, ports[role.inputs])
        if role.fold is not None:
            folded = role.fold(role, ports[role.inputs])
            mixes += folded.mixes
            shifts.update({shift.tensor: shift for shift in folded.shifts})
    if model is not None:
        attributes.update(_of_blocks(model, roles, removal, attributes))
        _remember(model, removal, attributes)
    return PrunePlan(
        tuple(cuts.values()), attributes, tuple(masks.values()), tuple(shifts.values()), tuple(mixes)
    )


def _of_blocks(
    model: nn.Layer, roles: Mapping[str, Role], removal: Removal, attributes: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    widths: dict[str, dict[str, tuple[int, int]]] = {"in": {}, "out": {}}
    for port, gone in removal.items():
        for side in ("in", "out") if port.side == "through" else (port.side,):
            widths.setdefault(side, {})[port.layer] = (port.size, port.size - len(gone))
    groups = {
        path: (roles[path].layer._groups, values["_groups"])
        for path, values in attributes.items()
        if "_groups" in values
    }
    return block_attributes(model, roles, widths["in"], widths["out"], groups)


def _remember(model: nn.Layer, removal: Removal, attributes: dict[str, dict[str, Any]]) -> None:
    """Add the attributes that are known, from a trial, to follow widths.

    Raises:
        CannotCutError: A width would be left that an attribute cannot tell.
    """
    rules = [rule for rule in removal.remembered if rule.port in removal]
    blocks = dict(model.named_sublayers(include_self=True)) if rules else {}
    for rule in rules:
        own = attributes.setdefault(rule.block, {})
        if rule.stays:
            own.pop(rule.name, None)
            if not own:
                del attributes[rule.block]
            continue
        now = own.get(rule.name, getattr(blocks[rule.block], rule.name))
        value = rule.after(now, removal.kept(rule.port))
        if value is None:
            raise CannotCutError(
                f"'{rule.name}' of layer '{rule.block}' is {now} for {rule.port.size} channels of layer '{rule.port.layer}', "
                f"and cannot tell {len(removal.kept(rule.port))}"
            )
        own[rule.name] = value


def translated(removal: Removal, history: Iterable[PrunePlan], roles: Mapping[str, Role]) -> Removal:
    """Channels of the whole model in the numbering of the cut one.

    Args:
        removal: What goes, in the numbering of the model before ``history``; none of it may be gone already.
        history: What was cut since.
        roles: The layers as they are now.
    """
    result = Removal()
    for port, (current, remaining) in _ports_now(removal, history, roles).items():
        place = np.full(port.size, -1)
        place[remaining] = np.arange(len(remaining))
        result[current] = np.sort(place[removal[port]])
        if port in removal.orders:
            order = place[removal.orders[port]]
            result.orders[current] = order[order >= 0]
        result.remembered += tuple(r.at(current, remaining) for r in removal.remembered if r.port == port)
    return result


def group_now(group: ChannelGroup, history: Iterable[PrunePlan], roles: Mapping[str, Role]) -> ChannelGroup:
    """A group of the whole model with the widths that its layers have in the cut one; its units stay as they are.

    Other groups may have shared a layer with it (the reader of a concatenation), which is narrower now.

    Args:
        group: The group; none of its own units may be gone already.
        history: What was cut since it was found.
        roles: The layers as they are now.
    """
    ports = _ports_now(group.units, history, roles)
    pieces = {(piece.tensor, piece.axis): piece for port, _ in ports.values() for piece in port.slices}
    return replace(
        group,
        units={current: group.units[port][remaining] for port, (current, remaining) in ports.items()},
        scored=tuple((ports[port][0], pieces[piece.tensor, piece.axis]) for port, piece in group.scored),
        remembered=tuple(rule.at(*ports[rule.port]) for rule in group.remembered),
    )


def _ports_now(
    ports: Iterable[Port], history: Iterable[PrunePlan], roles: Mapping[str, Role]
) -> dict[Port, tuple[Port, np.ndarray]]:
    """For ports of the whole model, what they are in the cut one, and which of their channels are left."""
    left: dict[tuple[str, int], np.ndarray] = {}  # which entries of the whole tensor are where now
    for plan in history:
        for item in plan.cuts:
            before = left.get((item.tensor, item.axis))
            left[item.tensor, item.axis] = item.kept if before is None else before[item.kept]
    now = {
        (p.layer, p.side): p
        for role in roles.values()
        for p in (role.inputs, role.outputs, *role.inside)
        if p is not None
    }
    result = {}
    for port in ports:
        remaining = kept_channels(port, left)
        if remaining is None:
            remaining = np.arange(port.size)
        # A parameter that no layer owns has no role to ask.
        current = now.get((port.layer, port.side), replace(port, size=len(remaining)))
        result[port] = (current, remaining)
    return result


def kept_channels(port: Port, kept: Mapping[tuple[str, int], np.ndarray]) -> np.ndarray | None:
    """The channels of a port that are left; None if no tensor of it has lost any.

    Args:
        port: The port, as it was before.
        kept: The entries that are left, by tensor and axis.
    """
    if port.parts:
        firsts = np.cumsum([0, *(part.size for part in port.parts)])
        parts = [kept_channels(part, kept) for part in port.parts]
        whole = [np.arange(part.size) if left is None else left for part, left in zip(port.parts, parts)]
        if all(left is None for left in parts):
            return None
        return np.concatenate([first + left for first, left in zip(firsts, whole)])
    piece = next((piece for piece in port.slices if (piece.tensor, piece.axis) in kept), None)
    if piece is None:
        return None
    entries = kept[piece.tensor, piece.axis]
    return entries[entries < port.size] if piece.gates > 1 else entries


def _by_layer(removal: Removal) -> dict[str, dict[Port, np.ndarray]]:
    layers: dict[str, dict[Port, np.ndarray]] = {}
    for port, channels in removal.items():
        layers.setdefault(port.layer, {})[port] = channels
    return layers


def _tensor_cut(port: Port, piece: Slice, channels: np.ndarray, order: np.ndarray | None) -> TensorCut:
    kept = () if order is None or (np.diff(order) > 0).all() else tuple(int(c) for c in order)
    if piece.gates > 1:
        rows = (np.arange(piece.gates)[:, None] * port.size + channels).reshape(-1)
        return TensorCut(piece.tensor, piece.axis, port.size * piece.gates, tuple(int(row) for row in rows))
    return TensorCut(piece.tensor, piece.axis, port.size, tuple(int(c) for c in channels), piece.blocks, kept)


def _shift(role: Role, intake: Intake, channels: np.ndarray) -> TensorShift:
    """What the layer gets on average from these channels, as it comes out."""
    assert role.inputs is not None
    weight = filters_of(role.layer.weight, role.inputs.slices[0])[channels].astype("float64")
    through = weight.reshape(*weight.shape[:2], -1).sum(axis=2)  # by channel read and channel made
    return TensorShift(intake.offset, tuple((intake.sign * intake.mean[channels] @ through).tolist()))


def _whole_groups(role: Role, ports: Mapping[Port, np.ndarray]) -> int:
    """How many whole groups of a grouped convolution go; 0 if single channels go, the same number from each group."""
    counts = {}
    for port in (role.inputs, role.outputs):
        assert port is not None
        width = port.size // role.conv_groups
        gone = np.bincount(ports.get(port, np.empty(0, int)) // width, minlength=role.conv_groups)
        counts[port] = (gone, width)
    hit = np.any([gone > 0 for gone, _ in counts.values()], axis=0)
    if all((gone[hit] == width).all() for gone, width in counts.values()):
        return int(hit.sum())
    for port, (gone, width) in counts.items():
        if len(set(gone)) > 1 or gone[0] == width:
            raise CannotCutError(
                f"grouped convolution '{role.path}' would keep unequal numbers of {port.side}put channels in its "
                f"{role.conv_groups} groups"
            )
    return 0


def _attributes(role: Role, ports: Mapping[Port, np.ndarray], whole_groups: int) -> dict[str, dict[str, int]]:
    """The attributes that Paddle's layers keep beside their weights."""
    layer = role.layer
    left = {port.side: port.size - len(channels) for port, channels in ports.items()}
    new: dict[str, int] = {}
    if "through" in left:
        names = (
            ("_in_channels", "_out_channels", "_groups")
            if not role.is_norm
            else ("_num_features", "_num_parameters")
        )
        new.update(dict.fromkeys(names, left["through"]))
    if "in" in left:
        new.update({"_in_channels": left["in"], "input_size": left["in"]})
    if "out" in left:
        new.update({"_out_channels": left["out"], "_embedding_dim": left["out"]})
    if whole_groups:
        new["_groups"] = role.conv_groups - whole_groups
    hidden = _hidden_size(role, ports)
    if hidden is not None:
        new["hidden_size"] = hidden
    result = {role.path: {name: value for name, value in new.items() if hasattr(layer, name)}}
    if isinstance(layer, RNNBase):
        result.update(_of_cells(role, left.get("in"), hidden))
    return {path: values for path, values in result.items() if values}


def _hidden_size(role: Role, ports: Mapping[Port, np.ndarray]) -> int | None:
    """What is left of a recurrent layer's hidden size; None if it stays.

    Raises:
        CannotCutError: Its layers and directions would be of several sizes.
    """
    sizes = {port.size - len(ports.get(port, ())) for port in role.inside if port.makes}
    if len(sizes) > 1:
        raise CannotCutError(
            f"the layers and directions inside recurrent layer '{role.path}' would no longer be of one hidden size"
        )
    return sizes.pop() if any(port.makes for port in ports) else None


def _of_cells(role: Role, entry: int | None, hidden: int | None) -> dict[str, dict[str, int]]:
    """The cells inside a recurrent layer share its weights, and know their widths too."""
    layer = role.layer
    first = {id(parameter) for name, parameter in layer._parameters.items() if "_l0" in name}
    found: dict[str, dict[str, int]] = {}
    for inner, cell in layer.named_sublayers():
        if not isinstance(cell, RNNCellBase):
            continue
        values = {} if hidden is None else {"hidden_size": hidden}
        is_first = any(id(parameter) in first for parameter in cell._parameters.values())
        if is_first and entry is not None:
            values["input_size"] = entry
        elif not is_first and hidden is not None:
            values["input_size"] = hidden * layer.num_directions
        found[tensor_path(role.path, inner)] = values
    return found
