"""Saving over an existing checkpoint: a reader finds the old one or the new one, whatever happens to the writer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import paddle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from networks import SHAPE, SmallNet, made, outputs

from dysens import DygraphSensitivity, load_pruned, save_pruned
from dysens.errors import DysensError, InputError

ROOT = Path(__file__).parents[2]


def cut_model(ratio: float):
    model = made(SmallNet)
    ds = DygraphSensitivity(model, SHAPE, criterion="l1")
    ds.prune_vars({group.name: ratio for group in ds.groups})
    return model


def which(path: Path, models: dict[str, paddle.nn.Layer]) -> str:
    """The name of the model that is saved there."""
    values = outputs(load_pruned(made(SmallNet, seed=3), path))
    return next(name for name, model in models.items() if np.array_equal(outputs(model), values))


@pytest.fixture(scope="module")
def models():
    return {"old": cut_model(0.25), "new": cut_model(0.5)}


def steps_of(path: Path, model: paddle.nn.Layer, monkeypatch) -> list[dict[str, bytes]]:
    """The files as they are after each rename of a save."""
    seen: list[dict[str, bytes]] = []
    rename = os.replace

    def watched(*args):
        seen.append({file.name: file.read_bytes() for file in path.parent.iterdir()})
        rename(*args)
        seen.append({file.name: file.read_bytes() for file in path.parent.iterdir()})

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", watched)
        save_pruned(model, path)
    return seen


def test_at_every_step_the_old_or_the_new_one_loads(models, tmp_path, monkeypatch):
    path = tmp_path / "here" / "net"
    save_pruned(models["old"], path)
    steps = steps_of(path, models["new"], monkeypatch)
    found = []
    for number, files in enumerate(steps):
        folder = tmp_path / f"step{number}"
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        found.append(which(folder / "net", models))
        assert sorted(file.name for file in folder.iterdir() if "saving" not in file.name) == [
            "net.pdparams",
            "net.plan.json",
        ]
    assert found[0] == "old"
    assert found[-1] == "new"
    assert found == sorted(found, reverse=True), "old ones first, then new ones"
    assert sorted(file.name for file in path.parent.iterdir()) == ["net.pdparams", "net.plan.json"]


def test_a_save_that_did_not_complete_is_overwritten(models, tmp_path):
    path = tmp_path / "net"
    save_pruned(models["old"], path)
    for name in ("net.saving.pdparams", "net.saving.pdopt", "net.saving.plan.json.tmp"):
        (tmp_path / name).write_bytes(b"half of it")
    assert which(path, models) == "old"
    save_pruned(models["new"], path)
    assert which(path, models) == "new"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["net.pdparams", "net.plan.json"]


def test_weights_that_were_trained_and_saved_again_load(models, tmp_path):
    path = tmp_path / "net"
    model = cut_model(0.25)
    save_pruned(model, path)
    with paddle.no_grad():
        model.fc.bias.set_value(model.fc.bias + 1)
    paddle.save(model.state_dict(), f"{path}.pdparams")
    assert np.array_equal(outputs(load_pruned(made(SmallNet), path)), outputs(model))


def test_the_optimizer_of_another_checkpoint_is_refused(tmp_path):
    path = tmp_path / "net"
    model = made(SmallNet)
    optimizer = paddle.optimizer.Adam(parameters=model.parameters())
    save_pruned(model, path, optimizer)
    save_pruned(cut_model(0.5), path)
    fresh = made(SmallNet)
    again = paddle.optimizer.Adam(parameters=fresh.parameters())
    with pytest.raises(InputError, match=r"without an optimizer; .*net\.pdopt"):
        load_pruned(fresh, path, again)


SCRIPT = """
import resource, sys
import dysens, paddle
sys.path.insert(0, sys.argv[2])
from networks import SmallNet, made
model = made(SmallNet)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
try:
    dysens.save_pruned(model, sys.argv[1])
