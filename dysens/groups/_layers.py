"""Layers that own weights: what they do with channels, and where those channels live in their tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.nn.layer.conv import _ConvNd
from paddle.nn.layer.rnn import RNNBase, RNNCellBase
from paddle.vision.ops import DeformConv2D

from dysens.model import tensor_path, tensors_by_path

_TRANSPOSED = (nn.Conv1DTranspose, nn.Conv2DTranspose, nn.Conv3DTranspose)
_NORMS = (
    nn.BatchNorm,
    nn.BatchNorm1D,
    nn.BatchNorm2D,
    nn.BatchNorm3D,
    nn.SyncBatchNorm,
    nn.InstanceNorm1D,
    nn.InstanceNorm2D,
    nn.InstanceNorm3D,
)


FILTERS, ALL = "filters", "all"
"""Which weights make units: 4-D ones, or those of every layer that can be narrowed."""


@dataclass(frozen=True)
class Slice:
    """Where the channels of a port lie in one tensor.

    With ``blocks`` > 1 the axis is the second one of a grouped convolution's weight: channel ``b * size + i`` is entry ``i``
    along the axis within the b-th block of the first axis. With ``gates`` > 1 the axis holds all channels once for each gate
    of a recurrent layer: channel ``i`` is the entries ``g * size + i``.
    """

    tensor: str
    axis: int
    blocks: int = 1
    gates: int = 1


@dataclass(frozen=True)
class Port:
    """One side of a layer: ``size`` channels, and every tensor that has to be cut along with them."""

    layer: str
    side: str  # "in", "out", "through"; "own" for a parameter that no known layer owns; see `recurrent_ports` for others
    size: int
    slices: tuple[Slice, ...]
    parts: tuple[Port, ...] = ()  # ports that make it up side by side, where it has no tensors itself

    @property
    def name(self) -> str:
        """The port in words, for messages."""
        return f"{self.layer} ({self.side})"

    @property
    def makes(self) -> bool:
        """Whether it is the hidden units of one direction of one layer inside a recurrent layer."""
        return self.side.startswith("hidden")

    @property
    def reads(self) -> bool:
        """Whether its tensors read the channels: zeros there silence them."""
        return self.side == "in" or self.reads_inside

    @property
    def reads_inside(self) -> bool:
        """Whether a recurrent layer reads its own hidden units there: at the next time step, or in its next layer."""
        return self.side.startswith("reads")


@dataclass(frozen=True, eq=False)
class Intake:
    """What a layer reads on average, and the tensor that can make up for a part of it.

    Attributes:
        mean: Of every channel that it reads.
        offset: The path of its bias, or of the running mean of the batch norm behind it.
        sign: Whether that tensor is added (1) or taken off (-1).
    """

    mean: np.ndarray
    offset: str
    sign: float


@dataclass(frozen=True, eq=False)
class Role:
    """A layer that owns weights, and its ports. For a passing layer both ports are one and the same."""

    path: str
    layer: nn.Layer
    kind: str  # "mixer" or "passing"
    inputs: Port | None
    outputs: Port | None
    input_axis: int
    output_axis: int
    conv_groups: int = 1
    fixed_outputs: bool = False  # the outputs cannot be cut (the cell of a recurrent layer)
    inside: tuple[Port, ...] = ()  # the hidden units of a recurrent layer, and where it reads them itself
    intake: Intake | None = None  # where data were looked at
    fold: Callable[[Role, np.ndarray], Any] | None = (
        None  # from removed inputs to what makes up for them, see `plan.Folded`
    )

    @property
    def is_norm(self) -> bool:
        """Whether the layer only rescales what it gets, so that a probe may pass it by."""
        return self.kind == "passing" and not isinstance(self.layer, _ConvNd)

    def makes_units(self, layers: str) -> bool:
        """Whether pruning is about what the layer makes.

        Args:
            layers: `FILTERS` for 4-D weights only, `ALL` for linear layers and convolutions of any rank as well.
        """
        if self.kind != "mixer" or self.outputs is None or isinstance(self.layer, nn.Embedding):
            return False
        return layers == ALL or (not self.inside and self.layer.weight.ndim == 4)

    def is_fixed(self, layers: str) -> bool:
        """Whether what the layer makes stays as it is: hidden units of recurrent layers are cut on request only."""
        return self.fixed_outputs or (bool(self.inside) and layers != ALL)

    def unit_weights(self, layers: str) -> list[str]:
        """The paths of the weights that pruning is about; those of a recurrent cell get a reason."""
        if isinstance(self.layer, (RNNBase, RNNCellBase)):
            names = [name for name in self.layer._parameters if name.startswith("weight")]
            return [tensor_path(self.path, name) for name in names] if layers == ALL else []
        return [tensor_path(self.path, "weight")] if self.makes_units(layers) else []

    @property
    def averages(self) -> bool:
        """Whether the mean of what comes out follows from the means of what goes in, by the sums over the kernel."""
        plain = isinstance(self.layer, _ConvNd) and not isinstance(self.layer, _TRANSPOSED)
        return self.kind == "mixer" and self.conv_groups == 1 and (plain or isinstance(self.layer, nn.Linear))


def roles_of(model: nn.Layer) -> dict[str, Role]:
    """The role of every layer that has one, by path; what lies inside such a layer (an LSTM's cells) is part of it."""
    roles: dict[str, Role] = {}
    inside: set[int] = set()
    for path, layer in model.named_sublayers(include_self=True):
        if id(layer) in inside:
            continue
        role = role_of(path, layer)
        if role is not None:
            roles[path] = role
            inside.update(id(child) for child in layer.sublayers())
    return roles


def role_of(path: str, layer: nn.Layer) -> Role | None:
    """The role of one layer, or None if dysens lets it simply run."""
    if isinstance(layer, (_ConvNd, DeformConv2D)):
        return _convolution(path, layer)
    if isinstance(layer, nn.Linear):
        rows, columns = layer.weight.shape
        return Role(
            path,
            layer,
            "mixer",
            inputs=_port(path, "in", rows, layer, weight=0),
            outputs=_port(path, "out", columns, layer, weight=1, bias=0),
            input_axis=-1,
            output_axis=-1,
        )
    if isinstance(layer, nn.Embedding):
        output_port = _port(path, "out", layer.weight.shape[1], layer, weight=1)
        return Role(path, layer, "mixer", None, output_port, input_axis=-1, output_axis=-1)
    if isinstance(layer, (RNNBase, RNNCellBase)):
        return _recurrent(path, layer)
    if isinstance(layer, _NORMS) or (isinstance(layer, nn.PReLU) and layer._num_parameters > 1):
        return _per_channel(path, layer)
    return None


def _port(path: str, side: str, size: int, layer: nn.Layer, **axes: int) -> Port:
    present = {name: axis for name, axis in axes.items() if getattr(layer, name) is not None}
    return Port(
        path, side, int(size), tuple(Slice(tensor_path(path, n), axis) for n, axis in present.items())
    )


def _convolution(path: str, layer: Any) -> Role:
    groups = layer._groups
    first, second = layer.weight.shape[:2]
    transposed = isinstance(layer, _TRANSPOSED)
    axis = -1 if getattr(layer, "_data_format", "NCHW").endswith("C") else 1
    if groups > 1 and groups == first and second == 1 and groups == layer._in_channels:
        through = _port(path, "through", first, layer, weight=0, bias=0)
        return Role(path, layer, "passing", through, through, axis, axis)
    # The first axis of the weight belongs to one side, the second (of one group only) to the other.
    outer = Slice(tensor_path(path, "weight"), 0)
    inner = Slice(tensor_path(path, "weight"), 1, blocks=groups)
    bias = (Slice(tensor_path(path, "bias"), 0),) if layer.bias is not None else ()
    if transposed:
        entry = Port(path, "in", first, (outer,))
        output_port = Port(path, "out", second * groups, (inner, *bias))
    else:
        entry = Port(path, "in", second * groups, (inner,))
        output_port = Port(path, "out", first, (outer, *bias))
    return Role(path, layer, "mixer", entry, output_port, axis, axis, conv_groups=groups)


def _recurrent(path: str, layer: Any) -> Role:
    names = [n for n in layer._parameters if n.startswith("weight_ih") and ("_l" not in n or "_l0" in n)]
    entry = Port(path, "in", layer.input_size, tuple(Slice(tensor_path(path, n), 1) for n in names))
    role = Role(path, layer, "mixer", entry, None, input_axis=-1, output_axis=-1, fixed_outputs=True)
    # The states of a cell are carried by somebody else's code; a projection makes other channels of the hidden units.
    if not isinstance(layer, RNNBase) or getattr(layer, "proj_size", False):
        return role
    outputs, inside = recurrent_ports(path, layer)
    return replace(role, outputs=outputs, inside=inside, fixed_outputs=False)


def recurrent_ports(path: str, layer: Any) -> tuple[Port, tuple[Port, ...]]:
    """What a recurrent layer makes, and the ports inside it.

    For every layer and direction in it (``l0``, ``l0_reverse``, ``l1`` ...): ``hidden_l0`` are its hidden units, rows of the
    weights of all gates and of the biases; ``reads_l0`` are the columns by which it reads them at the next time step, and
    ``reads_in_l1`` those by which the next layer reads them, the units of both directions side by side.
    """
    suffixes = ("", "_reverse")[: layer.num_directions]
    inside: list[Port] = []
    made: tuple[Port, ...] = ()
    for number in range(layer.num_layers):
        own = [f"l{number}{suffix}" for suffix in suffixes]
        if number:
            columns = tuple(Slice(tensor_path(path, f"weight_ih_{name}"), 1) for name in own)
            inside.append(Port(path, f"reads_in_l{number}", layer.hidden_size * len(own), columns, made))
        made = tuple(_hidden(path, layer, name) for name in own)
        reading = (Slice(tensor_path(path, f"weight_hh_{name}"), 1) for name in own)
        inside += made
        inside += [
            Port(path, f"reads_{name}", layer.hidden_size, (piece,), (port,))
            for name, piece, port in zip(own, reading, made)
        ]
    return Port(path, "out", layer.hidden_size * len(made), (), made), tuple(inside)


def _hidden(path: str, layer: Any, name: str) -> Port:
    tensors = [f"{kind}_{name}" for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    present = [each for each in tensors if getattr(layer, each, None) is not None]
    gates = {"LSTM": 4, "GRU": 3}.get(layer.mode, 1)
    return Port(
        path,
        f"hidden_{name}",
        layer.hidden_size,
        tuple(Slice(tensor_path(path, each), 0, gates=gates) for each in present),
    )


def _per_channel(path: str, layer: nn.Layer) -> Role | None:
    tensors = {**layer._parameters, **layer._buffers}
    vectors = {name: t for name, t in tensors.items() if isinstance(t, paddle.Tensor) and t.ndim == 1}
    if not vectors:
        return None
    size = next(iter(vectors.values())).shape[0]
    axis = -1 if _layout(layer).endswith("C") and _layout(layer) != "NC" else 1
    port = Port(path, "through", int(size), tuple(Slice(tensor_path(path, name), 0) for name in vectors))
    return Role(path, layer, "passing", port, port, axis, axis)


def _layout(layer: Any) -> str:
    return str(getattr(layer, "_data_format", getattr(layer, "_data_layout", "NCHW")))


def filters_by_path(model: nn.Layer, layers: str = FILTERS) -> dict[str, paddle.Tensor]:
    """Every weight that pruning is about, once, under its first path: 4-D parameters, or those of all layers."""
    found: dict[int, str] = {}
    roles = roles_of(model) if layers == ALL else {}
    wanted = {name for role in roles.values() for name in role.unit_weights(layers)}
    parameters = {
        path: t
        for path, t in tensors_by_path(model).items()
        if t.persistable and (t.ndim == 4 or path in wanted)
    }
    for path, tensor in parameters.items():
        found.setdefault(id(tensor), path)
    return {path: parameters[path] for path in found.values()}


def filters_of(tensor: paddle.Tensor, piece: Slice) -> np.ndarray:
    """The channels of a port along axis 0 of a weight, whatever axis they lie on."""
    weight = tensor.astype("float32").numpy()
    if piece.gates > 1:
        each = np.stack(np.split(np.moveaxis(weight, piece.axis, 0), piece.gates), axis=1)
        return each.reshape(each.shape[0], each.shape[1], -1)
    if piece.blocks == 1:
        return np.moveaxis(weight, piece.axis, 0)
    # The channels of a grouped transposed convolution are spread over blocks of its first axis.
    blocks = weight.reshape(piece.blocks, weight.shape[0] // piece.blocks, *weight.shape[1:])
    return np.moveaxis(blocks, 2, 1).reshape(-1, blocks.shape[1], *weight.shape[2:])
