"""`DygraphSensitivity`: what it takes, what it refuses, and that it leaves the model as found."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from networks import SHAPE, DictNet, SmallNet, TinyNet, TwoInputs, Unequal, images, made, outputs, train_step
from paddle import nn
from states import assert_same, picture

from dysens import DygraphSensitivity, Sensitivities
from dysens.errors import DysensError, ForwardError, InputError, UnreachableError

LABELS = paddle.to_tensor([0, 1, 2, 3])


@pytest.fixture
def model():
    model = made(SmallNet)
    model.body.train()
    return model


@pytest.fixture
def ds(model):
    return DygraphSensitivity(model, SHAPE, criterion="l1")


def closeness(model):
    """Scores a model by how near its outputs are to what they were."""
    wanted = outputs(model)
    return lambda: float(1 / (1 + np.abs(outputs(model) - wanted).mean()))


# What a sweep gives


def test_a_sweep(model, ds):
    before = picture(model)
    sens = ds.sensitive(closeness(model), ratios=[0.25, 0.5], progress=False)
    assert isinstance(sens, Sensitivities)
    assert list(sens) == [group.name for group in ds.groups]
    assert sens.baseline == pytest.approx(1.0, abs=1e-5)  # the sweep may run a compiled copy
    assert sens["stem.0.weight"][0.5] == sens[ds.groups[0].name][0.5] > 0
    assert list(sens.to_frame().columns) == ["param", "path", "ratio", "metric", "loss", "seconds"]
    assert len(sens.to_frame()) == 2 * len(ds.groups)
    assert_same(before, picture(model))


def test_a_masked_point_scores_as_the_cut_model(model, ds):
    score = closeness(model)
    sens = ds.sensitive(score, ratios=[0.5], progress=False)
    for point in sens.points:
        with ds.pruned({point.param: 0.5}):
            assert score() == pytest.approx(point.metric, abs=1e-5)


def test_nothing_removed_costs_nothing(model, ds):
    sens = ds.sensitive(closeness(model), ratios=[0.0], progress=False)
    assert {point.loss for point in sens.points} == {0.0}


def test_scores_come_from_the_weights_at_the_call(model, ds):
    """As in PaddleOCR's script, where the checkpoint is loaded after the pruner was made."""
    values = model.point.weight.numpy()
    values[3] = 0
    model.point.weight.set_value(values)
    plan = ds.prune_vars({"point.weight": 0.05}).plan
    assert next(cut.removed for cut in plan.cuts if cut.tensor == "point.weight") == (3,)


def test_an_error_counts_the_other_way(model, ds):
    wanted = outputs(model)
    sens = ds.sensitive(
        lambda: float(1 + np.abs(outputs(model) - wanted).mean()),
        ratios=[0.5],
        higher_is_better=False,
        progress=False,
    )
    assert all(point.loss > -1e-5 for point in sens.points)
    assert sens["stem.0.weight"][0.5] > 0.01
    assert not sens.higher_is_better


@pytest.mark.parametrize(
    "returned", [np.float32(0.5), np.array([0.5]), 1, paddle.to_tensor(0.5), paddle.to_tensor([0.5])]
)
def test_anything_that_is_one_number_is_a_metric(ds, returned):
    sens = ds.sensitive(lambda: returned, ratios=[0.5], target_vars="point.weight", progress=False)
    assert sens.baseline == float(returned)


# What an eval_func may do to the model


def trains(model):
    def evaluate():
        optimizer = paddle.optimizer.Adam(0.05, parameters=model.parameters())
        train_step(model, optimizer, images(), LABELS)
        return 1.0

    return evaluate


def switches_modes(model):
    def evaluate():
        model.train()
        model(images())
        return 1.0

    return evaluate


def leaves_gradients(model):
    def evaluate():
        model(images()).sum().backward()
        return 1.0

    return evaluate


def turns_static_mode_on(model):
    def evaluate():
        paddle.enable_static()
        return 1.0

    return evaluate


def leaves_hooks(model):
    def evaluate():
        model.stem.register_forward_post_hook(lambda *_: None)
        paddle.set_grad_enabled(False)
        return 1.0

    return evaluate


