"""Loading a detector's weights, also out of an ONNX export, with a sentence where they do not fit."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from dysens.adapters._shared import install_command
from dysens.adapters.det._ppdet import import_ppdet
from dysens.errors import InputError, MissingExtraError
from dysens.model import preserved
from dysens.pruning import check_array, cut_as_saved, has_plan, read_state, stages_of

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


PACKAGE_SCHEME = "package://"


def load_weights(
    model: paddle.nn.Layer, source: str | Path, example_inputs: Mapping[str, paddle.Tensor]
) -> None:
    """Loads weights into a live detector; all of its parameters must be found, in their shapes.

    A checkpoint with a plan beside it (`dysens.save_pruned`, or one that a Trainer of `DetTask` wrote) is of a pruned
    network: a whole one is cut in the same way first. If anything does not fit, the network stays as it was.

    Args:
        model: The network, as it was built.
        source: A ``.pdparams`` file (its ending may be left out, as in PaddleDetection's configs), an address that
            ppdet's own downloader fetches, an ``.onnx`` export of the same network, or
            ``package://<package>/<path>`` for such a file inside an installed Python package.
        example_inputs: What the model is called with; runs it once where layers are matched by order (``.onnx``).

    Raises:
        InputError: There is no such file, or it does not fit the network.
        MissingExtraError: The Python package is not installed.
    """
    path = _local_path(str(source))
    if path.suffix == ".onnx":
        load_onnx_weights(model, path, example_inputs)
    else:
        _load_state(model, path)
    logger.info("Weights of %s loaded from %s", type(model).__name__, source)


def _local_path(source: str) -> Path:
    if source.startswith(PACKAGE_SCHEME):
        return _path_in_package(source)
    checkpoint = import_ppdet("utils.checkpoint")
    if checkpoint.is_url(source):
        return Path(checkpoint.get_weights_path(source))
    path = Path(source)
    # model_final.pdparams is written model_final in configs; with_suffix would eat the "5" of "v2.5".
    return path if path.suffix in (".pdparams", ".onnx") else path.with_name(path.name + ".pdparams")


def _path_in_package(source: str) -> Path:
    package, _, inside = source[len(PACKAGE_SCHEME) :].partition("/")
    spec = find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            f'The weights {source} are in the Python package "{package}", which is not installed. '
            f"Install it with: {install_command('det')}"
        )
    return Path(spec.submodule_search_locations[0]) / inside


def _load_state(model: paddle.nn.Layer, path: Path) -> None:
    if not path.is_file():
        raise InputError(
            f"There are no weights at {path}. Give a .pdparams file with weights=path, or weights=null for a "
            "network that is yet to be trained."
        )
    state = read_state(path)
    checkpoint = str(path).removesuffix(".pdparams")
    with preserved(model) as before:
        if has_plan(checkpoint) and not stages_of(model):
            cut_as_saved(model, checkpoint)
        wanted = model.state_dict()
        _check_state_fits(wanted, state, path)
        model.set_state_dict({name: state[name] for name in wanted})
        before.keep()
    unused = [name for name in state if name not in wanted]
    if unused:
        logger.info("%d entries of %s are not used by the network, first %s", len(unused), path, unused[0])


def _check_state_fits(wanted: Mapping[str, Any], state: Mapping[str, Any], path: Path) -> None:
    missing = [name for name in wanted if name not in state]
    if missing:
        raise InputError(
            f"{path} lacks {len(missing)} of the network's {len(wanted)} parameters, first {missing[0]}; "
            "it was saved from another network than the config describes."
        )
    for name, value in wanted.items():
        check_array(name, state[name], value)
        if list(state[name].shape) != list(value.shape):
            raise InputError(
                f"{name} has the shape {list(state[name].shape)} in {path}, and {list(value.shape)} in the network "
                "that the config describes. The plan of a pruned network (.plan.json) has to be beside its weights."
            )
