"""Weights of fused branches under the names that PaddleOCR's network has before it fuses them.

PP-LCNetV3 trains several branches side by side and is released with each set of them fused into one convolution. PaddleOCR's own
programs know only the network with branches. The first branch takes the fused kernel, the others begin at nothing; and the
batch norm of the first gets the statistics that its data really have, so that training starts where inference left off.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import paddle
from paddle import nn

from dysens.errors import InputError
from dysens.model import preserved

FUSED = "reparam_conv"


def has_fused_branches(network: nn.Layer) -> bool:
    """Whether some branches of a network are fused, so that PaddleOCR's own programs could not load its weights."""
    return any(_is_fused(layer) for layer in network.sublayers())


def unfused_state(
    network: nn.Layer, fresh: nn.Layer, batches: Iterable[tuple[Any, ...]]
) -> dict[str, paddle.Tensor]:
    """The state dict of a network with branches that computes what a fused one does.

    Args:
        network: With fused branches.
        fresh: The same network as PaddleOCR builds it; gives shapes, and the values of what begins at nothing.
        batches: Arguments for the network in eval mode, to see which values its convolutions give.

    Raises:
        InputError: The two are not the same network.
    """
    statistics = _statistics(network, batches)
    whole = dict(network.state_dict())
    layers = dict(fresh.named_sublayers())
    state: dict[str, paddle.Tensor] = {}
    for name, tensor in fresh.state_dict().items():
        if name in whole:
            if list(whole[name].shape) != list(tensor.shape):
                raise InputError(
                    f"'{name}' has the shape {list(whole[name].shape)}, and {list(tensor.shape)} as PaddleOCR builds it."
                )
            state[name] = whole[name]
            continue
        block = next((path for path in statistics if name.startswith(f"{path}.")), None)
        if block is None:
            raise InputError(f"The network has no '{name}', which it has as PaddleOCR builds it.")
        values = _branch_value(name[len(block) + 1 :], *statistics[block], layers, name)
        state[name] = tensor if values is None else paddle.to_tensor(values.astype("float32"))
    return state


def _branch_value(
    name: str, conv: nn.Layer, mean: np.ndarray, variance: np.ndarray, layers: dict[str, nn.Layer], path: str
) -> np.ndarray | None:
    """What a tensor of a branch holds; None for what may stay as it was drawn."""
    if name == "conv_kxk.0.conv.weight":
        return np.asarray(conv.weight.numpy())
    ending = name.rpartition(".")[2]
    if ending == "weight" and name.endswith(".conv.weight"):
        return None
    if name.startswith("conv_kxk.0.bn."):
        epsilon = layers[path.rpartition(".")[0]]._epsilon
        bias = conv.bias.numpy()
        return {
            "weight": np.sqrt(variance + epsilon),
            "bias": mean,
            "_mean": mean - bias,
            "_variance": variance,
        }[ending]
    filled = {"weight": 0.0, "bias": 0.0, "_mean": 0.0, "_variance": 1.0}.get(ending)
    return None if filled is None else np.full(mean.shape, filled)


def _statistics(
    network: nn.Layer, batches: Iterable[tuple[Any, ...]]
) -> dict[str, tuple[nn.Layer, np.ndarray, np.ndarray]]:
    """For every fused block its convolution, and the mean and variance of what that gives, a channel each."""
    sums: dict[str, list[np.ndarray]] = {}
    blocks = {path: layer for path, layer in network.named_sublayers() if _is_fused(layer)}
    paths = {id(getattr(layer, FUSED)): path for path, layer in blocks.items()}

    def note(layer: nn.Layer, _inputs: object, output: paddle.Tensor) -> None:
        values = np.moveaxis(output.numpy().astype("float64"), 1, 0).reshape(output.shape[1], -1)
        parts = [np.full(len(values), values.shape[1]), values.sum(1), (values**2).sum(1)]
        known = sums.get(paths[id(layer)])
        sums[paths[id(layer)]] = parts if known is None else [a + b for a, b in zip(known, parts)]

    with preserved(network), paddle.no_grad():
        network.eval()
        for layer in blocks.values():
            getattr(layer, FUSED).register_forward_post_hook(note)
        for arguments in batches:
            network(*arguments)
    return {
        path: (
            getattr(layer, FUSED),
            total / number,
            np.maximum(squares / number - (total / number) ** 2, 1e-6),
        )
        for path, layer in blocks.items()
        for number, total, squares in [sums[path]]
    }


def _is_fused(layer: nn.Layer) -> bool:
    return bool(getattr(layer, "is_repped", False)) and hasattr(layer, FUSED)