@pytest.mark.parametrize(
    "deed", [trains, switches_modes, leaves_gradients, turns_static_mode_on, leaves_hooks]
)
def test_whatever_eval_func_does_is_undone(model, ds, deed):
    before = picture(model)
    ds.sensitive(deed(model), ratios=[0.3, 0.6], target_vars=["point.weight"], progress=False)
    assert_same(before, picture(model))


def test_an_optimizer_of_the_whole_network_in_eval_func_is_a_sentence(model, ds):
    optimizer = paddle.optimizer.Adam(0.05, parameters=model.parameters())

    def evaluate():
        train_step(model, optimizer, images(), LABELS)
        return 1.0

    before = picture(model)
    with pytest.raises(DysensError, match=r"has to be given to DygraphSensitivity \(optimizer=\)"):
        ds.sensitive(evaluate, ratios=[0.3, 0.6], target_vars=["point.weight"], progress=False)
    assert_same(before, picture(model))


@pytest.mark.parametrize("when", [1, 2, 4])
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_an_error_in_eval_func_leaves_the_model_as_found(model, ds, error, when):
    calls = []

    def evaluate():
        calls.append(1)
        model.train()
        model(images()).sum().backward()
        if len(calls) == when:
            raise error("in the middle")
        return 1.0

    before = picture(model)
    with pytest.raises(error, match="in the middle"):
        ds.sensitive(evaluate, ratios=[0.3, 0.6], progress=False)
    assert_same(before, picture(model))


def test_a_sweep_that_fine_tunes_starts_every_point_from_the_same_weights(model, ds):
    optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
    model.dropout.p = 0.0
    starts = []

    def evaluate():
        starts.append(model.fc.bias.numpy().tobytes())
        train_step(model, optimizer, images(), LABELS)
        return 1.0

    ds.sensitive(evaluate, ratios=[0.3, 0.6], target_vars=["body.0.0.weight"], progress=False)
    assert (
        len(starts) == 4
    )  # the first point once more, on a model that is really cut: training revives masked weights
    assert len(set(starts)) == 1


def test_the_optimizer_is_left_as_found(model):
    optimizer = paddle.optimizer.Momentum(0.1, parameters=model.parameters())
    train_step(model, optimizer, images(), LABELS)
    ds = DygraphSensitivity(model, SHAPE, optimizer=optimizer)
    before = picture(model, optimizer)

    def evaluate():
        train_step(model, optimizer, images(), LABELS)
        return 1.0

    ds.sensitive(evaluate, ratios=[0.5], target_vars=["point.weight"], progress=False)
    assert_same(before, picture(model, optimizer))


# Bad input: a sentence, and nothing is changed


def unchanged(model, action, error, said):
    before = picture(model)
    with pytest.raises(error, match=said) as caught:
        action()
    assert isinstance(caught.value, DysensError)
    assert_same(before, picture(model))


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (float("nan"), "scores nan; a sweep needs a finite baseline"),
        (float("inf"), "scores inf; a sweep needs a finite baseline"),
        (0.0, "scores 0, so no relative loss"),
        (-0.5, "scores -0.5; a relative loss needs a positive baseline"),
        (None, "returned None"),
        ("0.9", "returned '0.9'"),
        (True, "returned True"),
        (np.ones(3), "returned 3 values"),
        ([0.5, 0.6], "returned 2 values"),
        ([], "returned 0 values"),
        ({"acc": 0.9}, "returned a dict"),
    ],
)
def test_what_eval_func_may_not_return(model, ds, returned, said):
    unchanged(model, lambda: ds.sensitive(lambda: returned, progress=False), InputError, said)


def test_a_bad_return_in_the_middle_of_a_sweep(model, ds):
    answers = iter([0.9, 0.8, None])
    unchanged(model, lambda: ds.sensitive(lambda: next(answers), progress=False), InputError, "returned None")


def test_eval_func_has_to_be_callable(model, ds):
    unchanged(model, lambda: ds.sensitive(0.9), InputError, "has to be a function or an Evaluator, not 0.9")


