"""Brings weights into a PaddleOCR network: all of them, or an error that names the layer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import paddle

from dysens.adapters.ocr._onnx_weights import check_outputs, onnx_state
from dysens.adapters.ocr._released import find_weights
from dysens.errors import InputError
from dysens.model import preserved
from dysens.programs import read_inference_state
from dysens.pruning import cut_as_saved, has_plan
from dysens.pruning import read_state as read_weights_file

logger = logging.getLogger(__name__)

State = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class LoadedWeights:
    """What `load_weights` did.

    Attributes:
        source: The file, or an inference model's path without endings.
        count: How many tensors were taken over.
        untouched: Tensors that the file does not have; they belong to layers that run in training only, or
            never.
        reparameterized: How many multi-branch layers were fused first.
        random: Parts of the network (neck, head) that run and that the file has nothing for: it is of a pretrained backbone.
    """

    source: Path
    count: int
    untouched: tuple[str, ...]
    reparameterized: int
    random: tuple[str, ...] = ()


def load_weights(model: paddle.nn.Layer, source: str | Path, inputs: tuple[Any, ...]) -> LoadedWeights:
    """Loads a checkpoint or an inference model's weights into a PaddleOCR network.

    Inference models of PP-LCNetV3 have its branches fused into one convolution: the network's are fused
    first where needed. A checkpoint with a plan beside it (`dysens.save_pruned`) is of a pruned network: the
    given one is cut in the same way. If anything does not fit, the network stays as it was.

    Args:
        model: The network, as PaddleOCR builds it from the config.
        source: See `find_weights`.
        inputs: What to call the network with in eval mode, to see which layers need weights.

    Raises:
        InputError: A tensor of the file has no place in the network, another shape, or is missing for a
            layer that runs.
    """
    path = find_weights(source)
    if path.suffix == ".onnx":
        return _load_onnx(model, path, inputs)
    state = read_state(path)
    checkpoint = path.with_suffix("") if path.suffix == ".pdparams" else path
    with preserved(model) as before:
        # Both change which tensors the network has, so they come before any comparison with the file.
        reparameterized = reparameterize(model) if any(".reparam_conv." in name for name in state) else 0
        if has_plan(checkpoint):
            cut_as_saved(model, checkpoint)
        random = _parts_left_out(state, model)
        untouched = _put(state, model, inputs, path, random)
        before.keep()
    rest = (
        f"; {len(untouched)} of parts that only training runs keep their initial values" if untouched else ""
    )
    logger.info("%d tensors loaded from %s%s.", len(state), path, rest)
    if random:
        logger.warning("%s has a backbone only: %s begin with random values.", path, " and ".join(random))
    return LoadedWeights(path, len(state), untouched, reparameterized, random)


def _parts_left_out(state: State, model: paddle.nn.Layer) -> tuple[str, ...]:
    """Neck and head, where the file is of a backbone: PaddleOCR's stock configs begin with one trained on other data."""
    given = {name.partition(".")[0] for name in state}
    parts = [name for name, part in model.named_children() if part.state_dict()]
    return tuple(part for part in parts if part not in given) if given == {"backbone"} else ()


def _load_onnx(model: paddle.nn.Layer, path: Path, inputs: tuple[Any, ...]) -> LoadedWeights:
    """An export has its branches fused, and no names: layers are matched by order, and the outputs compared."""
    with preserved(model) as before:
        reparameterized = reparameterize(model)
        state = onnx_state(model, path, inputs)
        untouched = _put(state, model, inputs, path)
        difference = check_outputs(model, path, inputs[0].shape)
        before.keep()
    logger.info("%d tensors mapped from %s; outputs differ by %.1e", len(state), path, difference)
    return LoadedWeights(path, len(state), untouched, reparameterized)


