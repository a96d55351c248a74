"""Everything about a model that somebody might notice, as plain data: to see that a test subject was left as found."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
from paddle import nn

HOOKS = ("_forward_pre_hooks", "_forward_post_hooks", "_state_dict_hooks")
PLAIN = (bool, int, float, str, type(None), tuple)


def picture(model: nn.Layer, optimizer: Any = None) -> dict[str, Any]:
    """Weights, shapes, modes, hooks, forwards, attributes, gradients, dynamic mode, random state and optimizer state."""
    seen: dict[str, Any] = {"dynamic mode": paddle.in_dynamic_mode(), "random": _next_random()}
    seen["grad enabled"] = paddle.is_grad_enabled()
    for path, layer in model.named_sublayers(include_self=True):
        seen[f"{path}: mode"] = layer.training
        seen[f"{path}: own forward"] = layer.__dict__.get("forward")
        for registry in HOOKS:
            seen[f"{path}: {registry}"] = [(key, id(hook)) for key, hook in getattr(layer, registry).items()]
        seen[f"{path}: attributes"] = {k: v for k, v in vars(layer).items() if isinstance(v, PLAIN)}
        for registry in ("_parameters", "_buffers"):
            for name, tensor in getattr(layer, registry).items():
                seen[f"{path}.{name}"] = _tensor(tensor)
    if optimizer is not None:
        for name, slots in optimizer._accumulators.items():
            for parameter, tensor in slots.items():
                seen[f"optimizer: {name} of {parameter}"] = _tensor(tensor)
        for parameter, tensor in optimizer._master_weights.items():
            seen[f"optimizer: master of {parameter}"] = _tensor(tensor)
    return seen


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What differs between two pictures, in words."""
    return [key for key in {**before, **after} if before.get(key) != after.get(key)]


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    changed = differences(before, after)
    assert not changed, f"{len(changed)} not as they were: {changed[:6]}"


def _tensor(tensor: Any) -> Any:
    if not isinstance(tensor, paddle.Tensor):
        return tensor
    gradient = None if tensor.grad is None else _bytes(tensor.grad)
    return (id(tensor), tensor.name, tensor.stop_gradient, _bytes(tensor), gradient)


def _bytes(tensor: paddle.Tensor) -> tuple[Any, ...]:
    if not tensor._is_initialized():
        return (list(tensor.shape), str(tensor.dtype), None)
    values = tensor.astype("float32") if tensor.dtype in (paddle.float16, paddle.bfloat16) else tensor
    array = np.asarray(values.numpy())
    return (list(tensor.shape), str(tensor.dtype), array.tobytes())


def _next_random() -> bytes:
    """What the next random tensor would be, without drawing it for good."""
    if not paddle.in_dynamic_mode():
        return b""
    state = paddle.get_rng_state()
    drawn = paddle.rand([4]).numpy().tobytes()
    paddle.set_rng_state(state)
    return drawn