@pytest.mark.parametrize("ratio", [1, 1.0, -0.1, 1.5, float("nan"), float("inf"), "0.5", None, True])
def test_ratios_outside_are_refused(model, ds, ratio):
    unchanged(model, lambda: ds.sensitive(lambda: 1.0, ratios=[ratio]), InputError, "ratio")
    unchanged(
        model, lambda: ds.prune_vars({ds.groups[0].name: ratio}), InputError, f"ratio of {ds.groups[0].name}"
    )
    unchanged(model, lambda: ds.verify({ds.groups[0].name: ratio}), InputError, "ratio")
    unchanged(model, lambda: ds.pruned({ds.groups[0].name: ratio}).__enter__(), InputError, "ratio")


def test_unknown_names_are_answered_with_the_nearest(model, ds):
    name = ds.groups[0].name
    wrong = name.replace("w_0", "w_00")
    for action in (
        lambda: ds.prune_vars({wrong: 0.5}),
        lambda: ds.verify({wrong: 0.5}),
        lambda: ds.sensitive(lambda: 1.0, target_vars=[wrong]),
        lambda: ds.sensitive(lambda: 1.0, skip_vars=[wrong]),
        lambda: DygraphSensitivity(model, SHAPE, skip_vars=[wrong]),
    ):
        unchanged(model, action, InputError, f'did you mean "{name}"')
    unchanged(model, lambda: ds.prune_vars({"zzzz": 0.5}), InputError, "ds.groups lists them")


def test_a_weight_that_cannot_be_pruned_is_answered_with_the_reason(model):
    out = made(Unequal)
    ds = DygraphSensitivity(out, SHAPE)
    for name in ("head.weight", out.head.weight.name):
        unchanged(
            out,
            lambda name=name: ds.prune_vars({name: 0.5}),
            InputError,
            "cannot be pruned: .*'head'.*output",
        )


def test_nothing_left_to_sweep_is_said(model, ds):
    unchanged(
        model, lambda: ds.sensitive(lambda: 1.0, skip_vars=["*"]), InputError, "leave no group to sweep"
    )


def test_a_network_without_convolutions():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    unchanged(model, lambda: DygraphSensitivity(model, [1, 3]), InputError, "has no 4-D weight")


def test_static_mode_is_refused(model):
    paddle.enable_static()
    try:
        with pytest.raises(InputError, match=r"static mode.*disable_static"):
            DygraphSensitivity(model, SHAPE)
        assert not paddle.in_dynamic_mode()
    finally:
        paddle.disable_static()


def test_what_is_no_layer_is_no_model():
    with pytest.raises(InputError, match=r"has to be a paddle\.nn\.Layer, not a function"):
        DygraphSensitivity(lambda x: x, SHAPE)


@pytest.mark.parametrize(
    ("shape", "error", "said"),
    [
        (
            [1, 5, 16, 16],
            ForwardError,
            r"forward fails .*inputs were \[1, 5, 16, 16\]; .*, change input_shape",
        ),
        ([1, 3, 16], ForwardError, r"forward fails .*inputs were \[1, 3, 16\]"),
        ([[1, 3, 16, 16], [1, 3]], ForwardError, "forward fails"),
        ([1, 3, 0, 16], InputError, "not positive"),
        ([1, 3, -1, -1], InputError, "not positive"),
        ([], InputError, "holds no shape and no tensor"),
        (None, InputError, "holds no shape and no tensor"),
        ("1,3,16,16", InputError, "holds no shape and no tensor"),
    ],
)
def test_inputs_that_the_forward_rejects(model, shape, error, said):
    unchanged(model, lambda: DygraphSensitivity(model, shape), error, said)


def test_a_bad_criterion_or_engine_is_said(model):
    unchanged(model, lambda: DygraphSensitivity(model, SHAPE, criterion="fpmg"), InputError, "did you mean")
    unchanged(
        model, lambda: DygraphSensitivity(model, SHAPE, engine="nativ"), InputError, 'did you mean "native"'
    )


def test_only_filters_can_be_pruned(model, ds):
    unchanged(
        model, lambda: ds.prune_vars({ds.groups[0].name: 0.5}, axis=1), InputError, "those are on axis 0"
    )
    ds.prune_vars({ds.groups[0].name: 0.5}, axis=[0])


