"""PaddleSlim's pruners by dysens: what a script that was written for PaddleSlim does and sees."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import paddle
import pytest
from golden import INPUT_SHAPE, accuracy_of, golden_results, trained
from golden.nets import build
from networks import SHAPE, DictNet, SmallNet, TwoInputs, images, made, outputs, train_step
from states import assert_same, picture

import dysens.compat
from dysens.compat import FPGMFilterPruner, L1NormFilterPruner, L2NormFilterPruner
from dysens.criteria import fpgm
from dysens.errors import DysensError, InputError, JournalError
from dysens.results import Sensitivities, read_slim_file

LABELS = paddle.to_tensor(np.arange(16) % 4)


class Bench:
    """A small network with an optimizer that has been used, and a score of its outputs."""

    def __init__(self) -> None:
        self.model = made(SmallNet)
        self.x = images(16)
        self.optimizer = paddle.optimizer.Momentum(0.01, parameters=self.model.parameters())
        train_step(self.model, self.optimizer, self.x, LABELS)
        self.model.eval()
        self.reference = outputs(self.model, self.x)
        self.evaluations = 0

    def score(self) -> float:
        self.evaluations += 1
        return float(1 / (1 + np.square(outputs(self.model, self.x) - self.reference).mean()))

    def pruner(self, kind=FPGMFilterPruner, **options):
        return kind(self.model, SHAPE, opt=self.optimizer, **options)

    def picture(self):
        return picture(self.model, self.optimizer)


@pytest.fixture
def bench():
    return Bench()


# A script in the shape of PaddleOCR's deploy/slim/prune/sensitivity_anal.py


def script(FPGMFilterPruner, name: str, weights: Path, sen_file: Path, sample: list[str]):
    """Build the pruner, load the weights afterwards, sweep, choose, cut, count, train: as PaddleOCR does."""
    model = build(name)
    flops_before = paddle.flops(model, INPUT_SHAPE)
    model.train()
    pruner = FPGMFilterPruner(model, INPUT_SHAPE)
    optimizer = paddle.optimizer.Momentum(1e-3, parameters=model.parameters())
    model.set_state_dict(paddle.load(str(weights)))

    accuracy = accuracy_of(model)
    params_sensitive = pruner.sensitive(
        eval_func=accuracy,
        sen_file=str(sen_file),
        target_vars=sample,
        skip_vars=["conv2d_57.w_0", "conv2d_transpose_2.w_0", "conv2d_transpose_3.w_0"],
    )
    params_sensitive = pruner._get_ratios_by_loss(params_sensitive, loss=0.02)
    for key in params_sensitive:
        logging.getLogger("script").info("%s, %s", key, params_sensitive[key])
    plan = pruner.prune_vars(params_sensitive, [0])
    flops_after = paddle.flops(model, INPUT_SHAPE)
    cut = {path: parameter.numpy() for path, parameter in model.named_parameters()}
    x = paddle.to_tensor(np.random.default_rng(0).random([16, *INPUT_SHAPE[1:]]).astype("float32"))
    loss = train_step(model, optimizer, x, paddle.to_tensor(np.arange(16) % 10))
    return pruner, plan, cut, (flops_before, flops_after, loss)


def test_a_script_of_paddleocr_with_one_import_changed(tmp_path, caplog):
    name, sample = "mobilenet_v1", ["conv2d_12.w_0", "conv2d_24.w_0"]
    loaded = trained(name)
    paddle.save(loaded.state_dict(), str(tmp_path / "best_accuracy.pdparams"))
    pruner, plan, cut, (before, after, loss) = script(
        FPGMFilterPruner, name, tmp_path / "best_accuracy.pdparams", tmp_path / "sen.pickle", sample
    )
    assert "skip_vars: the model has no filters by the name conv2d_57.w_0" in caplog.text
    # What PaddleSlim measured on these weights. Had the initial ones been ranked, other filters would have gone.
    golden = golden_results(name)["criteria"]["fpgm"]
    for group in sample:
        for ratio, lost in golden["sensitivities"][group].items():
            assert pruner.sensitive()[group][float(ratio)] == pytest.approx(lost, abs=2e-3), (group, ratio)
    assert after < before
    assert np.isfinite(loss)
    assert set(plan.ratios) <= set(sample)
    assert plan.ratios, "a loss of 0.02 admits something"
    # The filters that are left are the loaded ones with the highest scores.
    weights = dict(loaded.named_parameters())
    for group in pruner._front_door.groups:
        if group.name in plan.ratios:
            weight = weights[group.path].numpy()
            gone = round(len(weight) * plan.ratios[group.name])
            assert gone > 0
            kept = np.sort(np.argsort(fpgm(weight), kind="stable")[gone:])
            np.testing.assert_array_equal(cut[group.path], weight[kept])


def test_weights_that_are_loaded_after_the_pruner_was_made_are_ranked():
    model, loaded = build("tiny_resnet"), trained("tiny_resnet")
    pruner = FPGMFilterPruner(model, INPUT_SHAPE)
    model.set_state_dict(loaded.state_dict())
    golden = golden_results("tiny_resnet")["criteria"]["fpgm"]["pruned_channels_at_half"]
    weights = {path: tensor.numpy() for path, tensor in loaded.named_parameters()}
    name = "conv2d_1.w_0"
    path = next(path for path, tensor in model.named_parameters() if tensor.name == name)
    pruner.prune_var(name, 0, 0.5)
    kept = [channel for channel in range(len(weights[path])) if channel not in golden[name]]
    np.testing.assert_array_equal(dict(model.named_parameters())[path].numpy(), weights[path][kept])


# sensitive


def test_sensitive_returns_plain_dictionaries_every_time(bench):
    pruner = bench.pruner()
    assert pruner.sensitive() == {}
    before = bench.picture()
    skip = ["conv2d_0.w_0"]
    first = pruner.sensitive(bench.score, skip_vars=skip)
    assert skip == ["conv2d_0.w_0"]
    assert type(first) is dict
    assert all(type(losses) is dict for losses in first.values())
    assert list(first) == ["conv2d_1.w_0", "conv2d_4.w_0", "conv2d_5.w_0"]
    assert list(first["conv2d_1.w_0"]) == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    again = pruner.sensitive()
    assert type(again) is dict
    assert again == first
    again["conv2d_1.w_0"].clear()
    assert pruner.sensitive() == first
    more = pruner.sensitive(bench.score, target_vars=["conv2d_0.w_0"])
    assert set(more) == {"conv2d_0.w_0", *first}
    assert_same(before, bench.picture())


def test_a_sweep_goes_on_and_ends_as_a_file_of_paddleslims(bench, tmp_path):
    sen_file = tmp_path / "sen.pickle"
    pruner = bench.pruner()
    part = pruner.sensitive(bench.score, str(sen_file), target_vars=["conv2d_1.w_0"])
    assert read_slim_file(sen_file) == part
    whole = pruner.sensitive(bench.score, str(sen_file))
    assert read_slim_file(sen_file) == whole
    assert Sensitivities.load(f"{sen_file}.jsonl").to_dict() == whole
    bench.evaluations = 0
    assert bench.pruner().sensitive(bench.score, str(sen_file)) == whole
    assert bench.evaluations == 1  # the baseline
    assert bench.pruner(sen_file=str(sen_file)).sensitive() == whole
    assert bench.pruner().sensitive(sen_file=str(sen_file)) == whole


def test_a_sweep_that_was_broken_off_goes_on(bench, tmp_path):
    sen_file = tmp_path / "sen.pickle"

    def score():
        if bench.evaluations == 8:
            raise KeyboardInterrupt
        return bench.score()

    with pytest.raises(KeyboardInterrupt):
        bench.pruner().sensitive(score, str(sen_file))
    assert not sen_file.exists()
    bench.evaluations = 100
    bench.pruner().sensitive(score, str(sen_file))
    assert bench.evaluations - 100 <= 4 * 9 - 7 + 1


def test_a_journal_may_be_given_as_well(bench, tmp_path):
    sen_file = tmp_path / "sens.jsonl"
    found = bench.pruner().sensitive(bench.score, sen_file, target_vars=["conv2d_5.w_0"])
    assert Sensitivities.load(sen_file).to_dict() == found
    assert sorted(os.listdir(tmp_path)) == ["sens.jsonl", "sens.jsonl.lock"]


def test_a_sen_file_that_is_not_there(bench, tmp_path):
    with pytest.raises(JournalError, match="does not exist"):
        bench.pruner(sen_file=tmp_path / "sen.pickle")


# choosing


def test_ratios_by_loss_are_paddleslims():
    golden = golden_results("mobilenet_v1")["criteria"]["l1"]
    curves = {
        name: {float(r): loss for r, loss in losses.items()}
        for name, losses in golden["sensitivities"].items()
    }
    pruner = L1NormFilterPruner(trained("mobilenet_v1"), INPUT_SHAPE)
    ratios = pruner._get_ratios_by_loss(curves, 0.05)
    assert ratios == pytest.approx(golden["ratios_at_loss_0.05"])
    first = next(iter(ratios))
    assert set(pruner._get_ratios_by_loss(curves, 0.05, skip_vars=[first])) == set(ratios) - {first}


def test_ratios_for_flops(bench, caplog):
    pruner = bench.pruner(L2NormFilterPruner)
    with pytest.raises(InputError, match="No sensitivities are known yet"):
        pruner.get_ratios_by_sensitivity(0.3)
    pruner.sensitive(bench.score)
    before = bench.picture()
    ratios, share = pruner.get_ratios_by_sensitivity(0.3)
    assert 0.3 <= share < 0.5
    assert_same(before, bench.picture())
    assert pruner.prune_vars(ratios, 0).pruned_flops == share
    pruner.restore()
    skipped, _ = pruner.get_ratios_by_sensitivity(0.1, skip_vars=["conv2d_0.w_0"])
    assert "conv2d_0.w_0" not in skipped
    plan = pruner.sensitive_prune(0.3, align=4)
    assert plan.pruned_flops >= 0.3
    widths = {n: p.shape[0] for n, p in bench.model.named_parameters() if p.ndim == 4}
    assert all(width % 4 == 0 for width in widths.values())
    plan = pruner.sensitive_prune(0.2)  # restores first
    pruner.restore()
    assert_same(before, bench.picture())
    _, share = pruner.get_ratios_by_sensitivity(0.99)
    assert share < 0.99
    assert "of the FLOPs can be removed" in caplog.text
    with pytest.raises(InputError, match="between 0 and 1"):
        pruner.get_ratios_by_sensitivity(30)


# pruning and going back


def test_cutting_and_restoring(bench):
    pruner = bench.pruner()
    before = bench.picture()
    plan = pruner.prune_var("conv2d_1.w_0", 0, 0.5)
    assert plan is pruner.plan
    assert bench.model.body[0][0].weight.shape[0] == 6
    assert 0 < plan.pruned_flops < 1
    assert "-" in str(plan)
    pruner.prune_var("conv2d_0.w_0", [0], 0.25)
    assert bench.model.stem[0].weight.shape[0] == 6
    train_step(bench.model, bench.optimizer, bench.x, LABELS)
    plan.restore(bench.model, opt=bench.optimizer)
    bench.model.eval()
    before["random"] = bench.picture()["random"]  # training has dropped out at random
    assert_same(before, bench.picture())
    plan.restore(bench.model)
    assert_same(before, bench.picture())


def test_lazy_zeroes_and_leaves_shapes(bench):
    pruner = bench.pruner()
    before = bench.picture()
    shapes = {n: p.shape for n, p in bench.model.named_parameters()}
    with pruner._front_door.pruned({"conv2d_1.w_0": 0.5}):
        expected = outputs(bench.model, bench.x)
    plan = pruner.prune_var("conv2d_1.w_0", 0, 0.5, apply="lazy")
    assert {n: p.shape for n, p in bench.model.named_parameters()} == shapes
    filters = np.abs(bench.model.body[0][0].weight.numpy()).sum(axis=(1, 2, 3))
    assert (filters == 0).sum() == 6
    gone = np.flatnonzero(filters == 0)
    for tensor in (bench.model.body[0][1].weight, bench.model.body[0][1].bias, bench.model.body[0][1]._mean):
        assert not tensor.numpy()[gone].any()
    assert not bench.model.body[1][0].weight.numpy()[:, gone].any()
    np.testing.assert_allclose(outputs(bench.model, bench.x), expected, rtol=1e-4, atol=1e-5)
    plan.restore(bench.model)
    assert_same(before, bench.picture())


@pytest.mark.parametrize("ways", [("lazy", "impretive", "lazy"), ("impretive", "lazy", "impretive")])
def test_any_mixture_is_undone(bench, ways):
    pruner = bench.pruner()
    before = bench.picture()
    for name, way in zip(("conv2d_0.w_0", "conv2d_1.w_0", "conv2d_4.w_0"), ways):
        pruner.prune_var(name, 0, 0.5, apply=way)
    pruner.restore()
    assert_same(before, bench.picture())


def test_a_plan_for_later(bench):
    pruner = bench.pruner()
    before = bench.picture()
    plan = pruner.prune_vars({"conv2d_1.w_0": 0.5}, 0, apply=None)
    assert_same(before, bench.picture())
    assert plan.pruned_flops is None
    assert "conv2d_1.w_0: 0.5" in str(plan)
    plan.apply(bench.model, opt=bench.optimizer)
    assert bench.model.body[0][0].weight.shape[0] == 6
    plan.restore(bench.model)
    plan.apply(bench.model, lazy=True)
    assert bench.model.body[0][0].weight.shape[0] == 12
    plan.restore(bench.model, bench.optimizer)
    assert_same(before, bench.picture())
    with pytest.raises(InputError, match="the model that its pruner was made for"):
        plan.apply(made(SmallNet))
    with pytest.raises(InputError, match="does not know this optimizer"):
        plan.apply(bench.model, opt=paddle.optimizer.SGD(parameters=bench.model.parameters()))


def test_all_parameters_may_be_given(bench):
    """PaddleOCR's other branch: one ratio for every parameter, biases and batch norms included."""
    pruner = bench.pruner()
    plan = pruner.prune_vars({p.name: 0.25 for p in bench.model.parameters()}, [0])
    assert set(plan.ratios) == {group.name for group in pruner._front_door.groups}
    assert bench.model.stem[0].weight.shape[0] == 6


