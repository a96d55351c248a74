"""`Pruner` on static programs: of Paddle 2's kind here or, on Paddle 3, in a process with the flag; of Paddle 3's kind there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
import pytest
from static_nets import PARAMS, PIR, Static, same

from dysens.compat import Pruner
from dysens.errors import InputError

RATIOS = [0.25, 0.5, 0.5]
CHOSEN = ["conv1_weights", "conv4_weights", "conv5_weights"]
LEFT = {
    "conv1_weights": (6, 1, 3, 3),
    "conv2_weights": (6, 6, 3, 3),
    "conv3_weights": (4, 6, 3, 3),
    "conv4_weights": (4, 4, 3, 3),
    "dw_weights": (4, 1, 3, 3),
    "conv5_weights": (8, 4, 1, 1),
    "conv5_bn_scale": (8,),
    "fc_weights": (32, 4),
}


# What a whole script does; that bad input is refused does not depend on the flag.
_STORIES = "Momentum or tutorial or backups or looks_later or an_exported_model"


@pytest.fixture(autouse=True)
def static() -> Iterator[None]:
    paddle.enable_static()
    yield
    paddle.disable_static()


@pytest.mark.skipif(
    not PIR or "FLAGS_enable_pir_api" in os.environ, reason="programs of Paddle 2's kind are tested here"
)
def test_programs_of_the_old_kind_on_paddle_3() -> None:
    here = Path(__file__).parent
    tests = [str(here / f"test_static_{what}.py") for what in ("pruner", "sensitivity")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", _STORIES, *tests],
        env={**os.environ, "FLAGS_enable_pir_api": "0"},
        capture_output=True,
        text=True,
        cwd=here.parents[1],
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize("optimizer", ["Momentum", "Adam"])
def test_train_then_test_program(optimizer: str) -> None:
    net = Static(optimizer)
    # What a zeroed network gives is what the cut one has to give.
    lazy, before, _ = Pruner().prune(
        net.test, net.scope, CHOSEN, RATIOS, net.place, lazy=True, param_backup=True
    )
    zeroed = net.logits(lazy)
    assert before is not None
    restored(net, before)
    pruner = Pruner()
    whole = net.shapes(net.test)
    train, _, _ = pruner.prune(net.train, net.scope, CHOSEN, RATIOS, place=net.place)
    test, _, _ = pruner.prune(net.test, net.scope, CHOSEN, RATIOS, place=net.place, only_graph=True)
    assert (train is net.train, test is net.test) == (PIR, PIR)
    stated, held = net.shapes(train), net.values(train)
    assert {name: stated[name] for name in LEFT} == LEFT
    assert {name: held[name].shape for name in LEFT} == LEFT
    moments = [name for name in held if name.startswith("dw_weights_") and "pow" not in name]
    assert moments
    assert all(held[name].shape == LEFT["dw_weights"] for name in moments)
    if not PIR:
        assert net.shapes(net.test) == whole  # the program itself is left alone
        convs = [op for op in train.global_block().ops if "Filter" in op.input_names]
        groups = {op.attr("groups") for op in convs}
        assert 4 in groups
        assert 8 not in groups
    np.testing.assert_allclose(net.logits(test), zeroed, rtol=1e-4, atol=1e-5)
    losses = net.steps(8, train)
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
    assert not np.allclose(net.logits(test), zeroed)  # both programs share what was trained on


@pytest.mark.skipif(PIR, reason="a program of Paddle 3's kind is changed itself, and its scope with it")
def test_the_test_program_first_as_in_the_tutorial() -> None:
    net = Static()
    test, _, _ = Pruner().prune(net.test, net.scope, CHOSEN, RATIOS, net.place, only_graph=True)
    assert net.values(net.train)["conv4_weights"].shape == (8, 8, 3, 3)
    train, _, _ = Pruner().prune(net.train, net.scope, CHOSEN, RATIOS, net.place)
    assert net.shapes(test)["fc_weights"] == net.shapes(train)["fc_weights"] == LEFT["fc_weights"]
    assert net.logits(test).shape == (48, 4)


def test_backups_bring_everything_back() -> None:
    net = Static()
    before, shapes = net.values(), net.shapes(net.train)
    train, values, stated = Pruner("geometry_median").prune(
        net.train, net.scope, CHOSEN, RATIOS, net.place, param_backup=True, param_shape_backup=True
    )
    assert values is not None
    assert stated is not None
    assert stated["conv4_weights"] == (8, 8, 3, 3)
    assert set(stated) >= set(LEFT)
    assert all(shapes[name] == shape for name, shape in stated.items())
    net.steps(1, train)
    assert not same(net.values(train), before)
    restored(net, values)
    changed = {name for name, array in net.values().items() if array.tobytes() != before[name].tobytes()}
    assert changed <= {name for name in before if name not in values}  # what was not cut was trained on
    assert not {name for name in changed if name in LEFT}


def test_the_named_weight_ranks_its_group() -> None:
    net = Static()
    weight = net.values()["conv4_weights"]
    order = np.argsort(np.abs(weight).sum((1, 2, 3)), kind="stable")[:4]
    train, _, _ = Pruner().prune(net.train, net.scope, ["conv4_weights", "conv3_weights"], [0.5, 0.1])
    kept = np.delete(weight, order, 0)
    assert np.array_equal(net.values(train)["conv4_weights"], np.delete(kept, order, 1))


@pytest.mark.parametrize("criterion", ["bn_scale", "l2", lambda weight: np.arange(len(weight))])
def test_criteria(criterion) -> None:
    net = Static()
    values = net.values()
    train, _, _ = Pruner(criterion).prune(net.train, net.scope, ["conv5_weights"], [0.5])
    kept = net.values(train)["conv5_bn_scale"]
    scores = {
        "bn_scale": np.abs(values["conv5_bn_scale"]),
        "l2": np.square(values["conv5_weights"]).sum((1, 2, 3)),
    }.get(criterion if isinstance(criterion, str) else "", np.arange(16))
    gone = np.argsort(scores, kind="stable")[:8]
    assert np.array_equal(kept, np.delete(values["conv5_bn_scale"], gone))


def test_optimal_threshold_goes_by_energy() -> None:
    net = Static()
    scores = np.sort(np.abs(net.values()["conv5_weights"]).sum((1, 2, 3)))
    energy = np.cumsum(scores**2) / np.sum(scores**2)
    pruner = Pruner(idx_selector="optimal_threshold")
    train, _, _ = pruner.prune(net.train, net.scope, ["conv5_weights"], [0.3])
    assert net.shapes(train)["conv5_weights"][0] == 16 - int((energy <= 0.3).sum())


def test_what_cannot_be_pruned_stays(caplog: pytest.LogCaptureFixture) -> None:
    net = Static()
    before = net.values()
    train, values, _ = Pruner().prune(net.train, net.scope, ["fc_weights"], [0.5], param_backup=True)
    assert '"fc_weights" stays whole' in caplog.text
    assert values == {}
    assert same(net.values(), before)
    assert net.shapes(train)["fc_weights"] == (64, 4)


@pytest.fixture(scope="module")
def whole() -> Static:
    """One for all that has to leave it as it is."""
    paddle.enable_static()
    return Static()


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ('did you mean "conv1_weights"', {"params": ["conv1_weight"], "ratios": [0.5]}),
        ("3 params and 2 ratios", {"ratios": [0.5, 0.5]}),
        ("named twice", {"params": ["conv1_weights"] * 3}),
        ("list of names", {"params": "conv1_weights", "ratios": [0.5]}),
        ("under 1", {"ratios": [0.5, 0.5, 1.0]}),
        ("must be a number", {"ratios": [0.5, 0.5, "a"]}),
        ("not a str", {"program": "net"}),
        ("place has to be", {"place": "nowhere"}),
        ("has no value|holds no values", {"scope": paddle.static.Scope()}),
        ("scope has to be a paddle.static.Scope, not None", {"scope": None}),
        ("params has to be a list, not None", {"params": None}),
        ("ratios has to be a list, not 0.5", {"ratios": 0.5}),
    ],
)
def test_bad_input_changes_nothing(whole: Static, what: str, changed: dict) -> None:
    before, shapes, logits = whole.values(), whole.shapes(whole.train), whole.logits()
    arguments = {"program": whole.train, "scope": whole.scope, "params": CHOSEN, "ratios": RATIOS, **changed}
    with pytest.raises(InputError, match=what):
        Pruner().prune(**arguments)
    assert same(whole.values(), before)
    assert whole.shapes(whole.train) == shapes
    assert np.array_equal(whole.logits(), logits)
    assert not paddle.in_dynamic_mode()


@pytest.mark.skipif(PIR, reason="values of a PIR program have no names")
def test_what_a_program_computes_is_no_parameter(whole: Static) -> None:
    conv = next(op for op in whole.test.global_block().ops if op.type == "conv2d")
    with pytest.raises(InputError, match="names no parameter"):
        Pruner().prune(whole.test, whole.scope, conv.output("Output"), [0.5])


def test_a_program_that_was_spared_trains_on(whole: Static) -> None:
    assert np.isfinite(whole.steps(2)).all()


def test_a_scope_that_is_cut_already_is_not_cut_again() -> None:
    net = Static()
    train, _, _ = Pruner().prune(net.train, net.scope, CHOSEN, RATIOS)
    before = net.values(train)
    with pytest.raises(InputError, match="only_graph=True"):
        Pruner().prune(net.test, net.scope, CHOSEN, RATIOS)
    with pytest.raises(InputError, match="only_graph=True"):
        Pruner().prune(net.test, net.scope, CHOSEN, [0.5, 0.5, 0.5], only_graph=True)
    assert same(net.values(train), before)


def test_a_pruned_program_is_pruned_further() -> None:
    net = Static()
    train, _, _ = Pruner().prune(net.train, net.scope, CHOSEN, RATIOS)
    train, _, _ = Pruner().prune(train, net.scope, ["conv5_weights"], [0.5])
    assert net.values(train)["conv5_weights"].shape == net.shapes(train)["conv5_weights"] == (4, 4, 1, 1)
    assert np.isfinite(net.steps(2, train)).all()


def test_unknown_ways_to_choose() -> None:
    with pytest.raises(InputError, match="PaddleSlim's names"):
        Pruner("l1_nrom")
    with pytest.raises(InputError, match="group, values, graph"):
        Pruner(lambda group, values, graph: None)
    with pytest.raises(InputError, match="default_idx_selector"):
        Pruner(idx_selector="default_idx_selektor")


def restored(net: Static, values: dict[str, np.ndarray]) -> None:
    """As scripts for PaddleSlim bring a scope back."""
    for name, array in values.items():
        net.scope.find_var(name).get_tensor().set(array, net.place)


assert set(CHOSEN) <= set(PARAMS)
