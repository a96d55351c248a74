"""Forwards that are more than a chain of layers: NMS, branches taken by value or by mode, low precision, odd outputs."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from networks import SHAPE, ConvBN, SmallNet, images, made, outputs
from paddle import nn
from states import assert_same, picture

from dysens import DygraphSensitivity, load_pruned, save_pruned
from dysens.model import tensors_by_path


def reasons_by_path(model: nn.Layer, ds: DygraphSensitivity) -> dict[str, str]:
    paths = {tensor.name: path for path, tensor in tensors_by_path(model).items()}
    return {paths[name]: reason for name, reason in ds.unprunable.items()}


class Detector(nn.Layer):
    """Boxes and scores from a feature map; in eval mode they are thresholded and suppressed, in training returned whole."""

    def __init__(self):
        super().__init__()
        self.stem, self.neck = ConvBN(3, 8, stride=2), ConvBN(8, 12)
        self.boxes, self.scores = nn.Conv2D(12, 4, 1), nn.Conv2D(12, 1, 1)

    def forward(self, x):
        x = self.neck(self.stem(x))
        corners = self.boxes(x).flatten(2).transpose([0, 2, 1])[0]
        scores = F.sigmoid(self.scores(x)).flatten()
        if self.training:
            return corners, scores
        boxes = paddle.concat([corners[:, :2], corners[:, :2] + F.softplus(corners[:, 2:]) + 0.1], axis=1)
        kept = paddle.vision.ops.nms(boxes, 0.5, scores)
        kept = kept[: int((scores > 0.3).sum())]
        return {"boxes": paddle.gather(boxes, kept), "number": kept.shape[0], "masks": None}


def test_a_detector_that_suppresses_boxes_in_eval():
    model = made(Detector)
    ds = DygraphSensitivity(model, SHAPE, criterion="l1")
    assert {"stem.0.weight", "neck.0.weight"} <= {group.path for group in ds.groups}
    assert set(reasons_by_path(model, ds)) <= {"boxes.weight", "scores.weight"}
    ds.prune_vars({group.name: 0.5 for group in ds.groups})
    assert model(images(1))["masks"] is None


class OddOutputs(nn.Layer):
    """Gives back lists, numbers, strings, None, an empty tensor, and integers."""

    def __init__(self):
        super().__init__()
        self.stem, self.body = ConvBN(3, 8), ConvBN(8, 6)
        self.head = nn.Conv2D(6, 2, 1)

    def forward(self, x):
        maps = self.head(self.body(self.stem(x)))
        classes = maps.argmax(axis=1)
        return [None, [maps, {"classes": classes, "nothing": paddle.zeros([0, 4])}], ("done", 3, None)]


def test_odd_outputs():
    model = made(OddOutputs)
    ds = DygraphSensitivity(model, SHAPE, criterion="l1")
    assert [group.path for group in ds.groups] == ["stem.0.weight", "body.0.weight"]
    assert ds.verify({group.name: 0.5 for group in ds.groups}) < 1e-5


class NothingReturned(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Conv2D(3, 4, 1), nn.Conv2D(4, 2, 1)

    def forward(self, x):
        self.head(self.stem(x))


def test_a_model_that_returns_nothing_says_that_its_last_layer_leads_nowhere():
    model = made(NothingReturned)
    ds = DygraphSensitivity(model, SHAPE)
    assert [group.path for group in ds.groups] == ["stem.weight"]
    assert "nothing that dysens can see depends on" in reasons_by_path(model, ds)["head.weight"]


class Chooser(nn.Layer):
    """Which branch runs depends on what the gate makes of the picture."""

    def __init__(self, threshold: float):
        super().__init__()
        self.stem = nn.Conv2D(3, 6, 3, padding=1)
        self.gate = nn.Conv2D(6, 1, 1)
        self.above, self.below = nn.Conv2D(6, 4, 1), nn.Conv2D(6, 4, 1)
        self.head = nn.Conv2D(4, 2, 1)
        self.threshold = threshold

    def forward(self, x):
        x = F.relu(self.stem(x))
        branch = self.above if float(self.gate(x).mean()) > self.threshold else self.below
        return self.head(F.relu(branch(x)))


def test_both_ways_of_a_forward_that_chooses_by_values():
    """What probes see with random answers is one way, and the real forward takes the other: both branches are cut."""
    model = made(Chooser, threshold=0.0)  # random answers are positive
    model.gate.bias.set_value(paddle.to_tensor([-100.0]))
    before = picture(model)
    ds = DygraphSensitivity(model, SHAPE, criterion="l1")
    assert [group.path for group in ds.groups] == ["stem.weight", "above.weight"]
    assert set(ds.groups[0].layers) == {"stem", "gate", "above", "below"}
    assert {"above.weight", "below.weight"} <= set(ds.groups[1].filters)
    assert "has only one channel" in reasons_by_path(model, ds)["gate.weight"]
    ratios = {group.name: 0.5 for group in ds.groups}
    assert ds.verify(ratios) < 1e-5
    assert_same(before, picture(model))
    ds.prune_vars(ratios)
    for bias in (-100.0, 100.0):
        model.gate.bias.set_value(paddle.to_tensor([bias]))
        assert outputs(model).shape == (4, 2, 16, 16)


class Experts(nn.Layer):
    """One of five branches, by the digits of what a layer says: any other value chooses another."""

    def __init__(self, by_gate: bool):
        super().__init__()
        self.stem = nn.Conv2D(3, 6, 1)
        self.gate = nn.Conv2D(6, 1, 1)
        self.experts = nn.LayerList([nn.Conv2D(6, 6, 1) for _ in range(5)])
        self.head = nn.Conv2D(6, 2, 1)
        self.by_gate = by_gate

    def forward(self, x):
        x = self.stem(x)
        choice = self.gate(x) if self.by_gate else x
        return self.head(F.relu(self.experts[int(float(choice.abs().sum()) * 100) % 5](x)))


@pytest.mark.parametrize(("by_gate", "chooser"), [(True, "gate"), (False, "stem")])
def test_a_layer_whose_values_choose_the_way_stays(by_gate, chooser):
    model = made(Experts, by_gate=by_gate)
    before = picture(model)
    ds = DygraphSensitivity(model, SHAPE, criterion="l1")
    said = f"takes another way when the values of layer '{chooser}' change"
    assert said in reasons_by_path(model, ds)[f"{chooser}.weight"]
    assert_same(before, picture(model))


class Loops(nn.Layer):
    """How often a layer runs depends on the size of the picture."""

    def __init__(self):
        super().__init__()
        self.stem, self.body = ConvBN(3, 6), ConvBN(6, 6)
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        x = self.stem(x)
        while min(x.shape[2:]) > 2:
            x = F.max_pool2d(x + self.body(x), 2)
        return self.head(x.mean(axis=[2, 3]))


def test_a_loop_that_depends_on_the_size():
    model = made(Loops)
    ds = DygraphSensitivity(model, [1, 3, 40, 24], criterion="l1")
    (group,) = ds.groups
    assert {"stem.0.weight", "body.0.weight"} <= set(group.filters)
    assert ds.verify({ds.groups[0].name: 0.5}) < 1e-5


class TrainingBranch(nn.Layer):
    """A second head that only training runs, as in MultiHead: it takes the same features in."""

    def __init__(self):
        super().__init__()
        self.stem, self.body = ConvBN(3, 8, stride=2), ConvBN(8, 12)
        self.head = nn.Conv2D(12, 2, 1)
        self.aside = ConvBN(12, 10)
        self.guide = nn.Linear(10, 5)
        self.label = nn.Embedding(7, 5)

    def forward(self, x, labels=None):
        features = self.body(self.stem(x))
        maps = self.head(features)
        if not self.training:
            return maps
        guided = self.guide(F.dropout(self.aside(features).mean(axis=[2, 3]), 0.5))
        return {"maps": maps, "guide": guided + self.label(labels)}


LABELS = paddle.to_tensor([1, 3])


def test_a_branch_of_training_is_pruned_with_the_rest():
    model = made(TrainingBranch)
    before = picture(model)
    ds = DygraphSensitivity(model, SHAPE, criterion="l1", train_inputs=(images(2), LABELS))
    assert_same(before, picture(model))
    assert [group.path for group in ds.groups] == ["stem.0.weight", "body.0.weight", "aside.0.weight"]
    assert {"head", "aside.0"} <= set(ds.groups[1].layers)
    ratios = {group.name: 0.5 for group in ds.groups}
    assert ds.verify(ratios) < 1e-5
    ds.prune_vars(ratios)
    model.train()
    returned = model(images(2), LABELS)
    assert returned["guide"].shape == [2, 5]
    (returned["maps"].mean() + returned["guide"].mean()).backward()
    assert model.aside[0].weight.grad.shape == [5, 6, 3, 3]


def test_without_training_inputs_a_cut_that_would_break_the_branch_is_still_only_about_eval():
    """The branch is said not to run; its user is told what to give."""
    model = made(TrainingBranch)
    ds = DygraphSensitivity(model, SHAPE, criterion="l1")
    assert "does not run in this forward" in reasons_by_path(model, ds)["aside.0.weight"]


class TrainingMixes(nn.Layer):
    """What training does with the features allows no cut: then eval mode offers none either."""

    def __init__(self):
        super().__init__()
        self.stem, self.body = ConvBN(3, 8, stride=2), ConvBN(8, 12)
        self.head = nn.Conv2D(12, 2, 1)

    def forward(self, x):
        features = self.body(self.stem(x))
        maps = self.head(features)
        return (maps, features) if self.training else maps


def test_a_group_has_to_survive_both_forwards():
    model = made(TrainingMixes)
    ds = DygraphSensitivity(model, SHAPE, criterion="l1", train_inputs=(images(2),))
    assert [group.path for group in ds.groups] == ["stem.0.weight"]
    assert "reach the model's output in training" in reasons_by_path(model, ds)["body.0.weight"]


def test_a_model_in_training_mode_gives_the_same_groups():
    models = [made(SmallNet), made(SmallNet)]
    models[1].train()
    before = picture(models[1])
    one, other = (DygraphSensitivity(model, SHAPE, criterion="l1") for model in models)
    assert_same(before, picture(models[1]))
    assert [group.members for group in one.groups] == [group.members for group in other.groups]
    ratios = {group.name: 0.5 for group in one.groups}
    for ds in (one, other):
        ds.prune_vars(ratios)
    assert np.array_equal(outputs(models[0]), outputs(models[1]))


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_half_precision(precision, tmp_path):
    """The same groups as in single precision; weights stay in half precision, and hold the old values where they are kept."""
    full, half = made(SmallNet), made(SmallNet)
    half.to(dtype=precision)
    before = picture(half)
    ds, reference = (DygraphSensitivity(model, SHAPE, criterion="l1") for model in (half, full))
    assert [(g.path, g.size) for g in ds.groups] == [(g.path, g.size) for g in reference.groups]
    ratios = {group.name: 0.5 for group in ds.groups}
    assert ds.verify(ratios) < 1e-3
    assert_same(before, picture(half))
    outcome = ds.prune_vars(ratios)
    assert {str(p.dtype).rpartition(".")[2] for p in half.parameters()} == {precision}
    reference.prune_vars(ratios)
    assert [p.shape for p in half.parameters()] == [p.shape for p in full.parameters()]
    assert outcome.params_after == sum(p.size for p in full.parameters())
    save_pruned(half, tmp_path / "half")
    again = made(SmallNet)
    again.to(dtype=precision)
    load_pruned(again, tmp_path / "half")
    for one, other in zip(half.parameters(), again.parameters()):
        assert np.array_equal(one.astype("float32").numpy(), other.astype("float32").numpy())
    ds.restore()
    assert_same({**before, "random": None}, {**picture(half), "random": None})