def test_a_sweep_or_a_search_on_a_cut_model_is_refused(model, ds):
    sens = ds.sensitive(closeness(model), ratios=[0.5], progress=False)
    ds.prune_vars({ds.groups[0].name: 0.5})
    unchanged(model, lambda: ds.sensitive(lambda: 1.0), InputError, r"The model is cut.*restore\(\)")
    unchanged(model, lambda: ds.ratios_by_flops(sens, 0.1), InputError, r"cut already.*restore\(\)")
    ds.restore()
    ds.sensitive(lambda: 1.0, ratios=[0.5], progress=False)


def test_ratios_that_contradict_each_other(model):
    other = made(Unequal)
    ds = DygraphSensitivity(other, SHAPE)
    unchanged(
        other,
        lambda: ds.prune_vars({"narrow.weight": 0.5, "wide.weight": 0.25}),
        InputError,
        "cut together .* but their ratios differ",
    )


# Choosing groups


@pytest.mark.parametrize("by", ["name", "path"])
@pytest.mark.parametrize("as_list", [True, False])
def test_groups_are_chosen_by_name_or_path(model, ds, by, as_list):
    chosen = getattr(ds.groups[1], by)
    target = [chosen] if as_list else chosen
    sens = ds.sensitive(lambda: 1.0, ratios=[0.5], target_vars=target, progress=False)
    assert list(sens) == [ds.groups[1].name]
    sens = ds.sensitive(lambda: 1.0, ratios=[0.5], skip_vars=target, progress=False)
    assert ds.groups[1].name not in sens
    assert len(sens) == len(ds.groups) - 1


def test_groups_are_chosen_by_pattern(model, ds):
    sens = ds.sensitive(lambda: 1.0, ratios=[0.5], target_vars=["*o*.weight"], skip_vars="s*", progress=False)
    paths = {group.name: group.path for group in ds.groups}
    assert {paths[name] for name in sens} == {"body.0.0.weight", "point.weight"}


def test_any_weight_that_makes_the_channels_stands_for_its_group(model, ds):
    # body.1.0 adds to what the stem makes.
    outcome = ds.prune_vars({"body.1.0.weight": 0.5})
    assert model.stem[0].weight.shape[0] == model.body[1][0].weight.shape[0] == 4
    assert outcome.widths[0][:2] == (ds.groups[0].name, "stem.0.weight")


def test_skipped_weights_stay_for_good(model):
    ds = DygraphSensitivity(model, SHAPE, skip_vars=["stem.*"])
    assert "stem.0.weight" not in [group.path for group in ds.groups]
    # What is cut along with it stays as well, and the depthwise convolution that it passes through.
    for path in ("stem.0.weight", "body.1.0.weight", "depthwise.0.weight"):
        layer = dict(model.named_parameters())[path]
        assert "layer 'stem.0'" in ds.unprunable[layer.name]
        assert "is in skip_vars" in ds.unprunable[layer.name]


def test_skip_vars_are_not_changed(model):
    skipped = ["stem.*"]
    ds = DygraphSensitivity(model, SHAPE, skip_vars=skipped)
    ds.sensitive(lambda: 1.0, ratios=[0.5], skip_vars=skipped, progress=False)
    assert skipped == ["stem.*"]


def test_a_depthwise_weight_never_names_a_group(ds):
    assert "depthwise.0.weight" not in [group.path for group in ds.groups]
    assert ("conv2d_3.w_0", 0) in ds.groups[0].members


# Inputs


@pytest.mark.parametrize(
    "inputs",
    [
        [1, 3, 16, 16],
        (1, 3, 16, 16),
        [[1, 3, 16, 16]],
        np.zeros([1, 3, 16, 16], "float32"),
        (np.zeros([2, 3, 16, 16], "float32"),),
        (paddle.zeros([1, 3, 16, 16]),),
        ([1, 3, 16, 16],),
    ],
)
def test_forms_of_one_input(model, inputs):
    assert len(DygraphSensitivity(model, inputs).groups) == 4
    assert len(DygraphSensitivity(model, paddle.zeros([1, 3, 16, 16])).groups) == 4


