"""Weights out of an ONNX export of a PaddleOCR network: matched by the order in which operators and layers run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import paddle
from paddle import nn
from PIL import Image, ImageDraw

from dysens.adapters._shared import install_command
from dysens.errors import InputError, MissingExtraError
from dysens.model import preserved

logger = logging.getLogger(__name__)

Array = npt.NDArray[Any]
Tensors = dict[str, Array]

CONV, TRANSPOSED, NORM, LINEAR, LAYER_NORM, AFFINE = (
    "Conv",
    "ConvTranspose",
    "BatchNormalization",
    "MatMul",
    "layer norm",
    "learnable affine block",
)
TOLERANCE = 1e-3  # of the largest output: two ways to fuse and to add
_PASSED_ON = frozenset({"Identity", "Cast"})


def onnx_state(model: nn.Layer, path: Path, inputs: tuple[Any, ...]) -> Tensors:
    """The weights of an ONNX export by the names of the network that it was exported from.

    Args:
        model: The network, its branches fused as in the export.
        path: The file.
        inputs: What to call the network with in eval mode.

    Raises:
        InputError: It is an export of another network.
        MissingExtraError: The package ``onnx`` is not installed.
    """
    operators = _read_operators(path)
    layers = _run_order(model, inputs)
    state: Tensors = {}
    for kind in (CONV, TRANSPOSED, NORM, LINEAR, LAYER_NORM, AFFINE):
        read = [tensors for name, tensors in operators if name == kind]
        ran = [(at, layer) for at, layer in layers if _kind(layer) == kind]
        if len(read) != len(ran):
            raise InputError(
                f'"{path}" has {len(read)} operators like {kind} and the config\'s network runs {len(ran)} such layers: '
                "it is an export of another network."
            )
        for (at, layer), tensors in zip(ran, read):
            for name, value in tensors.items():
                state[f"{at}.{name}"] = _fitted(value, getattr(layer, name), f"{at}.{name}", path)
    return state


def check_outputs(model: nn.Layer, path: Path, shape: Sequence[int]) -> float:
    """Compare the network with the export, now that it has the export's weights; the largest difference.

    On drawn text: in noise a detector sees none, and all of its outputs are next to nothing.

    Raises:
        InputError: The outputs differ: layers and operators that do not belong together have the same shapes.
    """
    inputs = [_written_page(shape)]
    expected = _run_onnx(path, inputs)
    with preserved(model), paddle.no_grad():
        model.eval()
        outputs = paddle.utils.flatten(model(*(paddle.to_tensor(each) for each in inputs)))
    got = [tensor.numpy() for tensor in outputs if tuple(tensor.shape) == expected.shape]
    difference = min((float(np.abs(each - expected).max()) for each in got), default=np.inf)
    if not difference <= TOLERANCE * float(np.abs(expected).max()):
        raise InputError(
            f'With the weights of "{path}" the config\'s network gives other outputs (they differ by {difference:.2g}): it is '
            "an export of another network."
        )
    return difference


def _written_page(shape: Sequence[int]) -> Array:
    """A picture full of letters, from -1 to 1."""
    height, width = shape[2:]
    page = Image.new("L", (max(width // 4, 80), max(height // 4, 12)), 255)
    for top in range(0, page.height, 12):
        ImageDraw.Draw(page).text((2, top), "Text 0123 abc", fill=0)
    pixels = np.asarray(page.resize((width, height), Image.Resampling.BICUBIC), "float32") / 127.5 - 1
    return np.ascontiguousarray(np.broadcast_to(pixels, tuple(shape)))


def _fitted(value: Array, parameter: Any, name: str, path: Path) -> Array:
    if parameter is None or value.size != parameter.size:
        there = "no such tensor" if parameter is None else f"the shape {list(parameter.shape)}"
        of_classes = parameter is not None and name.startswith("head.") and ".fc" in name
        hint = " Is Global.character_dict_path the dictionary that it was trained with?" if of_classes else ""
        raise InputError(
            f'"{name}" has the shape {list(value.shape)} in "{path}", and {there} in the network that the config describes.{hint}'
        )
    # A scale of one channel, or the bias of a transposed convolution, is written with axes of size 1 around it.
    return value.reshape(parameter.shape).astype("float32")


def _kind(layer: nn.Layer) -> str | None:
    kinds = (
        (nn.Conv2D, CONV),
        (nn.Conv2DTranspose, TRANSPOSED),
        ((nn.BatchNorm, nn.BatchNorm2D), NORM),
        (nn.Linear, LINEAR),
        (nn.LayerNorm, LAYER_NORM),
    )
    found = next((kind for classes, kind in kinds if isinstance(layer, classes)), None)
    affine = {"scale", "bias"} == set(layer._parameters)
    return found or (AFFINE if affine else None)


def _run_order(model: nn.Layer, inputs: tuple[Any, ...]) -> list[tuple[str, nn.Layer]]:
    """The layers that own parameters, in the order in which a forward in eval mode calls them."""
    order: list[tuple[str, nn.Layer]] = []
    paths = {id(layer): at for at, layer in model.named_sublayers() if _kind(layer)}

    def note(layer: nn.Layer, _inputs: object) -> None:
        order.append((paths[id(layer)], layer))

    with preserved(model), paddle.no_grad():
        for layer in model.sublayers():
            if id(layer) in paths:
                layer.register_forward_pre_hook(note)
        model.eval()
        model(*inputs)
    return order


@dataclass(frozen=True)
class _Graph:
    """The operators of an ONNX model with what only passes a value on left out."""

    nodes: list[tuple[str, list[str], str]]
    constants: Mapping[str, Array]

    def readers(self, name: str, kind: str) -> Iterator[list[str]]:
        """The inputs of the operators of one kind that read a value."""
        return (inputs for op, inputs, _ in self.nodes if op == kind and name in inputs)

    def constant_of(self, inputs: Sequence[str], but: str = "") -> Array | None:
        """The first of these inputs that is a constant."""
        return next((self.constants[name] for name in inputs if name != but and name in self.constants), None)

    def added(self, output: str, size: int) -> Array | None:
        """The constant vector that is added to a value, its bias, if there is one of that size."""
        for inputs in self.readers(output, "Add"):
            value = self.constant_of(inputs, output)
            if value is not None and value.size == size:
                return value.reshape(-1)
        return None


def _read_operators(path: Path) -> list[tuple[str, Tensors]]:
    """Every operator that stands for a layer with weights, with these, in the file's order."""
    graph = _read_graph(path)
    found: list[tuple[str, Tensors]] = []
    for op, inputs, output in graph.nodes:
        tensors = [graph.constants.get(name) for name in inputs[1:]]
        weight = tensors[0] if tensors else None
        if op in (CONV, TRANSPOSED) and weight is not None:
            width = weight.shape[0] if op == CONV else weight.shape[1]
            bias = tensors[1] if len(tensors) > 1 else None
            if bias is None and (width > 1 or op == TRANSPOSED):
                bias = graph.added(output, width)
            found.append((op, _given(weight=weight, bias=bias)))
        elif op == NORM:
            found.append((op, _given(**dict(zip(("weight", "bias", "_mean", "_variance"), tensors)))))
        elif op == LINEAR and weight is not None:
            found.append((op, _given(weight=weight, bias=graph.added(output, weight.shape[1]))))
        elif op == "Mul":
            scale = graph.constant_of(inputs)
            bias = None if scale is None else graph.added(output, scale.size)
            if scale is not None and bias is not None and scale.size > 1:
                found.append((LAYER_NORM, _given(weight=scale, bias=bias)))
            elif scale is not None and bias is not None:
                found.append((AFFINE, _given(scale=scale, bias=bias)))
    return found


