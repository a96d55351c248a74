"""A criterion of one's own that scores whole groups: wherever a sweep runs, and cut after cut."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from networks import SHAPE, SmallNet, images, made, outputs
from paddle import nn

from dysens import DygraphSensitivity, GroupCriterion, MetricEvaluator
from dysens.errors import InputError, JournalError


class ReadWeight(GroupCriterion):
    """How much weight the layers that read a unit give to it."""

    def score(self, group, tensors):
        scores = np.zeros(group.size)
        for port, unit in group.units.items():
            assert len(unit) == port.size
            for piece in port.slices if port.side == "in" else ():
                weight = np.moveaxis(tensors[piece.tensor].numpy(), piece.axis, 0)
                read = np.abs(weight).reshape(port.size, -1).sum(axis=1)
                scores += np.bincount(unit[unit >= 0], read[unit >= 0], minlength=group.size)
        return scores


class Backwards(GroupCriterion):
    """The last units go first."""

    def score(self, group, tensors):
        return -np.arange(group.size, dtype=float)


class Concat(nn.Layer):
    """Two branches that one layer reads: each group has a part of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Conv2D(3, 6, 1)
        self.right = nn.Conv2D(3, 10, 1)
        self.after = nn.Conv2D(16, 4, 1)

    def forward(self, x):
        both = paddle.concat([self.left(x), self.right(x)], axis=1)
        return self.after(nn.functional.relu(both))


@pytest.fixture
def model():
    return made(SmallNet)


def test_the_units_with_the_lowest_scores_go(model):
    ds = DygraphSensitivity(model, SHAPE, criterion=Backwards())
    plan = ds.prune_vars({"point.weight": 0.25}).plan
    assert next(cut.removed for cut in plan.cuts if cut.tensor == "point.weight") == (12, 13, 14, 15)
    ds.restore()
    read = sum(np.abs(layer.weight.numpy()).sum(axis=(0, 2, 3)) for layer in [model.squeeze])
    read += np.abs(model.fc.weight.numpy()).reshape(16, -1).sum(axis=1)
    plan = DygraphSensitivity(model, SHAPE, criterion=ReadWeight()).prune_vars({"point.weight": 0.25}).plan
    removed = next(cut.removed for cut in plan.cuts if cut.tensor == "point.weight")
    assert set(removed) == set(np.argsort(read)[:4])


@pytest.mark.parametrize("how", ["sensitive", "search"])
def test_compiled_copies_serve_it(model, how, caplog):
    """Before, it was told that it shifts biases, and the live model ran."""
    labels = outputs(model).argmax(axis=1).reshape(-1, 1)
    evaluator = MetricEvaluator([(images(), paddle.to_tensor(labels))], paddle.metric.Accuracy())
    ds = DygraphSensitivity(model, SHAPE, criterion=ReadWeight())
    options = {"ratios": [0.25, 0.5], "progress": False, "target_vars": ["point.weight", "stem.0.weight"]}
    with caplog.at_level("INFO", "dysens"):
        fast = getattr(ds, how)(evaluator, fast="on", **options)
    assert "biases" not in caplog.text
    live = getattr(ds, how)(evaluator, fast="off", **options)
    if how == "sensitive":
        assert fast.to_dict() == live.to_dict()
    else:
        assert fast.ratios == live.ratios


def test_cut_after_cut_as_in_one_go():
    """Before, it was told that it had looked at the whole model. The second group's reader is narrower by then."""
    one, two = made(Concat), made(Concat)
    DygraphSensitivity(one, SHAPE, criterion=ReadWeight()).prune_vars(
        {"left.weight": 0.5, "right.weight": 0.3}
    )
    ds = DygraphSensitivity(two, SHAPE, criterion=ReadWeight())
    ds.prune_vars({"left.weight": 0.5})
    assert ds.verify({"right.weight": 0.3}) < 1e-5
    ds.prune_vars({"right.weight": 0.3})
    assert one.after.weight.shape == [4, 10, 1, 1]
    for path, tensor in one.state_dict().items():
        assert np.array_equal(tensor.numpy(), two.state_dict()[path].numpy()), path


@pytest.mark.parametrize("first", ["left.weight", "right.weight"])
def test_the_weights_at_the_second_cut_count(first):
    """Fine-tuning between cuts changes what is read."""
    model = made(Concat)
    ds = DygraphSensitivity(model, SHAPE, criterion=ReadWeight())
    ds.prune_vars({first: 0.5})
    weight = model.after.weight.numpy()
    second, start = ("right.weight", 3) if first == "left.weight" else ("left.weight", 0)
    weight[:, start + 2] = 0.0
    model.after.weight.set_value(weight)
    plan = ds.prune_vars({second: 0.2}).plan
    assert 2 in next(cut.removed for cut in plan.cuts if cut.tensor == second)


def test_a_journal_knows_it_in_the_next_process_and_apart_from_others(model, tmp_path):
    ds = DygraphSensitivity(model, SHAPE, criterion=Backwards())
    sweep = {"ratios": [0.5], "target_vars": "point.weight", "sen_file": tmp_path / "s", "progress": False}
    ds.sensitive(lambda: 1.0, **sweep)
    DygraphSensitivity(model, SHAPE, criterion=Backwards()).sensitive(lambda: 1.0, **sweep)
    other = DygraphSensitivity(model, SHAPE, criterion=ReadWeight())
    with pytest.raises(JournalError, match=r"Backwards.*ReadWeight"):
        other.sensitive(lambda: 1.0, **sweep)


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        (
            lambda size: np.zeros(size + 1),
            r"each of the 8 units of stem.0.weight; it gave an array of shape \[9\]",
        ),
        (lambda size: np.full(size, np.nan), "with NaN"),
    ],
)
def test_scores_that_are_none_are_said(model, scores, said):
    class Wrong(GroupCriterion):
        def score(self, group, tensors):
            return scores(group.size)

    ds = DygraphSensitivity(model, SHAPE, criterion=Wrong())
    with pytest.raises(InputError, match=f"criterion Wrong has to give one number for .*{said}"):
        ds.prune_vars({"stem.0.weight": 0.5})
