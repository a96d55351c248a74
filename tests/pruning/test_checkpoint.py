"""`save_pruned` and `load_pruned`: the original network becomes the pruned one again, or stays as it is."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import partial

import numpy as np
import paddle
import pytest
from interrupting import interrupted, places_of
from networks import (
    SHAPE,
    ConvBN,
    ResNeXtBlock,
    ShuffleNet,
    SmallNet,
    TextNet,
    TinyNet,
    Unequal,
    images,
    made,
    outputs,
    randomize,
    train_step,
)
from paddle import nn
from states import assert_same, picture

from dysens import DygraphSensitivity, load_pruned, save_pruned
from dysens.errors import InputError

LABELS = paddle.to_tensor([0, 1, 2, 3])


def cut(model: nn.Layer, ratio: float = 0.5, **options) -> DygraphSensitivity:
    ds = DygraphSensitivity(model, SHAPE, criterion="l1", **options)
    ds.prune_vars({group.name: ratio for group in ds.groups})
    return ds


@pytest.fixture
def saved(tmp_path):
    model = made(SmallNet)
    cut(model)
    save_pruned(model, tmp_path / "out" / "pruned")
    return tmp_path / "out" / "pruned", model


@pytest.mark.parametrize("network", [SmallNet, TextNet, ResNeXtBlock, ShuffleNet, Unequal])
def test_a_fresh_network_becomes_the_pruned_one(network, tmp_path):
    model = made(network)
    cut(model)
    save_pruned(model, tmp_path / "pruned")
    fresh = made(network, seed=1)
    assert load_pruned(fresh, tmp_path / "pruned") is fresh
    assert np.array_equal(outputs(fresh), outputs(model))
    assert str(fresh) == str(model)
    for path, tensor in model.state_dict().items():
        assert np.array_equal(tensor.numpy(), fresh.state_dict()[path].numpy()), path


def test_the_plan_is_readable(saved):
    path, _ = saved
    plan = json.loads((path.parent / "pruned.plan.json").read_text())
    assert plan["format"] == 1
    assert plan["model"] == "SmallNet"
    (stage,) = plan["stages"]
    first = stage["cuts"][0]
    assert set(first) >= {"tensor", "axis", "size", "removed"}
    assert stage["attributes"]["stem.0"]["_out_channels"] == 4
    assert plan["parameters"]["conv2d_0.w_0"] == "stem.0.weight"


def test_names_may_have_shifted(saved):
    path, model = saved
    nn.Sequential(ConvBN(3, 4), ConvBN(4, 5))  # other networks were built before
    fresh = SmallNet()
    assert fresh.stem[0].weight.name != "conv2d_0.w_0"
    load_pruned(fresh, path)
    assert np.array_equal(outputs(fresh), outputs(model))


@pytest.mark.parametrize("kind", ["Momentum", "Adam", "AdamW"])
def test_training_resumes_with_the_saved_optimizer(kind, tmp_path):
    model = made(SmallNet)
    model.dropout.p = 0.0
    with paddle.utils.unique_name.guard():
        optimizer = getattr(paddle.optimizer, kind)(0.01, parameters=model.parameters())
        train_step(model, optimizer, images(), LABELS)
    cut(model, optimizer=optimizer)
    train_step(model, optimizer, images(seed=1), LABELS)
    save_pruned(model, tmp_path / "pruned", optimizer)

    ConvBN(3, 4)  # so that automatic names shift
    fresh = SmallNet()
    fresh.dropout.p = 0.0
    resumed = getattr(paddle.optimizer, kind)(0.01, parameters=fresh.parameters())
    load_pruned(fresh, tmp_path / "pruned", resumed)
    losses = [train_step(model, optimizer, images(seed=s), LABELS) for s in range(2, 5)]
    again = [train_step(fresh, resumed, images(seed=s), LABELS) for s in range(2, 5)]
    assert np.allclose(losses, again, rtol=1e-6)
    for path, tensor in model.state_dict().items():
        assert np.allclose(tensor.numpy(), fresh.state_dict()[path].numpy(), rtol=1e-5, atol=1e-7), path


def test_a_network_that_was_pruned_loaded_and_pruned_again(tmp_path):
    """Iterated pruning: a new DygraphSensitivity on the cut model, then save and load."""
    model = made(SmallNet)
    cut(model, 0.3)
    save_pruned(model, tmp_path / "first")
    fresh = load_pruned(made(SmallNet, seed=1), tmp_path / "first")
    randomize(fresh, seed=2)
    again = cut(fresh, 0.3)
    assert all(group.channels < 16 for group in again.groups)
    save_pruned(fresh, tmp_path / "second")
    loaded = load_pruned(made(SmallNet, seed=3), tmp_path / "second")
    assert np.array_equal(outputs(loaded), outputs(fresh))
    again.restore()  # back to what the second analysis found: the model that was cut once
    assert outputs(fresh).shape == outputs(model).shape
    assert fresh.point.weight.shape == model.point.weight.shape
    save_pruned(fresh, tmp_path / "third")
    assert np.array_equal(outputs(load_pruned(made(SmallNet), tmp_path / "third")), outputs(fresh))


def test_a_copy_of_a_cut_model_can_be_saved(saved, tmp_path):
    _, model = saved
    save_pruned(deepcopy(model), tmp_path / "copy")
    assert np.array_equal(outputs(load_pruned(made(SmallNet), tmp_path / "copy")), outputs(model))


def test_what_was_restored_is_saved_as_whole(tmp_path):
    model = made(SmallNet)
    cut(model).restore()
    save_pruned(model, tmp_path / "whole")
    fresh = load_pruned(made(SmallNet, seed=1), tmp_path / "whole")
    assert np.array_equal(outputs(fresh), outputs(model))


def refused(model: nn.Layer, path, said: str, optimizer=None) -> None:
    """Loading says what is wrong, and changes nothing."""
    before = picture(model, optimizer)
    with pytest.raises(InputError, match=f"(?i){said}"):
        load_pruned(model, path, optimizer)
    assert_same(before, picture(model, optimizer))


def test_another_network_is_refused(saved):
    refused(made(TinyNet), saved[0], "layer '.*', which this network does not have")


def test_a_network_of_another_width_is_refused(saved):
    refused(made(SmallNet, width=10), saved[0], r"layer 'stem\.0' differs: .* has shape \[10, 3, 3, 3\]")


def test_a_network_with_another_head_is_refused(saved):
    refused(
        made(SmallNet, classes=7),
        saved[0],
        r"layer 'fc' differs: .*\[32, 7\] in this network and \[32, 4\]",
    )


def test_a_network_with_one_layer_more_is_refused(saved):
    class More(SmallNet):
        def __init__(self):
            super().__init__()
            self.more = nn.Linear(3, 3)

    refused(made(More), saved[0], "The saved weights lack 'more.*', which this network has")


def test_a_network_with_one_layer_less_is_refused(tmp_path):
    class More(SmallNet):
        def __init__(self):
            super().__init__()
            self.more = nn.Linear(3, 3)

    model = made(More)
    cut(model)
    save_pruned(model, tmp_path / "more")
    refused(made(SmallNet), tmp_path / "more", "The saved weights have 'more.*', which this network lacks")


def test_a_network_that_is_cut_already_is_refused(saved):
    path, model = saved
    refused(model, path, "has been cut already")


def test_missing_files_are_named(saved, tmp_path):
    path, _ = saved
    refused(made(SmallNet), tmp_path / "nothing", "there is no plan .*nothing.plan.json")
    optimizer = paddle.optimizer.Adam(parameters=made(SmallNet).parameters())
    refused(made(SmallNet), path, "There is no file .*pruned.pdopt", optimizer)
    (path.parent / "pruned.pdparams").unlink()
    refused(made(SmallNet), path, "There is no file .*pruned.pdparams")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format": 1, "stages": [{}], "parameters": {}}', "null"]
)
def test_a_damaged_plan_is_refused(saved, text):
    path, _ = saved
    (path.parent / "pruned.plan.json").write_text(text)
    refused(made(SmallNet), path, "is not a plan of dysens, or is damaged")


def test_a_plan_of_the_future_is_refused(saved):
    path, _ = saved
    file = path.parent / "pruned.plan.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 99}))
    refused(made(SmallNet), path, "has format 99, this dysens knows up to 2; update dysens")


def test_an_interrupt_while_loading_leaves_nothing_half_done(tmp_path):
    model = made(TinyNet)
    cut(model)
    save_pruned(model, tmp_path / "tiny")
    places = places_of(lambda: load_pruned(made(TinyNet, seed=1), tmp_path / "tiny"))
    cut_lines = [place for place in places if place[0].endswith(("checkpoint.py", "apply.py"))]
    for place in cut_lines:
        fresh = made(TinyNet, seed=1)
        before = picture(fresh)
        assert interrupted(partial(load_pruned, fresh, tmp_path / "tiny"), place, places[place])
        if fresh.conv.weight.shape == model.conv.weight.shape:  # it came when all was done
            assert np.array_equal(outputs(fresh), outputs(model))
        else:
            assert_same(before, picture(fresh))
