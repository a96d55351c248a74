"""Which groups are alike: the same layers of blocks that are built alike, as most networks repeat a block many times.

What was tried in vain for one of them needs no trial for the next. Nothing is offered for being alike: what works is tried, and
proven, for every group by itself.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import numpy as np
from paddle import nn

from dysens.groups._group import ChannelGroup

_NUMBER = re.compile(r"\d+")


class Likeness:
    """Says what groups of a model are like: what is equal for two groups whose blocks have the same code and widths."""

    def __init__(self, model: nn.Layer) -> None:
        """Take the whole model."""
        self._layers = dict(model.named_sublayers(include_self=True))
        self._known: dict[str, Hashable] = {}

    def of(self, group: ChannelGroup) -> Hashable:
        """What the group is like."""
        ports = tuple(
            (_NUMBER.sub("#", port.layer), port.side, port.size, units.tobytes())
            for port, units in group.units.items()
        )
        around = tuple(self._block(layer.rpartition(".")[0]) for layer in group.layers)
        blocks = tuple(block.tobytes() for block in group.blocks)
        return ports, around, blocks

    def _block(self, path: str) -> Hashable:
        """The classes of all layers in a block, and the whole numbers that they remember."""
        if path not in self._known:
            start = f"{path}." if path else ""
            self._known[path] = tuple(
                (name[len(start) :], type(layer), _remembered(layer))
                for name, layer in self._layers.items()
                if name == path or name.startswith(start)
            )
        return self._known[path]


def _remembered(layer: nn.Layer) -> Hashable:
    numbers = (int, np.integer)
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in vars(layer).items()
    }
    return tuple(
        (name, value)
        for name, value in values.items()
        if isinstance(value, numbers)
        or (isinstance(value, tuple) and all(isinstance(each, numbers) for each in value))
    )
