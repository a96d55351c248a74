"""Channels that are split and shuffled again and again: what stays is laid out as the narrower network wants it."""

from __future__ import annotations

import json

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from networks import SHAPE, images, made, outputs, randomize, train_step
from paddle import nn
from states import assert_same, picture

from dysens import DygraphSensitivity, load_pruned, save_pruned
from dysens.groups import Port
from dysens.groups._reorder import layout
from dysens.pruning import history


def shuffled(x: paddle.Tensor) -> paddle.Tensor:
    n, c, h, w = x.shape
    return x.reshape([n, 2, c // 2, h, w]).transpose([0, 2, 1, 3, 4]).reshape([n, c, h, w])


class Unit(nn.Layer):
    """Half of the channels pass, half go through a branch with an SE gate; then both are shuffled (ShuffleNetV2, ESNet)."""

    def __init__(self, half: int):
        super().__init__()
        self.point, self.norm = nn.Conv2D(half, half, 1), nn.BatchNorm2D(half)
        self.depthwise = nn.Conv2D(half, half, 3, padding=1, groups=half)
        self.squeeze, self.excite = nn.Conv2D(half, 3, 1), nn.Conv2D(3, half, 1)
        self.linear = nn.Conv2D(half, half, 1)

    def forward(self, x):
        kept, x = paddle.split(x, 2, axis=1)
        x = self.depthwise(F.relu(self.norm(self.point(x))))
        x = x * F.sigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(x, 1)))))
        return shuffled(paddle.concat([kept, F.relu(self.linear(x))], axis=1))


class EsNet(nn.Layer):
    def __init__(self, half: int = 8, units: int = 3):
        super().__init__()
        self.left, self.right = nn.Conv2D(3, half, 1), nn.Conv2D(3, half, 1)
        self.units = nn.Sequential(*(Unit(half) for _ in range(units)))
        self.last, self.fc = nn.Conv2D(2 * half, 6, 1), nn.Linear(6, 4)

    def forward(self, x):
        x = shuffled(paddle.concat([self.left(x), self.right(x)], axis=1))
        return self.fc(F.relu(self.last(self.units(x))).mean(axis=[2, 3]))


@pytest.fixture(scope="module")
def analysed() -> tuple[nn.Layer, DygraphSensitivity]:
    model = made(EsNet)
    return model, DygraphSensitivity(model, SHAPE, criterion="l1")


def test_everything_is_in_a_group_and_every_form_holds(analysed):
    model, ds = analysed
    before = picture(model)
    assert not ds.unprunable
    (group,) = (group for group in ds.groups if group.layouts)
    assert {"left", "right", "units.0.linear", "units.1.linear", "units.2.linear"} <= set(group.layers)
    assert "rearranged" in ds.explain("units.1.linear.weight")
    assert len(group.layouts) > 2
    for form in group.layouts:
        assert ds.verify({group.name: form.removed / group.size}) < 1e-5
    random = np.random.default_rng(0)
    for _ in range(4):
        assert ds.verify({g.name: random.uniform(0.1, 0.9) for g in ds.groups}) < 1e-5
    assert_same(before, picture(model))


def test_a_ratio_between_two_forms_removes_no_more_than_it_says(analysed):
    _, ds = analysed
    (group,) = (group for group in ds.groups if group.layouts)
    scores = np.random.default_rng(0).random(group.size)
    sizes = {len(group.weakest(scores, ratio)) for ratio in np.linspace(0, 0.99, 60)}
    assert sizes == {0, *(form.removed for form in group.layouts)}
    for ratio in np.linspace(0, 0.99, 20):
        assert len(group.weakest(scores, ratio)) <= round(ratio * group.size)


def test_a_cut_network_is_saved_loaded_trained_and_restored(analysed, tmp_path):
    model = made(EsNet)
    optimizer = paddle.optimizer.Adam(0.01, parameters=model.parameters())
    labels = paddle.to_tensor([0, 1, 2, 3])
    train_step(model, optimizer, images(), labels)
    before = picture(model, optimizer)
    ds = DygraphSensitivity(model, SHAPE, criterion="l1", optimizer=optimizer)
    ratios = {group.name: 0.4 for group in ds.groups}
    outcome = ds.prune_vars(ratios)
    assert outcome.plan.reorders
    rearranged_state(model, optimizer, outcome.plan, before)
    save_pruned(model, tmp_path / "cut")
    assert json.loads((tmp_path / "cut.plan.json").read_text())["format"] == 2
    again = load_pruned(made(EsNet), tmp_path / "cut")
    assert np.array_equal(outputs(again), outputs(model))
    losses = [train_step(model, optimizer, images(), labels) for _ in range(8)]
    assert losses[-1] < losses[0]
    ds.restore()
    assert_same({**before, "random": None}, {**picture(model, optimizer), "random": None})


