"""An exported model as a live layer: the same outputs, the same names, the same groups, and it trains."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from paddle import nn

from dysens import DygraphSensitivity, load_pruned, save_pruned
from dysens.errors import InputError
from dysens.evaluators import Evaluator
from dysens.model import fingerprint
from dysens.programs import layer_of_program, load_inference, save_inference
from programs.nets import PROGRAM, ConvNet, Reader, exported


def noise(*shape: int) -> paddle.Tensor:
    return paddle.to_tensor(np.random.default_rng(1).uniform(-1, 1, shape).astype("float32"))


def members(model: nn.Layer, shape: list[int]) -> list[list[tuple[str, int]]]:
    """The groups by the parameters that they cut, and along which axis."""
    return sorted(sorted(group.members) for group in DygraphSensitivity(model, shape).groups)


@pytest.fixture(params=[ConvNet, Reader])
def net(request: pytest.FixtureRequest) -> nn.Layer:
    paddle.seed(0)
    made = request.param()
    made.train()
    for _ in range(2):  # statistics that are not those of a new batch norm
        made(noise(4, 3, 8, 8))
    made.eval()
    return made


def test_outputs_names_and_groups_are_the_live_networks(net: nn.Layer, tmp_path: Path) -> None:
    model = load_inference(exported(net, tmp_path, [None, 3, 8, 8]))
    x = noise(2, 3, 8, 8)
    np.testing.assert_allclose(model(x).numpy(), net(x).numpy(), atol=1e-6)
    assert {p.name for p in model.parameters()} == {p.name for p in net.parameters()}
    assert members(model, [1, 3, 8, 8]) == members(net, [1, 3, 8, 8])


def test_a_recurrent_network_becomes_recurrent_layers(tmp_path: Path) -> None:
    model = load_inference(exported(Reader(), tmp_path, [None, 3, 8, None]))
    kinds = [type(layer) for layer in model.children()]
    assert nn.LSTM in kinds
    assert nn.GRU in kinds


def test_it_trains_like_the_network(net: nn.Layer, tmp_path: Path) -> None:
    model = load_inference(exported(net, tmp_path, [None, 3, 8, 8]))
    losses = []
    for each in (model, net):
        each.train()
        for layer in each.sublayers():
            if isinstance(layer, nn.Dropout):
                layer.p = 0.0
        optimizer = paddle.optimizer.Momentum(0.05, parameters=each.parameters())
        seen = []
        for _ in range(4):
            loss = (each(noise(4, 3, 8, 8)) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            seen.append(float(loss))
        losses.append(seen)
        each.eval()
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    assert losses[0][-1] < losses[0][0]
    # The running statistics moved along.
    np.testing.assert_allclose(model(noise(2, 3, 8, 8)).numpy(), net(noise(2, 3, 8, 8)).numpy(), atol=1e-4)


def test_dropout_drops_in_training_only(tmp_path: Path) -> None:
    model = load_inference(exported(ConvNet(), tmp_path, [None, 3, 8, 8]))
    x = noise(2, 3, 8, 8)
    assert (model(x).numpy() == model(x).numpy()).all()
    model.train()
    assert (model(x).numpy() != model(x).numpy()).any()


def test_a_second_import_has_the_same_fingerprint_and_a_copy_is_its_own(tmp_path: Path) -> None:
    prefix = exported(ConvNet(), tmp_path, [None, 3, 8, 8])
    model, again = load_inference(prefix), load_inference(tmp_path)
    assert fingerprint(model) == fingerprint(again)
    twin = copy.deepcopy(model)
    twin.parameters()[0].set_value(twin.parameters()[0] * 0)
    assert fingerprint(model) == fingerprint(again) != fingerprint(twin)
    assert (twin(noise(1, 3, 8, 8)).numpy() != model(noise(1, 3, 8, 8)).numpy()).any()


def test_pruned_saved_and_loaded(tmp_path: Path) -> None:
    prefix = exported(ConvNet(), tmp_path, [None, 3, 8, 8])
    model = load_inference(prefix)
    ds = DygraphSensitivity(model, [1, 3, 8, 8])
    ds.prune_vars({group.name: 0.5 for group in ds.groups})
    save_pruned(model, tmp_path / "pruned")
    again = load_pruned(load_inference(prefix), tmp_path / "pruned")
    x = noise(2, 3, 8, 8)
    np.testing.assert_array_equal(again(x).numpy(), model(x).numpy())


class FirstOutput(Evaluator):
    name = "mean of the first output"

    def batches(self) -> list[np.ndarray]:
        return [np.random.default_rng(n).uniform(-1, 1, (2, 3, 8, 8)).astype("float32") for n in range(2)]

    def arguments(self, batch: np.ndarray) -> tuple[paddle.Tensor]:
        return (paddle.to_tensor(batch),)

    def measure(self, outputs: Any, batch: Any) -> float:
        return float(np.asarray(outputs)[..., 0].mean())

    def score(self, measurements: Any) -> float:
        return 1.0 + float(np.mean(measurements))


def test_costs_and_a_compiled_copy_as_of_the_network(net: nn.Layer, tmp_path: Path) -> None:
    model = load_inference(exported(net, tmp_path, [None, 3, 8, 8]))
    ds, live = (DygraphSensitivity(each, [2, 3, 8, 8]) for each in (model, net))
    (name, *_) = [group.name for group in ds.groups]
    served, run = (
        ds.sensitive(FirstOutput(), ratios=[0.5], target_vars=[name], fast=fast, progress=False).points
        for fast in ("on", "off")
    )
    assert [point.metric for point in served] == pytest.approx([point.metric for point in run], abs=1e-5)
    mine, theirs = (each.prune_vars({name: 0.5}) for each in (ds, live))
    assert (mine.flops_before, mine.flops_after) == (theirs.flops_before, theirs.flops_after)
    assert (mine.params_before, mine.params_after) == (theirs.params_before, theirs.params_after)


def test_files_by_name(tmp_path: Path) -> None:
    prefix = exported(ConvNet(), tmp_path, [None, 3, 8, 8])
    Path(f"{prefix}{PROGRAM}").rename(tmp_path / f"net{PROGRAM}")
    Path(f"{prefix}.pdiparams").rename(tmp_path / "weights.bin")
    model = load_inference(tmp_path, model_filename=f"net{PROGRAM}", params_filename="weights.bin")
    assert model(noise(1, 3, 8, 8)).shape == [1, 5]


def test_a_training_program_in_memory() -> None:
    """What the outputs are computed from, in eval mode, without backward and optimizer; the program is left alone."""
    given = noise(2, 3, 8, 8)
    paddle.enable_static()
    try:
        main, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.static.program_guard(main, startup):
            x = paddle.static.data("x", [None, 3, 8, 8])
            net = ConvNet()
            net.eval()
            answer = net(x)
            paddle.optimizer.Momentum(0.01).minimize((answer * answer).mean())
        executor, scope = paddle.static.Executor(paddle.CPUPlace()), paddle.static.Scope()
        with paddle.static.scope_guard(scope):
            executor.run(startup)
            operations = len(main.global_block().ops)
            model = layer_of_program(main, scope, [answer])
            assert not paddle.in_dynamic_mode()
            assert len(main.global_block().ops) == operations
            (expected,) = executor.run(main, feed={"x": given.numpy()}, fetch_list=[answer])
    finally:
        paddle.disable_static()
    np.testing.assert_allclose(model(given).numpy(), expected, atol=1e-6)
    assert len(DygraphSensitivity(model, [1, 3, 8, 8]).groups) == len(
        DygraphSensitivity(ConvNet(), [1, 3, 8, 8]).groups
    )


@pytest.mark.parametrize("folder", ["with spaces", "模型", "a.b.c", "inference.json.d"])
def test_folders_with_any_name(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / folder).mkdir()
    exported(ConvNet(), tmp_path / folder, [None, 3, 8, 8])
    monkeypatch.chdir(tmp_path)
    for path in (folder, f"{folder}/", f"{folder}/inference", f"{folder}/inference{PROGRAM}"):
        model = load_inference(path)
        assert model(noise(1, 3, 8, 8)).shape == [1, 5]
    again = load_inference(save_inference(model, f"{folder}/again und wieder/模").prefix)
    np.testing.assert_allclose(again(noise(1, 3, 8, 8)).numpy(), model(noise(1, 3, 8, 8)).numpy(), atol=1e-6)


def test_both_kinds_side_by_side(tmp_path: Path) -> None:
    """Each Paddle takes its own kind; a file that is named is taken."""
    exported(ConvNet(), tmp_path, [None, 3, 8, 8])
    other = tmp_path / f"inference{'.pdmodel' if PROGRAM == '.json' else '.json'}"
    other.write_bytes(b"of another Paddle")
    for path in (tmp_path, tmp_path / "inference", tmp_path / f"inference{PROGRAM}"):
        assert load_inference(path).feeds[0].name == "x0"
    for path, options in ((other, {}), (tmp_path, {"model_filename": other.name})):
        with pytest.raises(InputError, match=rf"{other.name}"):
            load_inference(path, **options)