def test_the_weight_that_names_a_group_decides(bench):
    pruner = bench.pruner()
    plan = pruner.prune_vars({"conv2d_2.w_0": 0.5, "conv2d_0.w_0": 0.25}, 0, apply=None)
    assert plan.ratios == {"conv2d_0.w_0": 0.25}
    assert pruner.prune_vars({"conv2d_2.w_0": 0.5}, 0, apply=None).ratios == {"conv2d_0.w_0": 0.5}
    assert pruner.prune_vars({"stem.0.weight": 0.5}, 0, apply=None).ratios == {"conv2d_0.w_0": 0.5}
    assert pruner.prune_vars({"linear_0.w_0": 0.5}, 0, apply=None).ratios == {}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            lambda p: p.prune_vars({"conv2d_0.w0": 0.5}, 0),
            'names no parameter of this model; did you mean "conv2d_0.w_0"',
        ),
        (lambda p: p.prune_vars({"conv2d_0.w_0": 0.5}, [1]), "filters, and those are on axis 0"),
        (lambda p: p.prune_vars({"conv2d_0.w_0": 1.5}, 0), "at least 0 and under 1"),
        (lambda p: p.prune_var("conv2d_0.w_0", 0, 0.5, apply="imperative"), '"impretive"'),
        (lambda p: p.get_ratios_by_sensitivity(0.5, dims=1), "axis 0"),
    ],
)
def test_what_is_refused_in_words(bench, wrong, said):
    before = bench.picture()
    with pytest.raises(DysensError) as error:
        wrong(bench.pruner())
    assert said in str(error.value)
    assert_same(before, bench.picture())