@pytest.mark.parametrize(
    "inputs",
    [
        [[1, 3, 8, 8], [1, 5]],
        ([1, 3, 8, 8], [1, 5]),
        (paddle.zeros([1, 3, 8, 8]), paddle.ones([1, 5])),
        (np.zeros([2, 3, 8, 8], "float32"), np.zeros([2, 5], "float32")),
    ],
)
def test_forms_of_several_inputs(inputs):
    model = made(TwoInputs)
    before = picture(model)
    ds = DygraphSensitivity(model, inputs)
    assert [group.channels for group in ds.groups] == [8]
    assert ds.verify({ds.groups[0].name: 0.5}) < 1e-4
    assert_same(before, picture(model))


@pytest.mark.parametrize(
    "inputs",
    [
        {"image": [1, 3, 8, 8], "more": {"mask": [1, 1, 8, 8]}},
        ({"image": paddle.zeros([1, 3, 8, 8]), "more": {"mask": [1, 1, 8, 8]}},),
        ({"image": [1, 3, 8, 8], "more": {"mask": [1, 1, 8, 8]}}, 2.0),
    ],
)
def test_models_that_take_and_give_dicts(inputs):
    model = made(DictNet)
    ds = DygraphSensitivity(model, inputs)
    (group,) = ds.groups
    assert sorted(group.filters)[0] == "image.0.weight"
    assert "mask.0.weight" in group.filters
    assert ds.verify({group.name: 0.5}) < 1e-4
    ds.prune_vars({group.path: 0.5})
    assert model.mask[0].weight.shape[0] == 4


def test_a_model_in_training_mode_stays_in_it(model):
    model.train()
    before = picture(model)
    ds = DygraphSensitivity(model, SHAPE)
    assert len(ds.groups) == 4
    with ds.pruned({ds.groups[0].name: 0.5}):
        pass
    assert_same(before, picture(model))


# Ratios at the edges


def test_ratio_zero_removes_nothing(model, ds):
    before = {path: tensor.shape for path, tensor in model.state_dict().items()}
    outcome = ds.prune_vars({group.name: 0.0 for group in ds.groups})
    assert {path: tensor.shape for path, tensor in model.state_dict().items()} == before
    assert outcome.flops_before == outcome.flops_after
    # Nothing is cut, so the model may still be swept, and cut.
    ds.sensitive(lambda: 1.0, ratios=[0.5], progress=False)
    ds.prune_vars({ds.groups[0].name: 0.5})


def test_a_high_ratio_leaves_one_channel(model, ds):
    outcome = ds.prune_vars({group.name: 0.99 for group in ds.groups})
    assert set(outcome.to_frame()["channels after"]) == {1}
    outputs(model)


def test_a_tiny_ratio_rounds_to_nothing(model, ds):
    assert ds.prune_vars({ds.groups[0].name: 0.05}).widths[0][2:] == (8, 8)


def test_no_ratios_cut_nothing(model, ds):
    before = picture(model)
    with ds.pruned({}) as outcome:
        assert outcome.flops_before == outcome.flops_after
        assert "nothing was cut" in str(outcome)
    assert ds.verify({}) == 0.0
    assert_same(before, picture(model))


def test_a_layer_of_one_channel_is_explained():
    model = nn.Sequential(nn.Conv2D(3, 1, 1), nn.ReLU(), nn.Conv2D(1, 4, 1), nn.ReLU(), nn.Conv2D(4, 2, 1))
    ds = DygraphSensitivity(model, SHAPE)
    assert [group.path for group in ds.groups] == ["2.weight"]
    assert "layer '0' has only one channel" in ds.unprunable[model[0].weight.name]


# Pruning for a while, restoring, budgets


def test_pruned_for_a_while(model, ds):
    before = picture(model)
    with ds.pruned({group.name: 0.5 for group in ds.groups}) as outcome:
        assert model.stem[0].weight.shape[0] == 4
        model.train()
        model(images())
    assert outcome.params_after < outcome.params_before
    assert_same(before, picture(model))


