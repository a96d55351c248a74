"""Weights out of an ONNX export of the same network, matched by the order in which layers run.

paddle2onnx drops Paddle's names but keeps the order of operators, and leaves batch norm unfolded. So the n-th convolution
of the file is the n-th convolution that runs in the live network, and so for batch norms; shapes are checked for each.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import paddle

from dysens.adapters.installing import install_command
from dysens.errors import InputError, MissingExtraError
from dysens.live import preserved

logger = logging.getLogger(__name__)

Tensors = dict[str, np.ndarray]

# ONNX operator: which attribute each of its inputs from the second on fills, and which Paddle layers it comes from.
_CONV = "Conv"
_NORM = "BatchNormalization"
_FILLS = {_CONV: ("weight", "bias"), _NORM: ("weight", "bias", "_mean", "_variance")}
_LAYERS = {
    _CONV: (paddle.nn.Conv2D,),
    _NORM: (paddle.nn.BatchNorm2D, paddle.nn.BatchNorm, paddle.nn.SyncBatchNorm),
}


def load_onnx_weights(
    model: paddle.nn.Layer, path: Path, example_inputs: Mapping[str, paddle.Tensor]
) -> None:
    """Fills every parameter that ``model`` uses in eval mode from the ONNX file.

    Raises:
        InputError: The file is missing, or is not an export of this network.
        MissingExtraError: The package ``onnx`` is not installed.
    """
    read = _read_operators(path)
    calls = _run_order(model, example_inputs)
    filled: Tensors = {}
    for kind, classes in _LAYERS.items():
        ran = [at for at, layer in calls if isinstance(layer, classes)]
        if len(read[kind]) != len(ran):
            raise InputError(
                f"{path} has {len(read[kind])} {kind} operators and the network runs {len(ran)} such layers: "
                "it is an export of another network."
            )
        for layer_path, tensors in zip(ran, read[kind]):
            _collect(filled, layer_path, tensors, path)
    _check_fit(model, filled, {at for at, _ in calls}, path)
    state = model.state_dict()
    for name, value in filled.items():
        state[name].set_value(value)


def _check_fit(model: paddle.nn.Layer, filled: Tensors, ran: set[str], path: Path) -> None:
    state = model.state_dict()
    for name, value in filled.items():
        if name not in state:
            raise InputError(f"{path} has a value for {name}, which the network does not have.")
        if list(value.shape) != list(state[name].shape):
            raise InputError(
                f"{name} has the shape {list(value.shape)} in {path}, and {list(state[name].shape)} in the network."
            )
    for name, _ in model.named_parameters():
        if name in filled:
            continue
        if name.rpartition(".")[0] in ran:
            raise InputError(f"{path} has nothing for {name}: it is an export of another network.")
        logger.info("%s does not run in eval mode and keeps its initial value", name)


def _read_operators(path: Path) -> dict[str, list[Tensors]]:
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError(
            f"Reading {path} needs the package onnx. Install it with: {install_command('det')}"
        ) from error
    if not path.is_file():
        raise InputError(f"There is no ONNX file {path}.")
    graph = onnx.load(str(path)).graph
    constants = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            constants[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
    operators: dict[str, list[Tensors]] = {kind: [] for kind in _FILLS}
    for node in graph.node:
        if node.op_type in operators:
            inputs = [constants[name] for name in node.input[1:]]
            operators[node.op_type].append(dict(zip(_FILLS[node.op_type], inputs)))
    return operators


def _run_order(
    model: paddle.nn.Layer, example_inputs: Mapping[str, paddle.Tensor]
) -> list[tuple[str, paddle.nn.Layer]]:
    """The layers that own parameters, with their paths, in the order in which a forward pass in eval mode calls them."""
    calls: list[tuple[str, paddle.nn.Layer]] = []
    paths = {
        id(layer): at for at, layer in model.named_sublayers() if layer.parameters(include_sublayers=False)
    }

    def note(layer: paddle.nn.Layer, _inputs: object) -> None:
        calls.append((paths[id(layer)], layer))

    with preserved(model), paddle.no_grad():
        for layer in model.sublayers():
            if id(layer) in paths:
                layer.register_forward_pre_hook(note)
        model.eval()
        model(dict(example_inputs))
    return calls


def _collect(filled: dict[str, np.ndarray], layer_path: str, tensors: Tensors, path: Path) -> None:
    for attribute, value in tensors.items():
        name = f"{layer_path}.{attribute}"
        if name in filled and not np.array_equal(filled[name], value):
            raise InputError(f"{name} is used twice, and {path} has two different values for it.")
        filled[name] = value
