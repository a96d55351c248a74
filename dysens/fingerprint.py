"""A short text that changes whenever a weight of a model does."""

from __future__ import annotations

import hashlib

import paddle


def fingerprint(model: paddle.nn.Layer) -> str:
    """A hash over the structured names, shapes and values of all parameters and persistent buffers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        values = tensor.astype("float32") if tensor.dtype in (paddle.bfloat16, paddle.float16) else tensor
        digest.update(f"{name}{list(tensor.shape)}{tensor.dtype}".encode())
        digest.update(values.numpy().tobytes())
    return digest.hexdigest()[:16]
