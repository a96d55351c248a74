"""Operators of Paddle 3, one by one, as OpenVINO's.

Those that are here depend on the values of their inputs in no way that one comparison could miss: nothing that sorts, picks or
counts, and whole numbers only where sizes are computed. A program with anything else is refused by the operator's name, and
Paddle's own predictor runs it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dysens.compiled._openvino_operation import Converted, Node, Operation


def _unary(name: str) -> Callable[[Operation], Node]:
    def convert(op: Operation) -> Node:
        if not op.floats:
            raise op.refuse("whole numbers")
        return getattr(op.ops, name)(op.x).output(0)

    return convert


def _binary(name: str, only_floats: bool = False) -> Callable[[Operation], Node]:
    def convert(op: Operation) -> Node:
        if only_floats and not op.floats:
            raise op.refuse("whole numbers")
        x, y = op.inputs
        return getattr(op.ops, name)(x, y).output(0)

    return convert


def _pads(op: Operation, sides: int) -> tuple[list[int], list[int], str]:
    if "paddings" not in op.attributes or op.attributes.get("data_format", "NCHW") not in (
        "NCHW",
        "AnyLayout",
        "NCDHW",
    ):
        raise op.refuse(f"the layout {op.attributes.get('data_format')}")
    kind, given = op.attributes["padding_algorithm"], list(op.attributes["paddings"])
    if kind == "SAME":
        return [0] * sides, [0] * sides, "same_upper"
    if kind == "VALID":
        return [0] * sides, [0] * sides, "explicit"
    if len(given) == sides:
        return given, given, "explicit"
    if len(given) == 2 * sides:
        return given[0::2], given[1::2], "explicit"
    raise op.refuse(f"the padding {given}")


def _grouped(op: Operation, weight: Node, groups: int) -> Node:
    """The weight with an axis for its groups."""
    first, *rest = [int(side) for side in weight.get_shape()]
    shape = op.whole([groups, first // groups, *rest])
    return op.ops.reshape(weight, shape, False).output(0)


def _convolution(op: Operation) -> Node:
    weight, groups = op["filter"], op.attributes["groups"]
    begin, end, auto = _pads(op, op.rank() - 2)
    dilations = list(op.attributes["dilations"]) if auto == "explicit" else [1] * (op.rank() - 2)
    arguments = (list(op.attributes["strides"]), begin, end, dilations, auto)
    if groups == 1:
        return op.ops.convolution(op.x, weight, *arguments).output(0)
    return op.ops.group_convolution(op.x, _grouped(op, weight, groups), *arguments).output(0)


def _transposed_convolution(op: Operation) -> Node:
    weight, groups = op["filter"], op.attributes["groups"]
    begin, end, auto = _pads(op, op.rank() - 2)
    if op.numbers("output_size") != [] or auto != "explicit":
        raise op.refuse("a given output size")
    extra = list(op.attributes["output_padding"]) or [0] * (op.rank() - 2)
    settings = {
        "strides": list(op.attributes["strides"]),
        "pads_begin": begin,
        "pads_end": end,
        "dilations": list(op.attributes["dilations"]),
        "output_padding": extra,
    }
    if groups == 1:
        return op.ops.convolution_backprop_data(op.x, weight, **settings).output(0)
    grouped = _grouped(op, weight, groups)
    return op.ops.group_convolution_backprop_data(op.x, grouped, **settings).output(0)


def _batch_norm(op: Operation) -> Node:
    if op.attributes["data_format"] != "NCHW" or not (
        op.attributes["is_test"] or op.attributes["use_global_stats"]
    ):
        raise op.refuse("statistics of the batch")
    mean, variance = op["mean"], op["variance"]
    channels = [int(side) for side in mean.get_shape()]
    scale = op["scale"] or op.ops.constant(np.ones(channels, np.float32)).output(0)
    bias = op["bias"] or op.ops.constant(np.zeros(channels, np.float32)).output(0)
    found = op.ops.batch_norm_inference(op.x, scale, bias, mean, variance, op.attributes["epsilon"])
    return found.output(0)


def _layer_norm(op: Operation) -> Node:
    if op.attributes["begin_norm_axis"] != op.rank() - 1:
        raise op.refuse("several axes")
    axes = op.whole([-1])
    found = op.ops.mvn(op.x, axes, True, op.attributes["epsilon"], "inside_sqrt").output(0)
    found = op.ops.multiply(found, op["scale"]).output(0) if op["scale"] else found
    return op.ops.add(found, op["bias"]).output(0) if op["bias"] else found


def _group_norm(op: Operation) -> Node:
    if op.attributes["data_format"] != "NCHW" or not op["scale"] or not op["bias"]:
        raise op.refuse("no scale, or another layout")
    found = op.ops.group_normalization(
        op.x, op["scale"], op["bias"], op.attributes["groups"], op.attributes["epsilon"]
    )
    return found.output(0)


def _pool(op: Operation) -> Node:
    kernel = op.numbers("kernel_size")
    mean = op.attributes["pooling_type"] == "avg"
    if not kernel:
        raise op.refuse("a kernel size that is computed")
    begin, end, auto = _pads(op, 2)
    if op.attributes["global_pooling"] or (op.attributes["adaptive"] and set(kernel) == {1}):
        reduce = op.ops.reduce_mean if mean else op.ops.reduce_max
        return reduce(op.x, op.whole([2, 3]), True).output(0)
    if op.attributes["adaptive"]:
        pool = op.ops.adaptive_avg_pool if mean else op.ops.adaptive_max_pool
        return pool(op.x, op.whole(kernel)).output(0)
    strides, rounding = list(op.attributes["strides"]), "ceil" if op.attributes["ceil_mode"] else "floor"
    if mean:
        exclusive = bool(op.attributes["exclusive"])
        return op.ops.avg_pool(op.x, strides, begin, end, kernel, exclusive, rounding, auto).output(0)
    return op.ops.max_pool(op.x, strides, [1, 1], begin, end, kernel, rounding, auto).output(0)


def _scale(op: Operation) -> Node:
    kind = np.float32 if op.floats else np.int64
    factor, bias = (op.ops.constant(np.array(v, kind)) for v in (op.number("scale"), op.attributes["bias"]))
    if op.attributes["bias_after_scale"]:
        return op.ops.add(op.ops.multiply(op.x, factor), bias).output(0)
    return op.ops.multiply(op.ops.add(op.x, bias), factor).output(0)


def _clip(op: Operation) -> Node:
    if not op.floats:
        raise op.refuse("whole numbers")
    return op.ops.clamp(op.x, float(op.number("min")), float(op.number("max"))).output(0)


def _hard_swish(op: Operation) -> Node:
    return op.ops.hswish(op.x).output(0)


def _hard_sigmoid(op: Operation) -> Node:
    slope, offset = (
        op.ops.constant(np.array(op.attributes[name], np.float32)) for name in ("slope", "offset")
    )
    return op.ops.hard_sigmoid(op.x, slope, offset).output(0)


def _leaky_relu(op: Operation) -> Node:
    slope = op.ops.constant(np.array([op.attributes["negative_slope"]], np.float32))
    return op.ops.prelu(op.x, slope).output(0)


def _gelu(op: Operation) -> Node:
    return op.ops.gelu(op.x, "tanh" if op.attributes["approximate"] else "erf").output(0)


def _elu(op: Operation) -> Node:
    return op.ops.elu(op.x, op.attributes["alpha"]).output(0)


def _softmax(op: Operation) -> Node:
    return op.ops.softmax(op.x, op.attributes["axis"] % op.rank()).output(0)


def _matmul(op: Operation) -> Node:
    x, y = op.inputs
    if min(int(node.get_partial_shape().rank.get_length()) for node in (x, y)) < 2 or not op.floats:
        raise op.refuse("a vector")
    return op.ops.matmul(x, y, op.attributes["transpose_x"], op.attributes["transpose_y"]).output(0)


def _reshape(op: Operation) -> Node:
    return op.ops.reshape(op.inputs[0], op.vector("shape"), True).output(0)


def _flatten(op: Operation) -> Node:
    rank = op.rank()
    start, stop = op.attributes["start_axis"] % rank, op.attributes["stop_axis"] % rank
    after = [op.inputs[0].get_partial_shape()[axis] for axis in range(stop + 1, rank)]
    if any(side.is_dynamic for side in after):
        raise op.refuse("axes behind it that vary")
    shape = [0] * start + [-1] + [side.get_length() for side in after]
    return op.ops.reshape(op.inputs[0], op.whole(shape), True).output(0)


def _transpose(op: Operation) -> Node:
    return op.ops.transpose(op.inputs[0], op.whole(op.attributes["perm"])).output(0)


def _axes(name: str) -> Callable[[Operation], Node]:
    def convert(op: Operation) -> Node:
        axes = op.numbers("axis")
        if axes is None or (not axes and name == "squeeze"):
            raise op.refuse("axes that are not given")
        if name == "squeeze":
            # Paddle leaves an axis that is longer than 1; where that is not known beforehand, it is refused.
            shape = op.inputs[0].get_partial_shape()
            if any(shape[int(a) % op.rank()].is_dynamic for a in axes):
                raise op.refuse("an axis that varies")
            axes = [a for a in axes if shape[int(a) % op.rank()].get_length() == 1]
            if not axes:
                return op.inputs[0]
        return getattr(op.ops, name)(op.inputs[0], op.whole(axes)).output(0)

    return convert


def _concat(op: Operation) -> Node:
    return op.ops.concat(list(op.inputs[0]), int(op.number("axis"))).output(0)


def _stack(op: Operation) -> Node:
    axis = op.whole([op.attributes["axis"]])
    return op.ops.concat(
        [op.ops.unsqueeze(node, axis).output(0) for node in op.inputs[0]], op.attributes["axis"]
    ).output(0)


def _split(op: Operation) -> list[Node]:
    sections = op.numbers("sections")
    if not sections:
        raise op.refuse("sizes that are computed")
    axis = op.ops.constant(np.array(int(op.number("axis")), np.int64))
    return list(op.ops.variadic_split(op.inputs[0], axis, op.whole(sections)).outputs())


def _split_evenly(op: Operation) -> list[Node]:
    axis = op.ops.constant(np.array(int(op.number("axis")), np.int64))
    return list(op.ops.split(op.inputs[0], axis, op.attributes["num"]).outputs())


def _slice(op: Operation) -> Node:
    axes = list(op.attributes["axes"])
    step = op.whole([1] * len(axes))
    found = op.ops.slice(op.inputs[0], op.vector("starts"), op.vector("ends"), step, op.whole(axes)).output(0)
    gone = list(op.attributes["decrease_axis"])
    return op.ops.squeeze(found, op.whole(gone)).output(0) if gone else found


def _expand(op: Operation) -> Node:
    wanted = op.numbers("shape")
    if wanted is None:
        raise op.refuse("a size that is computed")
    return op.ops.broadcast(
        op.inputs[0], op.whole([1 if n == -1 else n for n in wanted]), "BIDIRECTIONAL"
    ).output(0)


def _shape(op: Operation) -> Node:
    return op.ops.shape_of(op.inputs[0], "i64").output(0)


def _cast(op: Operation) -> Node:
    source = op.inputs[0].get_element_type().to_dtype()
    if source == np.float32 and not op.floats:
        raise op.refuse("floats that become whole numbers")
    return op.ops.convert(op.inputs[0], "f32" if op.floats else "i64").output(0)


def _full(op: Operation) -> Node:
    return op.ops.constant(np.full(op.attributes["shape"], op.attributes["value"], op.result_type())).output(
        0
    )


def _reduction(name: str) -> Callable[[Operation], Node]:
    def convert(op: Operation) -> Node:
        # "mean" has its axes among the attributes, the others among the inputs.
        axes = list(op.attributes["axis"]) if "axis" in op.attributes else op.numbers("axis")
        if axes is None or not op.floats:
            raise op.refuse("axes that are computed, or whole numbers")
        axes = axes or list(range(op.rank()))
        return getattr(op.ops, name)(op.x, op.whole(axes), bool(op.attributes["keepdim"])).output(0)

    return convert


def _dropout(op: Operation) -> Node:
    if not op.attributes["is_test"]:
        raise op.refuse("training mode")
    if op.attributes["mode"] == "upscale_in_train":
        return op.x
    return op.ops.multiply(op.x, op.ops.constant(np.array(1 - op.number("p"), np.float32))).output(0)


def _interpolation(op: Operation) -> Node:
    given = op.attributes
    kind, corners = given["interp_method"], bool(given["align_corners"])
    if (
        given["data_format"] != "NCHW"
        or op.rank() != 4
        or op["scale_tensor"]
        or (kind == "nearest" and corners)
    ):
        raise op.refuse("another layout, or nearest pixels between corners")
    by_size = given["out_h"] > 0 and given["out_w"] > 0
    if op["out_size"] or op["size_tensor"]:
        wanted, how = op.vector("out_size" if op["out_size"] else "size_tensor"), "sizes"
    elif by_size:
        wanted, how = op.whole([given["out_h"], given["out_w"]]), "sizes"
    else:
        wanted, how = op.ops.constant(np.array(given["scale"], np.float32)).output(0), "scales"
    place = "asymmetric" if kind == "nearest" or given["align_mode"] == 1 else "half_pixel"
    found = op.ops.interpolate(
        op.x,
        wanted,
        "nearest" if kind == "nearest" else "linear_onnx",
        how,
        coordinate_transformation_mode="align_corners" if corners else place,
        nearest_mode="floor",
        axes=op.whole([2, 3]),
    )
    return found.output(0)


OPERATORS: dict[str, Callable[[Operation], Converted]] = {
    "builtin.combine": lambda op: op.inputs,
    "builtin.split": lambda op: op.inputs[0],
    "builtin.slice": lambda op: op.inputs[0][op.attributes["index"]],
    "pd_op.conv2d": _convolution,
    "pd_op.conv3d": _convolution,
    "pd_op.depthwise_conv2d": _convolution,
    "pd_op.conv2d_transpose": _transposed_convolution,
    "pd_op.depthwise_conv2d_transpose": _transposed_convolution,
    "pd_op.batch_norm": _batch_norm,
    "pd_op.batch_norm_": _batch_norm,
    "pd_op.layer_norm": _layer_norm,
    "pd_op.group_norm": _group_norm,
    "pd_op.pool2d": _pool,
    "pd_op.matmul": _matmul,
    "pd_op.add": _binary("add"),
    "pd_op.subtract": _binary("subtract"),
    "pd_op.multiply": _binary("multiply"),
    "pd_op.divide": _binary("divide", only_floats=True),
    "pd_op.scale": _scale,
    "pd_op.clip": _clip,
    "pd_op.relu": _unary("relu"),
    "pd_op.relu6": lambda op: op.ops.clamp(op.x, 0.0, 6.0).output(0),
    "pd_op.leaky_relu": _leaky_relu,
    "pd_op.sigmoid": _unary("sigmoid"),
    "pd_op.tanh": _unary("tanh"),
    "pd_op.swish": _unary("swish"),
    "pd_op.silu": _unary("swish"),
    "pd_op.exp": _unary("exp"),
    "pd_op.sqrt": _unary("sqrt"),
    "pd_op.abs": _unary("abs"),
    "pd_op.elu": _elu,
    "pd_op.gelu": _gelu,
    "pd_op.hardswish": _hard_swish,
    "pd_op.hardsigmoid": _hard_sigmoid,
    "pd_op.softmax": _softmax,
    "pd_op.dropout": _dropout,
    "pd_op.nearest_interp": _interpolation,
    "pd_op.bilinear_interp": _interpolation,
    "pd_op.mean": _reduction("reduce_mean"),
    "pd_op.sum": _reduction("reduce_sum"),
    "pd_op.reshape": _reshape,
    "pd_op.flatten": _flatten,
    "pd_op.transpose": _transpose,
    "pd_op.squeeze": _axes("squeeze"),
    "pd_op.unsqueeze": _axes("unsqueeze"),
    "pd_op.concat": _concat,
    "pd_op.stack": _stack,
    "pd_op.split": _split,
    "pd_op.split_with_num": _split_evenly,
    "pd_op.slice": _slice,
    "pd_op.expand": _expand,
    "pd_op.shape": _shape,
    "pd_op.shape64": _shape,
    "pd_op.cast": _cast,
    "pd_op.assign": lambda op: op.inputs[0],
    "pd_op.full": _full,
    "pd_op.full_int_array": lambda op: op.whole(op.attributes["value"]),
}
"""By the name of the operator."""
