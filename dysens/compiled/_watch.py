"""Noticing that somebody writes to the weights of a model, which a compiled copy of it would not."""

from __future__ import annotations

import ctypes

import paddle

from dysens.model import all_tensors, has_storage


class WeightWatch:
    """Remembers the weights and statistics of a model on the CPU, byte for byte.

    Neither the address nor Paddle's count of writes tells: ``set_value`` and optimizers change neither.

    Args:
        model: The live layer.
    """

    def __init__(self, model: paddle.nn.Layer) -> None:
        self._model = model
        self._places = self._where()
        self._contents = [_contents(place) for place in self._places]

    def changed(self) -> bool:
        """Whether a tensor was replaced, moved or written to since."""
        if self._where() != self._places:
            return True
        return any(_contents(place) != kept for place, kept in zip(self._places, self._contents))

    def _where(self) -> list[tuple[int, int]]:
        """Address and size of each tensor's memory."""
        tensors = [tensor for tensor in all_tensors(self._model) if has_storage(tensor)]
        return [(t.value().get_tensor()._ptr(), int(t.size) * t.element_size()) for t in tensors]


def _contents(place: tuple[int, int]) -> bytes:
    return ctypes.string_at(*place)
