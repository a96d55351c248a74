"""A first look by gradients: right to first order, in the order of the true losses, and without a trace."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.nn.functional import cross_entropy
from states import assert_same, picture

from dysens import DygraphSensitivity
from dysens.errors import InputError

from .digits import SHAPE, batches, evaluator, trained


@pytest.fixture(scope="module")
def ds():
    return DygraphSensitivity(trained(), SHAPE)


@pytest.fixture(scope="module")
def curves(ds):
    return ds.estimate(batches(50), cross_entropy)


def test_orders_points_as_a_sweep_does(ds, curves):
    sens = ds.sensitive(evaluator(), ratios=[0.1, 0.5, 0.9], progress=False, fast="off")
    assert curves.rank_correlation(sens) > 0.7


def test_curves_rise_and_cover_every_group(ds, curves):
    assert list(curves) == [group.name for group in ds.groups]
    for curve in curves.values():
        assert list(curve) == pytest.approx([0.1 * step for step in range(1, 10)])
        assert np.all(np.diff(list(curve.values())) >= 0)
        assert min(curve.values()) > 0
    assert len(curves.to_frame()) == 9 * len(curves)
    assert all(group.path in str(curves) for group in ds.groups)


def test_exact_where_the_loss_is_linear():
    """Without anything that bends, removing a channel changes the loss by exactly the first-order term."""
    paddle.seed(0)
    with paddle.utils.unique_name.guard():
        model = nn.Sequential(nn.Conv2D(2, 8, 1, bias_attr=False), nn.Conv2D(8, 3, 1), nn.Flatten())
    x = paddle.randn([4, 2, 3, 3])
    ds = DygraphSensitivity(model, [1, 2, 3, 3], criterion="l1")
    name = ds.groups[0].name
    curve = ds.estimate([[x]], lambda outputs: outputs.sum(), ratios=[1 / 8, 2 / 8])[name]
    whole = float(model(x).sum())
    changes = []
    for ratio in (1 / 8, 2 / 8):
        with ds.pruned({name: ratio}):
            changes.append(float(model(x).sum()) - whole)
    alone = [changes[0], changes[1] - changes[0]]  # of the first channel to go, and of the second
    assert list(curve.values()) == pytest.approx([abs(alone[0]), abs(alone[0]) + abs(alone[1])], rel=1e-3)


def test_an_evaluator_gives_batches_too(ds, curves):
    class Batches50(type(evaluator())):
        def batches(self):
            return batches(50)

    given = Batches50(batches(50), paddle.metric.Accuracy())
    again = ds.estimate(given, lambda outputs, batch: cross_entropy(outputs, batch[1]))
    for name, curve in curves.items():
        assert list(again[name].values()) == pytest.approx(list(curve.values()), rel=1e-4)


def test_the_model_is_left_as_found():
    """Modes, gradients and frozen weights included; frozen ones are estimated all the same."""
    model = trained()
    model.train()
    model[2].weight.stop_gradient = True
    model(batches()[0][0]).sum().backward()
    ds = DygraphSensitivity(model, SHAPE)
    before = picture(model)
    found = ds.estimate(batches(50)[:2], cross_entropy, ratios=[0.5])
    assert_same(before, picture(model))
    assert all(curve[0.5] > 0 for curve in found.values())

    def fails(outputs, labels):
        raise ValueError("no labels")

    with pytest.raises(ValueError, match="no labels"):
        ds.estimate(batches(50), fails)
    assert_same(before, picture(model))


def test_works_without_gradients_around(ds, curves):
    with paddle.no_grad():
        again = ds.estimate(batches(50), cross_entropy)
    assert list(next(iter(again.values())).values()) == pytest.approx(
        list(next(iter(curves.values())).values())
    )


@pytest.mark.parametrize(
    ("loader", "loss", "said"),
    [
        ([], cross_entropy, "no batches"),
        (None, lambda outputs, labels: 1.0, "has to return one number as a tensor"),
        (None, lambda outputs, labels: outputs, "has to return one number as a tensor"),
        (None, lambda outputs, labels: outputs.detach().sum(), "without gradient"),
    ],
)
def test_bad_input_is_said(ds, loader, loss, said):
    with pytest.raises(InputError, match=said):
        ds.estimate(batches(200) if loader is None else loader, loss)


def test_nothing_to_compare_with(ds, curves):
    sens = ds.sensitive(evaluator(), ratios=[0.15], target_vars=ds.groups[0].name, progress=False, fast="off")
    with pytest.raises(InputError, match="fewer than three points"):
        curves.rank_correlation(sens)