def _put(
    state: State, model: paddle.nn.Layer, inputs: tuple[Any, ...], path: Path, random: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Sets every tensor of the file, or none; returns the names of those that the file does not have."""
    tensors = model.state_dict()
    state = {name if name in tensors else _released_v4_name(name): value for name, value in state.items()}
    loaded = _with_aliases(tensors, state)
    untouched = tuple(name for name in tensors if name not in loaded)
    idle = [*idle_layers(model, inputs), *(f"{part}." for part in random)] if untouched else []
    shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
    _check_fit(path, state, shapes, [name for name in untouched if not name.startswith(tuple(idle))])
    for name, value in state.items():
        tensors[name].set_value(paddle.to_tensor(value).astype(tensors[name].dtype))
    return untouched


def read_state(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Every tensor of a ``.pdparams`` file, or of an inference model given by its path without endings."""
    if path.suffix != ".pdparams":
        return read_inference_state(path)
    loaded = read_weights_file(path)
    if not all(isinstance(value, np.ndarray) for value in loaded.values()):
        raise InputError(
            f'"{path}" is not a state dict: it must map names to tensors, as paddle.save writes them.'
        )
    return loaded


def reparameterize(model: paddle.nn.Layer) -> int:
    """Fuses the branches of PP-LCNetV3's layers with PaddleOCR's own ``rep()`` and drops them.

    Returns:
        How many layers were fused; 0 for networks that have none.
    """
    layers = [
        layer
        for layer in model.sublayers()
        if hasattr(layer, "rep") and hasattr(layer, "conv_kxk") and not layer.is_repped
    ]
    for layer in layers:
        layer.rep()
        layer.identity = None
        layer.conv_1x1 = None
        del layer.conv_kxk
    return len(layers)


def _with_aliases(tensors: Mapping[str, paddle.Tensor], state: State) -> set[str]:
    """The names in ``state`` and all others of the same tensors: an LSTM lists each weight twice."""
    held = {id(tensors[name]) for name in state if name in tensors}
    return {*state, *(name for name, tensor in tensors.items() if id(tensor) in held)}


def _released_v4_name(name: str) -> str:
    """PP-OCRv4 was released before PaddleOCR settled on the names of the learnable scales and biases."""
    if not name.startswith("backbone.blocks"):
        return name
    name = name.replace(".activation.", ".act.lab.")
    for old, new in (("_conv.w", "_conv.lab.scale"), ("_conv.b", "_conv.lab.bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def idle_layers(model: paddle.nn.Layer, inputs: tuple[Any, ...]) -> list[str]:
    """The paths (with a final dot) of the layers that own tensors and do not run in eval mode."""
    owners = {path: layer for path, layer in model.named_sublayers() if layer._parameters or layer._buffers}
    ran: set[str] = set()

    def note(path: str) -> Callable[..., None]:
        return lambda *_: ran.add(path)

    with preserved(model), paddle.no_grad():
        for path, layer in owners.items():
            layer.register_forward_pre_hook(note(path))
        model.eval()
        model(*inputs)
    return [f"{path}." for path in owners if path not in ran]


def _check_fit(path: Path, state: State, shapes: Mapping[str, list[int]], missing: list[str]) -> None:
    odd = [
        f'"{name}" is {list(value.shape)} in the file and {shapes[name]} in the network'
        for name, value in state.items()
        if name in shapes and list(value.shape) != shapes[name]
    ]
    odd += [
        f'"{name}" is in the file, but the network has no such tensor' for name in state if name not in shapes
    ]
    odd += [f'the network needs "{name}", but the file does not have it' for name in missing]
    if odd:
        more = f" (and {len(odd) - 1} more such)" if len(odd) > 1 else ""
        raise InputError(
            f'The weights in "{path}" do not fit the config\'s network: {odd[0]}{more}. '
            f"{_likely_cause(state, shapes)}"
        )


def _likely_cause(state: State, shapes: Mapping[str, list[int]]) -> str:
    common = [name for name in state if name in shapes]
    first = {name.partition(".")[0] for name in state}
    if not common and first.isdisjoint({name.partition(".")[0] for name in shapes}):
        return (
            f"All names in the file begin with {', '.join(sorted(first))}: it is of another kind of network."
        )
    unequal = [name for name in common if list(state[name].shape) != shapes[name]]
    if unequal and all(name.startswith("head.") for name in unequal) and len(common) == len(state):
        return "Only the head differs: is Global.character_dict_path the dictionary that it was trained with?"
    return "It is a checkpoint of another architecture, or of a pruned network whose .plan.json is not beside it."