def rearranged_state(model, optimizer, plan, before) -> None:
    """Weights and moments are the old ones, in the plan's order."""
    item = next(cut for cut in plan.cuts if cut.order and cut.tensor == "last.weight")
    moment = optimizer._accumulators["moment1"][model.last.weight.name]
    for now, key in (
        (model.last.weight, "last.weight"),
        (moment, f"optimizer: moment1 of {model.last.weight.name}"),
    ):
        shape, _, values = before[key][3]
        whole = np.frombuffer(values, "float32").reshape(shape)
        kept = next(cut for cut in plan.cuts if cut.tensor == "last.weight" and cut.axis == 0).kept
        assert np.array_equal(now.numpy(), whole[kept][:, list(item.order)])


@pytest.mark.parametrize("forwards", [True, False])
def test_cuts_in_a_row_equal_one(forwards):
    """Indices of a later cut are those of the network that the earlier ones have rearranged."""
    one, two = made(EsNet), made(EsNet)
    first, second = (DygraphSensitivity(model, SHAPE, criterion="random") for model in (one, two))
    ratios = {group.name: 0.4 for group in first.groups}
    first.prune_vars(ratios)
    for name in list(ratios) if forwards else list(ratios)[::-1]:
        assert second.verify({name: 0.4}) < 1e-5
        second.prune_vars({name: 0.4})
    assert len(history(two)) == len(ratios)
    for path, tensor in one.state_dict().items():
        assert np.array_equal(tensor.numpy(), two.state_dict()[path].numpy()), path


def test_a_sweep_masks_and_a_budget_is_kept(analysed):
    model, ds = analysed
    before = picture(model)
    sens = ds.sensitive(
        lambda: float(np.abs(outputs(model)).mean()), ratios=[0.3, 0.6], progress=False, fast="off"
    )
    ratios = ds.ratios_by_flops(sens, 0.4)
    with ds.pruned(ratios) as outcome:
        assert outcome.flops_after <= 0.6 * outcome.flops_before
    assert_same(before, picture(model))


@pytest.mark.once("test-all")  # its units alone, above, are tested on both stacks
def test_shufflenet_v2():
    model = paddle.vision.models.shufflenet_v2_x0_25(num_classes=10)
    randomize(model)
    before = picture(model)
    ds = DygraphSensitivity(model, [1, 3, 64, 64], criterion="l1")
    assert not ds.unprunable
    assert [len(group.scored) for group in ds.groups if group.layouts] == [5, 9, 5]  # the three stages
    random = np.random.default_rng(0)
    assert ds.verify({group.name: random.uniform(0.1, 0.9) for group in ds.groups}) < 1e-4
    assert_same(before, picture(model))


def test_a_narrower_network_with_other_kinds_or_too_many_does_not_fit():
    out, left, right = Port("a", "out", 4, ()), Port("b", "in", 2, ()), Port("c", "in", 2, ())

    def units(*sides):
        return {port: np.array(side, int) for port, side in zip((out, left, right), sides)}

    whole = units([0, 1, 2, 3], [0, 1], [2, 3])
    fit = layout(whole, 4, units([0, 1], [1], [0]), 2)
    assert (fit.removed, fit.kept) == (2, (1, 1))
    assert fit.weakest(np.array([3.0, 1.0, 2.0, 4.0])).tolist() == [1, 2]
    # The narrower network sends its first channel to c: there, unit 3 comes before unit 0.
    assert fit.orders(whole, np.array([1, 2]))[out].tolist() == [3, 0]
    assert layout(whole, 4, units([0, 1, 2], [0, 1, 2], []), 3) is None
    assert layout(whole, 4, units([0, 1], [0, 1], [0, 1]), 2) is None
    assert layout(whole, 4, units([0, 1], [-1, 1], [0]), 2) is None  # a channel that is no longer the group's
