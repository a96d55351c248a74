"""Matrix products that no layer is known for: queries times keys and scores times values inside attention.

`paddle.flops` counts layers, so a product of two computed tensors costs it nothing. While a model is counted, Paddle's products
are watched, and each is counted for the innermost layer whose forward runs. Inside a layer that has a counter of its own, such
as a linear layer, nothing is counted twice.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import paddle
from paddle import _C_ops, nn


class Products:
    """Counts products, layer by layer. Inside `dysens.model.preserved`: it leaves hooks on the layers.

    Attributes:
        flops: Multiply-adds of products, by the path of the layer that makes them; "" is the model itself.
        factors: The ids of all tensors that were multiplied.
    """

    def __init__(self) -> None:
        self.flops: dict[str, int] = {}
        self.factors: set[int] = set()
        self._running: list[tuple[str, bool]] = []

    def watch(self, path: str, layer: nn.Layer, counted: bool) -> None:
        """Know when a layer runs.

        Args:
            path: Where it is in the model.
            layer: The layer.
            counted: Whether its work is counted already.
        """

        def begins(_: nn.Layer, given: Any) -> None:
            self._running.append((path, counted))

        def ends(_: nn.Layer, given: Any, returned: Any) -> None:
            self._running.pop()

        layer.register_forward_pre_hook(begins)
        layer.register_forward_post_hook(ends)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Inside, products are counted."""
        kind = type(paddle.zeros([1]))
        before: list[tuple[Any, str, Any, Callable[..., int]]] = [
            (kind, "__matmul__", kind.__matmul__, _of_matmul)
        ]
        kinds: dict[str, Callable[..., int]] = {"matmul": _of_matmul, "bmm": _of_matmul, "einsum": _of_einsum}
        for name, flops_of in kinds.items():
            original = getattr(_C_ops, name)
            before += [(module, name, original, flops_of) for module in _holding(name, original)]
        try:
            for owner, name, original, flops_of in before:
                setattr(owner, name, self._counted(original, flops_of))
            yield
        finally:
            for owner, name, original, _ in before:
                setattr(owner, name, original)

    def _counted(self, original: Callable[..., Any], flops_of: Callable[..., int]) -> Callable[..., Any]:
        def product(*given: Any, **named: Any) -> Any:
            made = original(*given, **named)
            if not any(counted for _, counted in self._running):
                path = self._running[-1][0] if self._running else ""
                self.flops[path] = self.flops.get(path, 0) + flops_of(made, *given, **named)
                self.factors.update(id(each) for each in (*given, *named.values()))
            return made

        return product


def _holding(name: str, function: Any) -> list[Any]:
    """The modules that have a function of Paddle under its name: some of Paddle's own took it over when they were imported."""
    return [
        module
        for module in list(sys.modules.values())
        if getattr(module, "__dict__", {}).get(name) is function
    ]


def _of_matmul(
    made: paddle.Tensor, x: paddle.Tensor, y: Any, transpose_x: bool = False, transpose_y: bool = False
) -> int:
    inner = x.shape[-2] if transpose_x and x.ndim > 1 else x.shape[-1]
    return int(math.prod(made.shape)) * int(inner)


def _of_einsum(made: Any, operands: Any, equation: str) -> int:
    """Every combination of what the letters run over is a multiply-add; one operand alone is only summed up or turned."""
    if len(operands) < 2:
        return 0
    sides: dict[str, int] = {}
    for operand, letters in zip(operands, equation.replace(" ", "").partition("->")[0].split(",")):
        own = list(letters.replace("...", "."))
        if "." in own:
            place, further = own.index("."), operand.ndim - len(own) + 1
            own[place : place + 1] = [f".{further - number}" for number in range(further)]
        for letter, side in zip(own, operand.shape):
            sides[letter] = max(sides.get(letter, 1), int(side))
    return math.prod(sides.values())
