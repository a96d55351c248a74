"""A model's tensors by path, and a fingerprint of its weights."""

from __future__ import annotations

import hashlib

import paddle
from paddle import nn


def fingerprint(model: paddle.nn.Layer) -> str:
    """A hash over the structured names, shapes and values of all parameters and persistent buffers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        values = tensor.astype("float32") if tensor.dtype in (paddle.bfloat16, paddle.float16) else tensor
        digest.update(f"{name}{list(tensor.shape)}{tensor.dtype}".encode())
        digest.update(values.numpy().tobytes())
    return digest.hexdigest()[:16]


def tensor_path(path: str, name: str) -> str:
    """The path of a layer's tensor."""
    return f"{path}.{name}" if path else name


def tensors_by_path(model: nn.Layer) -> dict[str, paddle.Tensor]:
    """Every parameter and buffer under the path that `Slice.tensor` uses; a tied tensor appears under each of its paths."""
    found: dict[str, paddle.Tensor] = {}
    for path, layer in model.named_sublayers(include_self=True):
        for registry in (layer._parameters, layer._buffers):
            for name, tensor in registry.items():
                if isinstance(tensor, paddle.Tensor):
                    found[tensor_path(path, name)] = tensor
    return found