# inputs


def test_inputs_as_paddleslim_takes_them(caplog):
    x = images(1)
    for inputs in (SHAPE, tuple(SHAPE), [SHAPE], [x], x):
        pruner = L1NormFilterPruner(
            made(SmallNet), inputs, skip_leaves=True, prune_type="conv", input_dtype="float32"
        )
        assert len(pruner._front_door.groups) == 4
    two = made(TwoInputs)
    assert FPGMFilterPruner(two, [[1, 3, 8, 8], [1, 5]])._front_door.groups
    data = {"image": paddle.ones([1, 3, 8, 8]), "more": {"mask": paddle.ones([1, 1, 8, 8])}}
    assert FPGMFilterPruner(made(DictNet), data)._front_door.groups
    assert FPGMFilterPruner(made(DictNet), [data, 2.0])._front_door.groups
    for options in ({"prune_type": "fc"}, {"num_head": 8}):
        with pytest.raises(InputError, match="dysens prunes filters of convolutions"):
            L1NormFilterPruner(two, [[1, 3, 8, 8], [1, 5]], **options)
    FPGMFilterPruner(made(SmallNet), SHAPE, skip_leaves=False)
    assert "channels that reach the model's outputs always stay" in caplog.text


def test_inputs_of_another_type():
    class Lookup(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.table = paddle.nn.Embedding(10, 4)
            self.conv = paddle.nn.Conv2D(1, 6, 3, padding=1)
            self.head = paddle.nn.Conv2D(6, 2, 1)

        def forward(self, words):
            return self.head(self.conv(self.table(words).unsqueeze(1)))

    with pytest.raises(DysensError):
        FPGMFilterPruner(made(Lookup), [1, 5])
    assert FPGMFilterPruner(made(Lookup), [1, 5], input_dtype="int64")._front_door.groups


def test_the_names_are_all_there():
    assert set(dysens.compat.__all__) == {
        "FPGMFilterPruner",
        "L1NormFilterPruner",
        "L2NormFilterPruner",
        "Pruner",
        "analysis_prune",
        "get_ratios_by_loss",
        "load_sensitivities",
        "merge_sensitive",
        "sensitivity",
    }
