"""What Paddle's export and predictor need to run a network: rewritten operators, and silence."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import paddle
from paddle.nn import functional
from paddle.tensor.math import _add_with_axis

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


# Where `data_format` is among the positional arguments after the bias.
_LAYOUT = 6


@contextmanager
def fusable_bias() -> Iterator[None]:
    """Inside, transposed convolutions that are traced add their bias so that it can be fused."""
    original = functional.conv2d_transpose

    def conv2d_transpose(x: Any, weight: Any, bias: Any = None, *settings: Any, **named: Any) -> Any:
        layout = named.get("data_format", settings[_LAYOUT] if len(settings) > _LAYOUT else "NCHW")
        if bias is None or paddle.in_dynamic_mode() or layout != "NCHW":
            return original(x, weight, bias, *settings, **named)
        return _add_with_axis(original(x, weight, None, *settings, **named), bias, axis=1)

    functional.conv2d_transpose = conv2d_transpose
    try:
        yield
    finally:
        functional.conv2d_transpose = original


@contextmanager
def quietly() -> Iterator[None]:
    """Hush Python warnings, the log of Paddle's converter, and what its C++ code prints to standard output."""
    converter = logging.getLogger("dy2static")
    level = converter.level
    converter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), _output_to_errors():
            warnings.simplefilter("ignore")
            yield
    finally:
        converter.setLevel(level)


@contextmanager
def _output_to_errors() -> Iterator[None]:
    """What C++ code prints goes to standard error, so that a program's own output stays clean."""
    if sys.stdout is not None:
        sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # there is no standard output
        yield
        return
    try:
        os.dup2(2, 1)
        yield
    finally:
        if os.name == "posix":
            ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
