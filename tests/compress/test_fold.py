"""Folding: what goes is made up for by what stays, whatever kind of layer reads it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import paddle
import pytest
from paddle import nn

from dysens import DygraphSensitivity, load_pruned, save_pruned
from dysens.compress import Subject
from dysens.compress._output_error import OutputError
from dysens.compress._sequential import SequentialFolding
from dysens.compress._subject import folded_plan
from dysens.errors import InputError
from dysens.pruning import difference
from tests.compress.nets import KINDS, SHAPE, batches, built, flat, twice
from tests.networks import SmallNet, TextNet, made
from tests.states import assert_same, picture

ALL = (*KINDS, "grouped")


def relative(ours: np.ndarray, whole: np.ndarray) -> float:
    return float(np.square(ours - whole).sum() / np.square(whole - whole.mean()).sum())


def eliminating(model, fold=True, **options) -> DygraphSensitivity:
    return DygraphSensitivity(model, SHAPE, criterion="elimination", data=batches(), fold=fold, **options)


def half(ds) -> dict[str, float]:
    return {group.name: 0.5 for group in ds.groups if group.path in ("first.weight", "skip.weight")}


@pytest.mark.parametrize("kind", ALL)
def test_half_of_what_is_said_twice_goes_and_nobody_notices(kind):
    model = built(kind)
    unseen = batches(1, 8, seed=11)[0]
    whole = flat(model(unseen))
    before = picture(model)
    lost = {}
    for fold in (True, False):
        ds = eliminating(model, fold)
        assert ds.verify(half(ds)) < 1e-5
        with ds.pruned(half(ds)):
            lost[fold] = relative(flat(model(unseen)), whole)
        assert_same(before, picture(model))
    assert lost[True] < 1e-3 < lost[False]


@pytest.mark.parametrize("kind", ["norm", "bare", "grouped", "flatten", "lstm"])
def test_a_folded_model_is_saved_and_rebuilt(kind, tmp_path):
    model = built(kind)
    unseen = batches(1, 8, seed=11)[0]
    ds = eliminating(model)
    ds.prune_vars(half(ds))
    folded = flat(model(unseen))
    save_pruned(model, tmp_path / "model")
    again = built(kind, seed=4)
    load_pruned(again, tmp_path / "model")
    again.eval()
    np.testing.assert_array_equal(flat(again(unseen)), folded)


@pytest.mark.parametrize("kind", [*ALL, "small", "text"])
def test_folding_in_sequence_masks_and_cuts_alike(kind):
    networks = {"small": SmallNet, "text": TextNet}
    model = made(networks[kind]) if kind in networks else built(kind)
    shape = (3, 16, 16) if kind in networks else (3, 8, 8)
    random = np.random.default_rng(5)
    data = [paddle.to_tensor(random.standard_normal([6, *shape]).astype("float32")) for _ in range(4)]
    ds = DygraphSensitivity(model, [2, *shape], criterion="elimination", data=data)
    subject = Subject(model, ds._analysis.roles, ds.groups, ds._views)
    _, plan = folded_plan(subject, ds._criterion, {group.name: 0.5 for group in ds.groups})
    calls = [(batch,) for batch in data]
    before = picture(model)
    sequential = SequentialFolding(model, subject.roles, ds._criterion.calibration, calls)
    again = sequential.refolded(plan)
    assert_same(before, picture(model))
    assert difference(model, ds._views, again).amount < 1e-4
    error = OutputError(model, subject.roles, ds.groups, calls, plan)
    bare = replace(plan, mixes=(), shifts=())
    assert error.of(again) < 0.5 * error.of(bare)
    # On the data that it is fitted to, it makes up for more than consumers that are fitted one by one.
    assert error.of(again) < 1.05 * error.of(plan) + 1e-6


class WithBranch(nn.Layer):
    """A second reader that only trains."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2D(3, 8, 3, padding=1)
        twice(self.first, 8)
        self.second = nn.Conv2D(8, 5, 1)
        self.auxiliary = nn.Conv2D(8, 4, 1)

    def forward(self, x):
        read = nn.functional.relu(self.first(x))
        return (self.second(read), self.auxiliary(read)) if self.training else self.second(read)


def test_a_branch_that_only_trains_is_folded_too():
    paddle.seed(3)
    model = WithBranch()
    images = batches(1, 8, seed=11)[0]
    model.train()
    whole = flat(model(images))
    ds = DygraphSensitivity(
        model, SHAPE, criterion="elimination", data=batches(), train_inputs=(batches(1)[0],)
    )
    ds.prune_vars({"first.weight": 0.5})
    assert relative(flat(model(images)), whole) < 1e-3


def test_means_go_into_the_batch_norm_behind_and_come_back():
    model = built("norm")
    mean, weight = model.norm._mean.numpy(), model.second.weight.numpy()
    ds = eliminating(model)
    ds.prune_vars(half(ds))
    assert np.abs(model.norm._mean.numpy() - mean).max() > 0
    ds.restore()
    np.testing.assert_array_equal(model.norm._mean.numpy(), mean)
    np.testing.assert_array_equal(model.second.weight.numpy(), weight)


def test_a_sweep_with_folding_measures_what_a_cut_gives():
    model = built("bias")
    unseen = batches(1, 8, seed=11)[0]
    whole = flat(model(unseen))

    def score():
        with paddle.no_grad():
            return 1 - min(relative(flat(model(unseen)), whole), 1.0)

    ds = eliminating(model)
    sens = ds.sensitive(score, ratios=[0.25, 0.5], progress=False)
    name = ds.groups[0].name
    assert sens[name][0.5] < 0.01
    with ds.pruned({name: 0.5}):
        assert (1.0 - score()) / (1 + 1e-3) == pytest.approx(sens[name][0.5], abs=1e-5)


def test_training_goes_on_after_a_folded_cut():
    model = built("norm")
    optimizer = paddle.optimizer.Adam(1e-2, parameters=model.parameters())
    ds = eliminating(model, optimizer=optimizer)
    before = picture(model)
    ds.prune_vars(half(ds))
    model.train()
    loss = model(batches(1)[0]).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    ds.restore()
    assert_same(
        {k: v for k, v in before.items() if k != "random"},
        {k: v for k, v in picture(model).items() if k != "random"},
    )


def test_the_criterion_needs_data_and_data_need_the_criterion():
    with pytest.raises(InputError, match="belong together"):
        DygraphSensitivity(built("bias"), SHAPE, criterion="elimination")
    with pytest.raises(InputError, match="belong together"):
        DygraphSensitivity(built("bias"), SHAPE, data=batches())
