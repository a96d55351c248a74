"""Transposed convolutions in an exported copy: their bias is added in the form that Paddle 2.6 fuses.

Its passes know ``elementwise_add`` along axis 1, but `conv2d_transpose` reshapes the bias and adds along the last axis. Then
bias, batch norm and activation run one by one, which is a sixth of a pass of PP-OCRv3 det.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import paddle
from paddle.nn import functional
from paddle.tensor.math import _add_with_axis

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
