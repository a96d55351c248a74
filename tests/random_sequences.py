"""Random networks of what sequences are made of: attention, recurrent layers, hidden units, and widths that blocks remember."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

SHAPE = [2, 3, 8, 8]


class Heads(nn.Layer):
    """Attention as most people write it: one projection or three, widths kept beside them."""

    def __init__(self, dim: int, heads: int, fused: bool, scaled_by: str) -> None:
        super().__init__()
        self.dim, self.num_heads, self.head_dim = dim, heads, dim // heads
        self.scale = self.head_dim**-0.5 if scaled_by == "number" else None
        self.qkv = nn.Linear(dim, 3 * dim) if fused else None
        self.parts = nn.LayerList([] if fused else [nn.Linear(dim, dim) for _ in range(3)])
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        if self.qkv is not None:
            joint = self.qkv(x).reshape([0, -1, 3, self.num_heads, self.head_dim])
            q, k, v = joint.transpose([2, 0, 3, 1, 4])
        else:
            each = (part(x).reshape([0, -1, self.num_heads, self.head_dim]) for part in self.parts)
            q, k, v = (part.transpose([0, 2, 1, 3]) for part in each)
        scale = self.scale if self.scale is not None else self.head_dim**-0.5
        mixed = F.softmax(q @ k.transpose([0, 1, 3, 2]) * scale) @ v
        return self.proj(mixed.transpose([0, 2, 1, 3]).reshape([0, -1, self.num_heads * self.head_dim]))


class Hidden(nn.Layer):
    """Hidden units, maybe with a gate that is split off by a remembered width."""

    def __init__(self, dim: int, hidden: int, split: bool) -> None:
        super().__init__()
        self.hidden = hidden
        self.up = nn.Linear(dim, 2 * hidden if split else hidden)
        self.down = nn.Linear(hidden, dim)
        self.split = split

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = self.up(x)
        if self.split:
            x, gate = x.split([self.hidden, self.hidden], axis=-1)
            return self.down(x * F.sigmoid(gate))
        return self.down(F.gelu(x))


class Recurrent(nn.Layer):
    """A recurrent layer and what reads it: its outputs, both directions added up, by a remembered width, or its last state."""

    def __init__(self, dim: int, kind: str, both_ways: bool, layers: int, read: str) -> None:
        super().__init__()
        direction = "bidirect" if both_ways else "forward"
        self.read = read
        self.width = 6 * (2 if both_ways else 1)
        self.cells = getattr(nn, kind)(dim, 6, num_layers=layers, direction=direction)
        self.out = nn.Linear(6 if read == "added" else self.width, dim)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        y, states = self.cells(x)
        if self.read == "added":
            y = sum(y.chunk(self.cells.num_directions, axis=-1))
        elif self.read == "reshaped":
            y = y.reshape([0, -1, 1, self.width]).squeeze(2)
        elif self.read == "state":
            last = states[0] if isinstance(states, tuple) else states
            y = y + last[-1].mean(-1, keepdim=True).unsqueeze(1)
        return self.out(y)


class Along(nn.Layer):
    """Convolutions along the sequence, maybe with a group norm, whose width is remembered for a reshape."""

    def __init__(self, dim: int, width: int, norm: bool) -> None:
        super().__init__()
        self.width = width
        self.first = nn.Conv1D(dim, width, 3, padding=1)
        self.norm = nn.GroupNorm(2, width) if norm else None
        self.second = nn.Conv1D(width, dim, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        y = F.relu(self.first(x.transpose([0, 2, 1])))
        if self.norm is not None:
            y = self.norm(y.unsqueeze(-1)).squeeze(-1)
        pooled = y.mean(-1).reshape([-1, self.width, 1])
        return self.second(y * F.sigmoid(pooled)).transpose([0, 2, 1])


class RandomSequence(nn.Layer):
    """Patches, some blocks one after the other, each maybe behind a layer norm and added to what it reads, and a head."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        paddle.seed(seed)
        draw = np.random.default_rng(seed)
        heads = int(draw.choice([2, 3, 4]))
        dim = heads * int(draw.choice([2, 3, 4]))
        self.patches = nn.Conv2D(3, dim, int(draw.choice([2, 4])), 2)
        self.names: list[str] = []
        blocks, norms = [], []
        for _ in range(int(draw.integers(1, 4))):
            kind = str(
                draw.choice(["heads", "heads", "hidden", "hidden", "recurrent", "along", "paddle heads"])
            )
            self.names.append(kind)
            blocks.append(self._block(kind, dim, heads, draw))
            norms.append(nn.LayerNorm(dim) if draw.random() < 0.5 else nn.Identity())
        self.blocks, self.norms = nn.LayerList(blocks), nn.LayerList(norms)
        self.added = [bool(draw.random() < 0.6) for _ in blocks]
        self.head = nn.Linear(dim, 3)
        for layer in self.sublayers():
            if isinstance(layer, nn.LayerNorm):
                layer.weight.set_value(paddle.uniform(layer.weight.shape, min=0.5, max=1.5))

    @staticmethod
    def _block(kind: str, dim: int, heads: int, draw: np.random.Generator) -> nn.Layer:
        if kind == "heads":
            return Heads(dim, heads, bool(draw.random() < 0.5), str(draw.choice(["number", "width"])))
        if kind == "paddle heads":
            return nn.MultiHeadAttention(dim, heads)
        if kind == "hidden":
            return Hidden(dim, int(draw.choice([6, 8, 10])), bool(draw.random() < 0.4))
        if kind == "recurrent":
            name = str(draw.choice(["LSTM", "GRU", "SimpleRNN"]))
            read = str(draw.choice(["plain", "plain", "added", "reshaped", "state"]))
            return Recurrent(dim, name, bool(draw.random() < 0.5), int(draw.choice([1, 2])), read)
        return Along(dim, int(draw.choice([4, 8])), bool(draw.random() < 0.5))

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = self.patches(x).flatten(2).transpose([0, 2, 1])
        for block, norm, added in zip(self.blocks, self.norms, self.added):
            y = block(norm(x))
            x = x + y if added else y
        return self.head(x.mean(1))

    def __str__(self) -> str:
        return " > ".join(self.names)