def _given(**tensors: Array | None) -> Tensors:
    return {name: value for name, value in tensors.items() if value is not None}


def _read_graph(path: Path) -> _Graph:
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError(
            f'Reading "{path}" needs the package onnx; run: {install_command("ocr")}'
        ) from error
    try:
        graph = onnx.load(str(path)).graph
    except Exception as error:  # protobuf's own exception classes
        raise InputError(f'"{path}" cannot be read as an ONNX model: {error}.') from error
    constants = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
    same: dict[str, str] = {}
    nodes = []
    for node in graph.node:
        inputs = [same.get(name, name) for name in node.input]
        if node.op_type == "Constant":
            constants[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
        elif node.op_type in _PASSED_ON:
            same[node.output[0]] = inputs[0]
        else:
            nodes.append((node.op_type, inputs, node.output[0]))
    return _Graph(nodes, constants)


def _run_onnx(path: Path, inputs: Sequence[Array]) -> Array:
    """The first output of an ONNX model: with ONNX Runtime where it is installed, else with onnx's own slow evaluator."""
    if find_spec("onnxruntime") is not None:
        import onnxruntime  # type: ignore[import-untyped]

        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        names = [each.name for each in session.get_inputs()]
        return np.asarray(session.run(None, dict(zip(names, inputs)))[0])
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(str(path))
    return np.asarray(evaluator.run(None, dict(zip(evaluator.input_names, inputs)))[0])