except dysens.DysensError as error:
    print("REFUSED", error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
@pytest.mark.parametrize(
    "limit", [0, 2000, 30000], ids=["nothing fits", "not the weights", "weights, just not"]
)
def test_a_full_disk_leaves_the_old_one(models, tmp_path, limit):
    path = tmp_path / "net"
    save_pruned(models["old"], path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    limit = min(limit, len(before["net.pdparams"]) // 2)
    command = [sys.executable, "-c", SCRIPT, str(path), str(ROOT / "tests"), str(limit)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "REFUSED" in done.stdout, done.stderr[-2000:]
    assert "cannot be saved" in done.stdout
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert which(path, models) == "old"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_kills_while_saving():
    command = [sys.executable, "-m", "benchmarks.kills", "--kills", "12", "--width", "96"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "LOST" not in done.stdout


# Plans that others wrote


@pytest.fixture(scope="module")
def saved(models, tmp_path_factory):
    path = tmp_path_factory.mktemp("plans") / "net"
    save_pruned(models["old"], path)
    return path, json.loads(Path(f"{path}.plan.json").read_text())


def refused(saved, plan, said: str) -> None:
    path, _ = saved
    model = made(SmallNet)
    before = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    place = path.parent / "changed"
    Path(f"{place}.pdparams").write_bytes(Path(f"{path}.pdparams").read_bytes())
    Path(f"{place}.plan.json").write_text(json.dumps(plan))
    with pytest.raises(InputError, match=said):
        load_pruned(model, place)
    assert all(np.array_equal(tensor.numpy(), before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("layer", "name", "value", "said"),
    [
        ("stem.0", "_padding", 7, "sets '_padding' of layer 'stem.0', which is not a width"),
        ("stem.0", "forward", 1, "sets 'forward' of layer 'stem.0', which is not a width"),
        ("stem.0", "__class__", 1, "which is not a width"),
        ("stem.0", "_out_channels", 10**6, "cannot make it wider"),
        ("stem.0", "_out_channels", 0, "is 0"),
        ("stem.0", "_out_channels", True, "is True"),
        ("stem.0", "_out_channels", "4", "is '4'"),
        ("stem.0", "_out_channels", 2, r"with widths that do not fit each other \(_out_channels\)"),
        ("stem.0", "num_groups", 1, "has no such width"),
        ("nowhere", "_out_channels", 4, "a layer 'nowhere'"),
    ],
)
def test_a_plan_sets_only_widths(saved, layer, name, value, said):
    plan = json.loads(json.dumps(saved[1]))
    plan["stages"][0]["attributes"].setdefault(layer, {})[name] = value
    refused(saved, plan, said)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"axis": -1}, "axis, size or blocks"),
        ({"axis": 9}, "differs"),
        ({"size": 10**9}, "differs"),
        ({"removed": list(range(8))}, "nothing would be left"),
        ({"removed": [0, 0]}, "names an entry twice"),
        ({"removed": [-1]}, "not entries from 0 to 7"),
        ({"removed": [1.5]}, "not entries from 0 to 7"),
        ({"order": [1, 2]}, "does not name what stays"),
        ({"blocks": 0}, "axis, size or blocks"),
        ({"blocks": 2**30, "size": 2**30}, "would not be equally wide"),
        ({"tensor": 5}, "path of a tensor"),
        ({"tensor": "stem.0._padding"}, "does not have"),
    ],
)
def test_a_plan_cuts_only_what_is_there(saved, changes, said):
    plan = json.loads(json.dumps(saved[1]))
    plan["stages"][0]["cuts"][0].update(changes)
    refused(saved, plan, said)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**40) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def places(tree, path=()):
    """Every place in a JSON document."""
    yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def changed(tree, path, value):
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = changed(tree[path[0]], path[1:], value)
    return copy


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_garbled_plan_loads_or_is_a_sentence(saved, data):
    """Whatever a file says: the network becomes a pruned one, or stays as it is and a DysensError says why."""
    path, plan = saved
    for _ in range(data.draw(st.integers(1, 3))):
        plan = changed(plan, data.draw(st.sampled_from(sorted(places(plan), key=str))), data.draw(JSON))
    place = path.parent / "garbled"
    Path(f"{place}.pdparams").write_bytes(Path(f"{path}.pdparams").read_bytes())
    Path(f"{place}.plan.json").write_text(json.dumps(plan))
    model = made(SmallNet)
    error = None
    try:
        load_pruned(model, place)
    except DysensError as refusal:
        error = refusal
    if error is None:
        assert outputs(model).shape == outputs(made(SmallNet)).shape
    else:
        assert str(error).endswith((".", "?"))
        assert model.stem[0].weight.shape[0] == 8


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("ending", ["plan.json", "pdparams"])
def test_a_torn_file_is_a_sentence(saved, ending, share):
    path, _ = saved
    for name in ("plan.json", "pdparams"):
        content = Path(f"{path}.{name}").read_bytes()
        torn = content[: int(len(content) * share)] if name == ending else content
        (path.parent / f"torn.{name}").write_bytes(torn)
    with pytest.raises(DysensError):
        load_pruned(made(SmallNet), path.parent / "torn")


def test_a_network_that_counts_in_numpys_numbers_is_saved_and_loaded(tmp_path):
    def net() -> paddle.nn.Layer:
        paddle.seed(1)
        widths = np.array([3, 16, 8])
        layers = [
            paddle.nn.Conv2D(a, b, 3, padding=1) for a, b in zip(widths, widths[1:])
        ]  # layers keep the numbers that they are given
        return paddle.nn.Sequential(layers[0], paddle.nn.ReLU(), layers[1])

    model = net()
    assert isinstance(model[2]._in_channels, np.integer)
    ds = DygraphSensitivity(model, SHAPE)
    ds.prune_vars({group.name: 0.5 for group in ds.groups})
    save_pruned(model, tmp_path / "net")
    np.testing.assert_array_equal(outputs(load_pruned(net(), tmp_path / "net")), outputs(model))
