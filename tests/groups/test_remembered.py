"""Widths that blocks remember: numbers beside the weights that a forward reshapes, splits or slices by."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import paddle
import pytest
from paddle import nn

from dysens import DygraphSensitivity, DysensError, load_pruned, save_pruned

SHAPE = [2, 3, 8, 8]


class Excite(nn.Layer):
    """A squeeze-and-excitation block that reshapes by its own idea of a width."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.anything = channels
        self.squeeze = nn.Linear(channels, 4)
        self.excite = nn.Linear(4, channels)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        mean = x.mean([2, 3]).reshape([-1, self.anything])
        gate = nn.functional.sigmoid(self.excite(nn.functional.relu(self.squeeze(mean))))
        return x * gate.reshape([-1, self.anything, 1, 1])


class Sections(nn.Layer):
    """Uneven parts, each with a convolution of its own."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self.parts = widths
        self.convs = nn.LayerList([nn.Conv2D(width, 4, 1) for width in widths])

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return sum(conv(part) for conv, part in zip(self.convs, x.split(self.parts, axis=1)))


class Folding(nn.Layer):
    """A layer without weights that folds by a shape it was given."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.target = shape

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return x.reshape(self.target)


class Net(nn.Layer):
    def __init__(self, middle: nn.Layer, width: int, out: int) -> None:
        super().__init__()
        self.steps = width  # happens to be the same number, and is none of a width
        self.stem = nn.Conv2D(3, width, 3, padding=1)
        self.middle = middle
        self.head = nn.Conv2D(out, 5, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.head(self.middle(nn.functional.relu(self.stem(x))))


class Pooled(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.out = 12
        self.conv = nn.Conv2D(3, 12, 3, padding=1)
        self.linear = nn.Linear(12, 4)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.linear(self.conv(x).mean([2, 3]).reshape([-1, self.out]))


class Ghost(nn.Layer):
    """Cheap channels beside the others, cut back to the width that the block remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 12
        self.primary = nn.Conv2D(3, 8, 1)
        self.cheap = nn.Conv2D(8, 8, 3, padding=1, groups=8)
        self.head = nn.Conv2D(16, 5, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        first = self.primary(x)
        return self.head(paddle.concat([first, self.cheap(first)], 1)[:, : 2 * self.primary.weight.shape[0]])


class Partial(nn.Layer):
    """A convolution of the first channels only, beside the rest: two numbers that make up a width (FasterNet)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim_conv = dim // 4
        self.dim_rest = dim - self.dim_conv
        self.conv = nn.Conv2D(self.dim_conv, self.dim_conv, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        first, rest = x.split([self.dim_conv, self.dim_rest], axis=1)
        return paddle.concat([self.conv(first), rest], 1)


class Mixed(nn.Layer):
    """Channels of several layers side by side, in sections for several others (MixNet)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LayerList([nn.Conv2D(3, 6, 1), nn.Conv2D(3, 6, 3, padding=1)])
        self.norm = nn.BatchNorm2D(12)
        self.middle = Sections([4, 4, 4])
        self.head = nn.Conv2D(4, 5, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.head(self.middle(self.norm(paddle.concat([conv(x) for conv in self.first], 1))))


NETWORKS: dict[str, tuple[Callable[[], nn.Layer], str]] = {
    "reshape by an attribute": (lambda: Net(Excite(8), 8, 8), "stem.weight"),
    "sections of a split": (lambda: Net(Sections([5, 3, 4]), 12, 4), "stem.weight"),
    "sections in a tuple": (lambda: Net(Sections((6, 6)), 12, 4), "stem.weight"),
    "a shape that a layer holds": (lambda: Net(Folding((0, 8, 8, -1)), 8, 8), "stem.weight"),
    "an attribute of the model": (Pooled, "conv.weight"),
    "a slice": (Ghost, "primary.weight"),
    "a part and the rest": (lambda: Net(nn.Sequential(Partial(12), Partial(12)), 12, 12), "stem.weight"),
    "sections of several layers": (Mixed, "first.0.weight"),
}


def made(name: str) -> nn.Layer:
    paddle.seed(1)
    model = NETWORKS[name][0]()
    model.eval()
    return model


@pytest.mark.parametrize("name", NETWORKS)
def test_the_width_follows_the_cut_and_comes_back(name: str) -> None:
    model = made(name)
    inputs = paddle.randn(SHAPE)
    whole = model(inputs).numpy()
    ds = DygraphSensitivity(model, SHAPE)
    assert NETWORKS[name][1] in [group.path for group in ds.groups], dict(ds.unprunable)
    for ratio in (0.2, 0.5, 0.7):
        assert ds.verify({NETWORKS[name][1]: ratio}) < 1e-5
    ds.prune_vars({NETWORKS[name][1]: 0.5})
    assert np.isfinite(model(inputs).numpy()).all()
    ds.restore()
    assert (model(inputs).numpy() == whole).all()


@pytest.mark.parametrize("name", NETWORKS)
def test_a_pruned_model_is_read_back(name: str, tmp_path: Path) -> None:
    model = made(name)
    ds = DygraphSensitivity(model, SHAPE)
    ds.prune_vars({NETWORKS[name][1]: 0.4})
    save_pruned(model, tmp_path / "pruned")
    again = made(name)
    load_pruned(again, tmp_path / "pruned")
    inputs = paddle.randn(SHAPE)
    assert (again(inputs).numpy() == model(inputs).numpy()).all()


def test_a_number_that_happens_to_be_the_width_stays() -> None:
    model = made("reshape by an attribute")
    ds = DygraphSensitivity(model, SHAPE)
    ds.prune_vars({"stem.weight": 0.5})
    assert (model.steps, model.middle.anything) == (8, 4)
    ds.restore()
    assert model.middle.anything == 8


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("reshape by an attribute", "middle", {"anything": 3}),  # not what is left
        ("reshape by an attribute", "", {"steps": 7}),
        ("reshape by an attribute", "head", {"_padding": 4}),
        ("sections of a split", "middle", {"parts": [1, 1, 1]}),
        ("sections of a split", "middle", {"parts": [7, 3, 2, 1]}),
        ("sections of a split", "middle", {"parts": "all"}),
        ("sections of a split", "middle", {"convs": 6}),
        ("sections of a split", "middle", {"forward": 6}),
        ("sections of a split", "middle", {"__class__": 6}),
        ("a part and the rest", "middle.0", {"dim_rest": 1}),
    ],
)
def test_a_plan_sets_nothing_that_its_cuts_do_not_explain(
    name: str, path: str, value: dict[str, object], tmp_path: Path
) -> None:
    model = made(name)
    DygraphSensitivity(model, SHAPE).prune_vars({"stem.weight": 0.5})
    save_pruned(model, tmp_path / "pruned")
    file = tmp_path / "pruned.plan.json"
    plan = json.loads(file.read_text())
    plan["stages"][0]["attributes"].setdefault(path, {}).update(value)
    file.write_text(json.dumps(plan))
    with pytest.raises(DysensError, match=r"plan"):
        load_pruned(made(name), tmp_path / "pruned")


class Stubborn(nn.Layer):
    """Reshapes by a number that is nowhere but in its code."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2D(3, 8, 3, padding=1)
        self.head = nn.Conv2D(8, 2, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.head(self.conv(x).reshape([-1, 8, 8, 8]))


def test_what_no_attribute_explains_stays_with_a_reason() -> None:
    model = Stubborn()
    ds = DygraphSensitivity(model, SHAPE)
    assert not ds.groups
    assert "cutting it does not work" in ds.explain("conv.weight")


class ChoosesByWidths(nn.Layer):
    """A block that takes its shortcut by comparing widths that it remembers under names that follow cuts (ResNeSt)."""

    def __init__(self) -> None:
        super().__init__()
        self.inplanes, self.planes = 16, 4
        self.conv1 = nn.Conv2D(16, 4, 1)
        self.conv2 = nn.Conv2D(4, 16, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        y = self.conv2(nn.functional.relu(self.conv1(x)))
        return y + (self.shortcut(x) if self.inplanes != self.planes * 4 else x)


def test_an_attribute_that_a_forward_chooses_its_way_by_stays() -> None:
    model = nn.Sequential(nn.Conv2D(3, 16, 3), ChoosesByWidths(), nn.ReLU(), nn.Conv2D(16, 2, 1))
    ds = DygraphSensitivity(model, [1, 3, 8, 8])
    assert [group.path for group in ds.groups] == ["0.weight", "1.conv1.weight"]
    ratios = {group.name: 0.5 for group in ds.groups}
    assert ds.verify(ratios) < 1e-5
    ds.prune_vars(ratios)
    assert (model[1].inplanes, model[1].planes) == (16, 4)
    assert model[1].conv1.weight.shape[:2] == [2, 8]


class DualPath(nn.Layer):
    """A sum, and beside it channels that are twice as many as a number says (DPN)."""

    def __init__(self) -> None:
        super().__init__()
        self.base_dim, self.inc = 12, 4
        self.start = nn.Conv2D(3, self.base_dim + 2 * self.inc, 1)
        self.more = nn.Conv2D(self.base_dim + 2 * self.inc, self.base_dim + self.inc, 1)
        self.head = nn.Conv2D(self.base_dim + 3 * self.inc, 5, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        start = self.start(x)
        one, beside = start.split([self.base_dim, 2 * self.inc], axis=1)
        two, further = self.more(start).split([self.base_dim, self.inc], axis=1)
        return self.head(paddle.concat([one + two, beside, further], 1))


def test_of_a_group_that_fails_the_part_that_works_is_offered() -> None:
    model = DualPath()
    model.eval()
    ds = DygraphSensitivity(model, SHAPE)
    (group,) = ds.groups
    assert (group.size, group.rule) == (12, "12 of 24 channels, the others stay")
    assert ds.verify({group.name: 0.5}) < 1e-5
    ds.prune_vars({group.name: 0.5})
    assert (model.base_dim, model.inc, model.head.weight.shape[1]) == (6, 4, 18)


class Bottleneck(nn.Layer):
    """Two layers that are as wide as a number by which the forward chooses its way: cut alike, it would follow them."""

    def __init__(self) -> None:
        super().__init__()
        self.inplanes, self.planes = 16, 4
        self.conv1 = nn.Conv2D(16, 4, 1)
        self.conv2 = nn.Conv2D(4, 4, 3, padding=1)
        self.conv3 = nn.Conv2D(4, 16, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        y = self.conv3(nn.functional.relu(self.conv2(nn.functional.relu(self.conv1(x)))))
        return y + (self.shortcut(x) if self.inplanes != self.planes * 4 else x)


def test_an_attribute_that_would_follow_two_groups_at_once_stays() -> None:
    model = nn.Sequential(nn.Conv2D(3, 16, 3), Bottleneck(), nn.ReLU(), nn.Conv2D(16, 2, 1))
    ds = DygraphSensitivity(model, [1, 3, 8, 8])
    assert [group.path for group in ds.groups] == ["0.weight", "1.conv1.weight", "1.conv2.weight"]
    assert ds.verify({group.name: 0.5 for group in ds.groups}) < 1e-5
