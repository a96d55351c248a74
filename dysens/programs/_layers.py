"""Which operations become layers of `paddle.nn`. This says what owns weights, not how anything is pruned."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
from paddle import nn
from paddle.vision.ops import DeformConv2D

from dysens.programs._graph import Graph, Op

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Made:
    """A layer in place of one or more operations.

    Attributes:
        layer: Its tensors still hold anything.
        tensors: Which parameter each of its attributes is.
        inputs: Keys of what it is called with.
        outputs: Keys of what it gives.
        covers: Places of the operations that it stands for.
        states: Of a recurrent layer, keys of what it begins with; none for zeros.
    """

    layer: nn.Layer
    tensors: dict[str, str]
    inputs: list[str]
    outputs: list[str]
    covers: frozenset[int]
    states: list[str] = field(default_factory=list)


_CONVOLUTIONS = {"conv2d": nn.Conv2D, "depthwise_conv2d": nn.Conv2D, "conv3d": nn.Conv3D}
_TRANSPOSED = {
    "conv2d_transpose": nn.Conv2DTranspose,
    "depthwise_conv2d_transpose": nn.Conv2DTranspose,
    "conv3d_transpose": nn.Conv3DTranspose,
}
_BATCH_NORMS = {2: nn.BatchNorm1D, 3: nn.BatchNorm1D, 4: nn.BatchNorm2D, 5: nn.BatchNorm3D}
_INSTANCE_NORMS = {3: nn.InstanceNorm1D, 4: nn.InstanceNorm2D, 5: nn.InstanceNorm3D}


class LayerMaker:
    """Makes layers for the operations of a graph.

    Args:
        graph: The program.
        weights: Its parameters, by name.
    """

    def __init__(self, graph: Graph, weights: Mapping[str, Array]) -> None:
        self._graph, self._weights = graph, weights
        self._uses, self._readers, self._writers = graph.uses(), graph.readers(), graph.writers()
        self._makers: dict[str, Callable[[Op], Made | None]] = {
            **dict.fromkeys(_CONVOLUTIONS, self._convolution),
            **dict.fromkeys(_TRANSPOSED, self._transposed),
            "deformable_conv": self._deformable,
            "batch_norm": self._batch_norm,
            "instance_norm": self._instance_norm,
            "layer_norm": self._layer_norm,
            "group_norm": self._group_norm,
            "prelu": self._prelu,
            "matmul": self._linear,
            "mul": self._flat_linear,
            "embedding": self._embedding,
            "dropout": self._dropout,
            "rnn": self._recurrent,
        }

    def make(self, op: Op) -> Made | None:
        """The layer for an operation; None if there is none, or its weights are not parameters."""
        maker = self._makers.get(op.name)
        return maker(op) if maker is not None else None

    # What the graph says

    def _parameter(self, op: Op, *slots: str) -> str | None:
        return self._graph.parameters.get(op.input(*slots) or "")

    def _rank(self, key: str | None) -> int:
        return len(self._graph.shapes.get(key or "", ()))

    def _made(self, op: Op, layer: nn.Layer, tensors: Mapping[str, str | None], x: str, out: str) -> Made:
        known = {attribute: name for attribute, name in tensors.items() if name is not None}
        return Made(layer, known, [x], [out], frozenset([op.index]))

    def _with_bias(self, made: Made, width: int) -> Made:
        """Takes an addition of a parameter along the channels, right behind, into the layer."""
        (out,) = made.outputs
        readers = self._readers.get(out, [])
        if self._uses[out] != 1 or readers[0].name != "add":
            return made
        add = readers[0]
        other = next((key for key in add.reads() if key != out), "")
        shaper = self._writers.get(other)
        source = other
        if shaper is not None and shaper.name == "reshape":
            source = shaper.input("x") or ""
        name = self._graph.parameters.get(source)
        if (
            name is None
            or self._weights[name].size != width
            or not self._along_channels(other, add, made, width)
        ):
            return made
        made.layer.bias = made.layer.create_parameter([width], is_bias=True)
        tensors = {**made.tensors, "bias": name}
        return Made(made.layer, tensors, made.inputs, [add.writes()[0]], made.covers | {add.index})

    def _along_channels(self, key: str, add: Op, made: Made, width: int) -> bool:
        shape = self._graph.shapes.get(key, ())
        rank = self._rank(made.outputs[0])
        channels_last = isinstance(made.layer, nn.Linear) or made.layer._data_format.endswith("C")
        axis = add.attributes.get("axis", -1)
        if len(shape) == 1:
            return axis in (-1, rank - 1) if channels_last else axis == 1 and rank > 1
        wanted = (*[1] * (rank - 1), width) if channels_last else (1, width, *[1] * (rank - 2))
        return shape == wanted[rank - len(shape) :] and (channels_last or len(shape) >= rank - 1)

    # Convolutions

    def _convolution(self, op: Op) -> Made | None:
        name = self._parameter(op, "filter")
        if name is None or op.input("bias", "residualdata") is not None:
            return None
        a, shape = op.attributes, self._weights[name].shape
        layer = _CONVOLUTIONS[op.name](
            shape[1] * a["groups"], shape[0], list(shape[2:]), **_geometry(a), bias_attr=False
        )
        return self._filtering(op, layer, name, shape[0])

    def _transposed(self, op: Op) -> Made | None:
        name = self._parameter(op, "filter")
        if name is None:
            return self._repeating(op)
        sized = op.attributes.get("output_size") or op.input("outputsizetensor", "outputsize")
        constant = self._writers.get(op.input("output_size") or "")
        sized = sized or (constant is not None and constant.attributes.get("value"))
        if sized or op.input("bias") is not None:
            return None
        a, shape = op.attributes, self._weights[name].shape
        more = {"output_padding": list(a["output_padding"])} if a.get("output_padding") else {}
        width = shape[1] * a["groups"]
        layer = _TRANSPOSED[op.name](
            shape[0], width, list(shape[2:]), **_geometry(a), **more, bias_attr=False
        )
        return self._filtering(op, layer, name, width)

    def _repeating(self, op: Op) -> Made | None:
        """Upsampling as `dysens.compiled.interpolation_rewritten` writes it: every pixel times a block of ones."""
        x, out, a = op.input("input", "x"), op.output("out", "output"), op.attributes
        filters = self._writers.get(op.input("filter") or "")
        if x is None or out is None or filters is None or filters.name != "full":
            return None
        shape = self._graph.shapes.get(filters.writes()[0], ())
        repeats = len(shape) == 4 and shape[:2] == (a["groups"], 1) and list(shape[2:]) == list(a["strides"])
        if (
            not repeats
            or any(a["paddings"])
            or any(a.get("output_padding") or ())
            or any(n != 1 for n in a["dilations"])
        ):
            return None
        if float(filters.attributes["value"]) != 1.0 or _layout(a, "data_format") != "NCHW":
            return None
        layer = nn.Upsample(scale_factor=[float(n) for n in a["strides"]], mode="nearest")
        return self._made(op, layer, {}, x, out)

    def _filtering(self, op: Op, layer: nn.Layer, name: str, width: int) -> Made | None:
        x, out = op.input("input", "x"), op.output("out", "output")
        if x is None or out is None:
            return None
        return self._with_bias(self._made(op, layer, {"weight": name}, x, out), width)

    def _deformable(self, op: Op) -> Made | None:
        name, offset, mask = self._parameter(op, "filter"), op.input("offset"), op.input("mask")
        x, out = op.input("input", "x"), op.output("out", "output")
        if name is None or offset is None or x is None or out is None:
            return None
        a, shape = op.attributes, self._weights[name].shape
        layer = DeformConv2D(
            shape[1] * a["groups"],
            shape[0],
            list(shape[2:]),
            stride=list(a["strides"]),
            padding=list(a["paddings"]),
            dilation=list(a["dilations"]),
            deformable_groups=a["deformable_groups"],
            groups=a["groups"],
            bias_attr=False,
        )
        inputs = [x, offset, *([mask] if mask is not None else [])]
        return Made(layer, {"weight": name}, inputs, [out], frozenset([op.index]))

    # Norms

    def _batch_norm(self, op: Op) -> Made | None:
        names = {
            attribute: self._parameter(op, slot)
            for attribute, slot in (
                ("weight", "scale"),
                ("bias", "bias"),
                ("_mean", "mean"),
                ("_variance", "variance"),
            )
        }
        x, out, a = op.input("x"), op.output("out", "y"), op.attributes
        kind = _BATCH_NORMS.get(self._rank(x))
        if None in (*names.values(), x, out) or kind is None:
            return None
        layout = _layout(a, "data_format", "data_layout")
        more = {"data_format": layout} if kind is nn.BatchNorm2D else {}
        if layout.endswith("C") and not more:
            return None
        size = self._weights[str(names["weight"])].size
        layer = kind(size, momentum=a["momentum"], epsilon=a["epsilon"], **more)
        return self._made(op, layer, names, str(x), str(out))

    def _instance_norm(self, op: Op) -> Made | None:
        x, out = op.input("x"), op.output("out", "y")
        weight, bias = self._parameter(op, "scale"), self._parameter(op, "bias")
        kind = _INSTANCE_NORMS.get(self._rank(x))
        if kind is None or x is None or out is None or weight is None or bias is None:
            return None
        layer = kind(self._weights[weight].size, epsilon=op.attributes["epsilon"])
        return self._made(op, layer, {"scale": weight, "bias": bias}, x, out)

    def _layer_norm(self, op: Op) -> Made | None:
        x, out, a = op.input("x"), op.output("out", "y"), op.attributes
        weight, bias = self._parameter(op, "scale"), self._parameter(op, "bias")
        shape = self._graph.shapes.get(x or "", ())[a["begin_norm_axis"] :]
        if x is None or out is None or not shape or min(shape) <= 0 or weight is None:
            return None
        if op.input("bias") is not None and bias is None:
            return None
        layer = nn.LayerNorm(list(shape), a["epsilon"], bias_attr=None if bias is not None else False)
        return self._made(op, layer, {"weight": weight, "bias": bias}, x, out)

    def _group_norm(self, op: Op) -> Made | None:
        x, out, a = op.input("x"), op.output("out", "y"), op.attributes
        weight, bias = self._parameter(op, "scale"), self._parameter(op, "bias")
        if x is None or out is None or weight is None or bias is None:
            return None
        layout = _layout(a, "data_format", "data_layout")
        layer = nn.GroupNorm(a["groups"], self._weights[weight].size, a["epsilon"], data_format=layout)
        return self._made(op, layer, {"weight": weight, "bias": bias}, x, out)

    def _prelu(self, op: Op) -> Made | None:
        x, out, name = op.input("x"), op.output("out"), self._parameter(op, "alpha")
        if x is None or out is None or name is None or op.attributes.get("mode") == "element":
            return None
        size = self._weights[name].size
        layer = nn.PReLU(size, data_format=_layout(op.attributes, "data_format"))
        return self._made(op, layer, {"_weight": name}, x, out)

    # What is linear

    def _linear(self, op: Op) -> Made | None:
        a, name, x, out = op.attributes, self._parameter(op, "y"), op.input("x"), op.output("out")
        turned = any(a.get(flag, False) for flag in ("transpose_x", "transpose_y", "trans_x", "trans_y"))
        if name is None or x is None or out is None or turned or self._weights[name].ndim != 2:
            return None
        if a.get("alpha", 1.0) != 1.0 or self._rank(x) < 2:
            return None
        rows, columns = self._weights[name].shape
        layer = nn.Linear(rows, columns, bias_attr=False)
        return self._with_bias(self._made(op, layer, {"weight": name}, x, out), columns)

    def _flat_linear(self, op: Op) -> Made | None:
        a, rank = op.attributes, self._rank(op.input("x"))
        return self._linear(op) if a["y_num_col_dims"] == 1 and a["x_num_col_dims"] == rank - 1 else None

    def _embedding(self, op: Op) -> Made | None:
        x, out, name = op.input("x", "ids"), op.output("out"), self._parameter(op, "weight", "w")
        if name is None or x is None or out is None:
            return None
        rows, columns = self._weights[name].shape
        padding = op.attributes.get("padding_idx", -1)
        layer = nn.Embedding(rows, columns, padding_idx=None if padding == -1 else padding)
        return self._made(op, layer, {"weight": name}, x, out)

    def _dropout(self, op: Op) -> Made | None:
        """In an export it does nothing; a layer lets it take part in training on."""
        x, out, a = op.input("x"), op.output("out"), op.attributes
        share = a.get("dropout_prob", a.get("p"))
        constant = self._writers.get(op.input("p") or "")
        if share is None and constant is not None:
            share = constant.attributes.get("value")
        if x is None or out is None or not isinstance(share, (int, float)) or op.input("seed", "seed_tensor"):
            return None
        mode = a.get("mode", a.get("dropout_implementation", "downgrade_in_infer"))
        return self._made(op, nn.Dropout(float(share), mode=_DROPOUTS.get(mode, mode)), {}, x, out)

    # Recurrent

    def _recurrent(self, op: Op) -> Made | None:
        a = op.attributes
        x, out, length = (
            op.input("x", "input"),
            op.output("out"),
            op.input("sequence_length", "sequencelength"),
        )
        names = [self._graph.parameters.get(key, "") for key in self._listed(op, "weight_list", "weightlist")]
        directions = 2 if a["is_bidirec"] else 1
        count = a["num_layers"] * directions
        if x is None or out is None or len(names) != 4 * count or "" in names or len(set(names)) < len(names):
            return None
        kinds = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN_TANH": nn.SimpleRNN, "RNN_RELU": nn.SimpleRNN}
        settings: dict[str, Any] = {"activation": a["mode"][4:].lower()} if "RNN" in a["mode"] else {}
        layer = kinds[a["mode"]](
            self._weights[names[0]].shape[1],
            a["hidden_size"],
            a["num_layers"],
            direction="bidirect" if directions == 2 else "forward",
            time_major=True,
            dropout=a["dropout_prob"],
            **settings,
        )
        tensors = {}
        for number in range(count):
            suffix = f"_l{number // directions}{'_reverse' if number % directions else ''}"
            for which, attribute in enumerate(("weight_ih", "weight_hh", "bias_ih", "bias_hh")):
                at = 2 * number + which % 2 + (2 * count if which > 1 else 0)
                tensors[attribute + suffix] = names[at]
        states = self._listed(op, "pre_state", "prestate")
        begins = [] if all(map(self._is_zero, states)) else states
        inputs = [x, *([length] if length is not None else [])]
        slots = {slot.lower(): keys for slot, keys in op.outputs.items()}
        return Made(layer, tensors, inputs, [out, *slots.get("state", [])], frozenset([op.index]), begins)

    def _listed(self, op: Op, *slots: str) -> list[str]:
        """Keys in a slot that takes a list; in a PIR program an operation of its own has put them together."""
        keys = next((keys for slot, keys in op.inputs.items() if slot.lower() in slots), [])
        writer = self._writers.get(keys[0]) if len(keys) == 1 else None
        return writer.reads() if writer is not None and writer.name == "builtin.combine" else keys

    def _is_zero(self, key: str) -> bool:
        op = self._writers.get(key)
        if op is None or not op.name.startswith(("full", "fill_constant")):
            return False
        constant = self._writers.get(op.input("value") or "")
        value = (constant or op).attributes.get("value")
        return op.input("valuetensor") is None and value is not None and float(value) == 0.0


_DROPOUTS = {"downgrade_in_infer": "downscale_in_infer"}


def _geometry(attributes: Mapping[str, Any]) -> dict[str, Any]:
    algorithm = attributes.get("padding_algorithm", "EXPLICIT")
    return {
        "stride": list(attributes["strides"]),
        "padding": list(attributes["paddings"]) if algorithm == "EXPLICIT" else algorithm,
        "dilation": list(attributes["dilations"]),
        "groups": attributes["groups"],
        "data_format": _layout(attributes, "data_format"),
    }


def _layout(attributes: Mapping[str, Any], *names: str) -> str:
    found = str(next((attributes[name] for name in names if name in attributes), "NCHW"))
    return "NCHW" if found == "AnyLayout" else found


def attribute_for(parameter: str) -> str:
    """A name that a sublayer may have, from the name of its weight.

    Example:
        >>> attribute_for("conv2d_0.w_0"), attribute_for("stem/conv_weights")
        ('conv2d_0', 'stem_conv')
    """
    stem = re.sub(r"\.(w|b)_\d+$|[._]?(weights?|filter)$", "", parameter)
    return re.sub(r"\W", "_", stem) or "layer"
