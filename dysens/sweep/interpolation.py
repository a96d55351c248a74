"""Interpolation that the oneDNN predictor of Paddle 3.3 can run.

That predictor refuses every program with an interpolate op on 32-bit floats: it cannot read the op's list of scales. While a
copy of the model is traced, such ops are written in other ways that give the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import paddle

_OPS = ("linear_interp", "bilinear_interp", "trilinear_interp", "nearest_interp", "bicubic_interp")
# What the predictor says when it meets the op.
SYMPTOM = "ConvertPirAttribute2RuntimeAttribute"


@contextmanager
def interpolation_rewritten() -> Iterator[None]:
    """Inside, whoever interpolates gets ops that every predictor runs."""
    # The ops are replaced where all callers look them up, however they imported `interpolate` itself.
    ops = paddle._C_ops
    originals = {name: getattr(ops, name) for name in _OPS}
    try:
        for name, original in originals.items():
            setattr(ops, name, _rewritten(original))
        yield
    finally:
        for name, original in originals.items():
            setattr(ops, name, original)


def _rewritten(original: Callable[..., Any]) -> Callable[..., Any]:
    def interpolate(x: Any, *settings: Any) -> Any:
        if original.__name__ == "nearest_interp":
            factors = _whole_factors(x, *settings)
            if factors is not None:
                return _repeated(x, *factors)
        if x.dtype != paddle.float32:
            return original(x, *settings)
        # oneDNN has no 64-bit kernels, so Paddle's own runs.
        return original(x.astype("float64"), *settings).astype("float32")

    return interpolate


def _whole_factors(
    x: Any,
    out_size: Any,
    size_tensor: Any,
    scale_tensor: Any,
    layout: str,
    depth: int,
    height: int,
    width: int,
    scale: list[float],
    *_: Any,
) -> tuple[int, int] | None:
    """How often each pixel is repeated downwards and sideways, if that is known and whole."""
    if layout != "NCHW" or len(x.shape) != 4 or x.shape[1] <= 0 or scale_tensor is not None:
        return None
    if out_size is not None or size_tensor is not None:
        return None
    factors = list(scale)
    if height > 0 and width > 0:
        if min(x.shape[2:]) <= 0:
            return None
        factors = [height / x.shape[2], width / x.shape[3]]
    if len(factors) != 2 or any(factor < 1 or factor != int(factor) for factor in factors):
        return None
    return int(factors[0]), int(factors[1])


def _repeated(x: Any, down: int, sideways: int) -> Any:
    """Each pixel as a block: a depthwise transposed convolution with ones, which oneDNN runs faster than a tiling."""
    channels = x.shape[1]
    ones = paddle.ones([channels, 1, down, sideways], dtype=x.dtype)
    return paddle.nn.functional.conv2d_transpose(x, ones, stride=[down, sideways], groups=channels)
