"""Large pictures: probed and proven at a small size, and once at the given one."""

from __future__ import annotations

import paddle
from paddle import nn

from dysens import DygraphSensitivity


class ChangesWithSize(nn.Layer):
    """Large pictures leave out a channel of what the first layer gives: small ones don't show it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2D(3, 8, 3, padding=1)
        self.second = nn.Conv2D(8, 8, 3, padding=1)
        self.last = nn.Conv2D(8, 2, 1)

    def forward(self, pictures: paddle.Tensor) -> paddle.Tensor:
        features = self.first(pictures)
        if pictures.shape[2] > 200:
            # The mean over channels, which a cut changes.
            features = features + features.mean(1, keepdim=True)
        return self.last(self.second(features))


def test_what_only_large_pictures_do_is_seen() -> None:
    paddle.seed(0)
    ds = DygraphSensitivity(ChangesWithSize(), [1, 3, 256, 256])
    assert [group.path for group in ds.groups] == ["second.weight"]


def test_small_and_large_pictures_have_the_same_groups() -> None:
    paddle.seed(0)
    model = nn.Sequential(
        nn.Conv2D(3, 8, 3), nn.BatchNorm2D(8), nn.ReLU(), nn.Conv2D(8, 8, 3), nn.Conv2D(8, 2, 1)
    )
    paths = [
        [
            group.path
            for group in DygraphSensitivity(model, [1, 3, side, side], train_inputs=[2, 3, side, side]).groups
        ]
        for side in (32, 320)
    ]
    assert paths[0] == paths[1] == ["0.weight", "3.weight"]


class Place(nn.Layer):
    """The place of the largest value. Half as high, 3x3 convolutions leave nothing of 8x8 pixels, and Paddle finds any place."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2D(3, 4, 3), nn.Conv2D(4, 8, 3))

    def forward(self, pictures: paddle.Tensor) -> paddle.Tensor:
        return self.body(pictures).argmax()


def test_sizes_that_leave_nothing_prove_nothing() -> None:
    paddle.seed(0)
    heights: list[int] = []
    model = Place()
    model.body.register_forward_post_hook(lambda layer, inputs, output: heights.append(int(output.shape[2])))
    ds = DygraphSensitivity(model, [2, 3, 8, 8])
    assert 0 in heights or paddle.__version__.startswith("2.")  # Paddle 3 takes pictures that are too small
    assert [group.path for group in ds.groups] == ["body.0.weight"]
    heights.clear()
    assert ds.verify({"body.0.weight": 0.5}) == 0
    assert heights
    assert 0 not in heights