def test_an_error_while_pruned_restores(model, ds):
    before = picture(model)

    def work():
        with ds.pruned({ds.groups[0].name: 0.5}):
            raise KeyError("inside")

    with pytest.raises(KeyError):
        work()
    assert_same(before, picture(model))
    ds.sensitive(lambda: 1.0, ratios=[0.5], progress=False)


def test_pruned_on_top_of_a_cut(model, ds):
    first, second = ds.groups[0], ds.groups[2]
    ds.prune_vars({first.name: 0.5})
    between = picture(model)
    with ds.pruned({second.name: 0.5}):
        assert model.point.weight.shape[:2] == [8, 4]
    assert_same(between, picture(model))
    assert model.point.weight.shape[:2] == [16, 4]


def test_restore_without_a_cut_does_nothing(model, ds):
    before = picture(model)
    ds.restore()
    assert_same(before, picture(model))


@pytest.mark.parametrize("what", ["flops", "params"])
@pytest.mark.parametrize("target", [0.0, 0.2, 0.5])
def test_a_budget_is_kept(model, ds, what, target):
    sens = ds.sensitive(closeness(model), ratios=[0.25, 0.5, 0.75], progress=False)
    before = picture(model)
    ratios = getattr(ds, f"ratios_by_{what}")(sens, target)
    assert_same(before, picture(model))
    outcome = ds.prune_vars(ratios)
    whole, left = getattr(outcome, f"{what}_before"), getattr(outcome, f"{what}_after")
    assert 1 - left / whole >= target


@pytest.mark.parametrize("how", ["sensitive", "search"])
def test_the_journal_alone_knows_what_ratios_cost(model, ds, how, tmp_path):
    # One group is measured; the costs are those of all.
    options = {"ratios": [0.25, 0.5, 0.75], "target_vars": "stem.0.weight", "progress": False}
    getattr(ds, how)(closeness(model), sen_file=tmp_path / "sens.jsonl", **options)
    sens = Sensitivities.load(tmp_path / "sens.jsonl")
    with ds.pruned(dict.fromkeys(sens, 0.5)) as outcome:
        assert sens.costs.whole_params == outcome.params_before
        assert sens.costs.whole_flops == pytest.approx(outcome.flops_before)
        assert sens.costs.params(dict.fromkeys(sens, 0.5)) == outcome.params_after
    assert {group.path for group in ds.groups} == {group.path for group in sens.costs.groups}


def test_the_journal_alone_chooses_the_same_ratios(model, ds, tmp_path):
    sens = ds.sensitive(closeness(model), ratios=[0.25, 0.5, 0.75], progress=False, sen_file=tmp_path / "s")
    assert ds.ratios_by_flops(sens, 0.3) == sens.ratios_by_flops(0.3)
    assert Sensitivities.load(tmp_path / "s").ratios_by_flops(0.3) == sens.ratios_by_flops(0.3)


def test_aligned_widths(model, ds):
    sens = ds.sensitive(closeness(model), ratios=[0.25, 0.5, 0.75], progress=False)
    outcome = ds.prune_vars(ds.ratios_by_flops(sens, 0.3, align=4))
    assert outcome.widths
    assert {after % 4 for *_, after in outcome.widths} == {0}


def test_an_unreachable_budget_says_what_is_reachable(model, ds):
    sens = ds.sensitive(closeness(model), ratios=[0.1], progress=False)
    unchanged(
        model,
        lambda: ds.ratios_by_flops(sens, 0.9),
        UnreachableError,
        r"cannot be removed: .* remove \d+\.\d%",
    )


def test_sensitivities_of_another_model_are_refused(model, ds):
    other = made(TinyNet)
    theirs = DygraphSensitivity(other, SHAPE)
    sens = theirs.sensitive(lambda: 1.0, ratios=[0.5], progress=False)
    unchanged(model, lambda: ds.ratios_by_flops(sens, 0.1), InputError, "know none of this model's groups")


def test_groups_print_as_tables(ds):
    assert "stem.0.weight" in str(ds.groups)
    assert "channels" in str(ds.groups)
    first = ds.groups[0]
    assert all(name in str(first) for name, _ in first.members)
    assert first.name in repr(first)
