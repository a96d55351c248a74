"""Holding a model in double precision for a while."""

import paddle
import pytest
from paddle import nn

from dysens.model import doubled, in_double_precision


class Padded(nn.Layer):
    """Makes zeros of a kind that it does not name."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2D(3, 4, 1)

    def forward(self, x):
        x = self.conv(x)
        return paddle.concat([x, paddle.zeros(x.shape)], axis=1)


def test_what_the_forward_makes_is_in_double_precision_too():
    model, x = Padded(), paddle.rand([1, 3, 8, 8])
    with in_double_precision(model):
        assert model(*doubled((x,))).dtype == paddle.float64
    assert model(x).dtype == paddle.float32
    assert paddle.get_default_dtype() == "float32"


def test_after_an_exception_new_tensors_are_as_before():
    model = Padded()
    with pytest.raises(KeyboardInterrupt), in_double_precision(model):
        raise KeyboardInterrupt
    assert paddle.zeros([1]).dtype == paddle.float32
    assert model.conv.weight.dtype == paddle.float32
