"""The proof tells rounding from a wrong cut, also where a steep function blows rounding up."""

from __future__ import annotations

import numpy as np
import paddle
from paddle import nn

from dysens.inputs import view_of
from dysens.pruning.plan import PrunePlan, TensorCut
from dysens.pruning.proof import TOLERANCE, difference

SIZE = 256
GONE = tuple(range(0, SIZE, 3))


class Steep(nn.Layer):
    """A step so steep that the order of a sum decides, as at the head of a DB detector in training."""

    def __init__(self, steepness):
        super().__init__()
        self.wide = nn.Conv2D(3, SIZE, 3)
        self.narrow = nn.Conv2D(SIZE, 16, 1)
        self.steepness = steepness

    def forward(self, images):
        features = self.narrow(self.wide(images))
        return nn.functional.sigmoid(self.steepness * (features - features.mean()))


def plan(removed, consumed):
    narrow = TensorCut("narrow.weight", 1, SIZE, consumed)
    filters = [TensorCut(f"wide.{name}", 0, SIZE, removed) for name in ("weight", "bias")]
    return PrunePlan((*filters, narrow), {"wide": {"_out_channels": SIZE - len(removed)}}, (narrow,))


def test_rounding_is_no_difference():
    paddle.seed(2)
    model = Steep(steepness=2e4)
    before = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    assert difference(model, [view_of([1, 3, 96, 96])], plan(GONE, GONE)) <= TOLERANCE
    for name, tensor in model.state_dict().items():
        assert tensor.dtype == paddle.float32
        np.testing.assert_array_equal(tensor.numpy(), before[name])


def test_a_wrong_cut_is_one_in_any_precision():
    paddle.seed(2)
    others = tuple(sorted({index + 1 for index in GONE[:-1]} | {0}))
    assert difference(Steep(steepness=50.0), [view_of([1, 3, 96, 96])], plan(others, GONE)) > TOLERANCE
