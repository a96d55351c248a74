"""Latency as a target: whole models are exported and timed by whoever will run them."""

from __future__ import annotations

import sys

import paddle
import pytest
from paddle import nn

from dysens import DygraphSensitivity
from dysens.compress import check_runtime, timed_cost
from dysens.compress._decide import Decider
from dysens.costs import cost_of
from dysens.errors import InputError, MissingExtraError, UnreachableError
from dysens.model import view_of
from tests import networks
from tests.compress.test_compress import SHAPE, images
from tests.networks import made

_best = Decider.best


@pytest.fixture
def ds():
    return DygraphSensitivity(made(networks.SmallNet, width=32), SHAPE)


def size_in_kb(folder) -> float:
    """Stands for a device on which time is the size of the weights; a program's size also depends on automatic names."""
    return (folder / "inference.pdiparams").stat().st_size / 1000


def test_a_function_times_the_exported_folder(ds):
    outcome = ds.compress(images(), latency=0.25, align=None, runtime=size_in_kb, progress=False)
    assert outcome.ms_after <= 0.75 * outcome.ms_before
    assert outcome.flops_after < outcome.flops_before
    assert "time layers" in outcome.seconds
    smallest = []
    for kind in ("FLOPs", "layers' time"):
        timed = [trial for trial in outcome.tried if trial.milliseconds is not None and trial.of == kind]
        assert len(timed) > 2
        reached = [trial for trial in timed if trial.milliseconds <= 0.75 * outcome.ms_before]
        missed = [trial for trial in timed if trial not in reached]
        smallest.append(min(reached, key=lambda trial: trial.budget))
        assert all(trial.budget < smallest[-1].budget for trial in missed)
    # Of the smallest cuts that were seen to reach the target, the one with the nearest outputs.
    nearest = min(smallest, key=lambda trial: trial.output_error)
    assert outcome.allocation == nearest.allocation
    assert outcome.output_error == pytest.approx(nearest.output_error, rel=1e-2)
    assert set(outcome.trials()["of"]) == {"FLOPs", "layers' time"}


def test_a_target_that_one_kind_of_budget_reaches_is_reached(ds, monkeypatch):
    """Where cutting by one kind is never fast enough, the other's cut is taken."""

    def never(self, target):
        raise UnreachableError("takes 0% less")

    monkeypatch.setattr(
        Decider,
        "best",
        lambda self, target: (never if self.allocator.kind == "time" else _best)(self, target),
    )
    outcome = ds.compress(images(), latency=0.25, align=None, runtime=size_in_kb, progress=False)
    assert {trial.of for trial in outcome.tried} == {"FLOPs"}


def test_a_command_prints_milliseconds(ds, tmp_path):
    script = tmp_path / "timer.py"
    script.write_text(
        "import pathlib, sys\n"
        "print('took', sum(f.stat().st_size for f in pathlib.Path(sys.argv[1]).glob('*.pdiparams')) / 1000)\n"
    )
    outcome = ds.compress(
        images(), latency=0.2, align=None, runtime=[sys.executable, str(script)], progress=False
    )
    assert outcome.ms_after <= 0.8 * outcome.ms_before


def test_what_cannot_be_reached_says_what_can(ds):
    with pytest.raises(UnreachableError, match=r"takes \d+% less"):
        ds.compress(images(), latency=0.5, runtime=lambda folder: 7.0, progress=False)


@pytest.mark.parametrize(
    ("runtime", "error", "says"),
    [
        ("no-such-program --fast", InputError, "no program"),
        ([sys.executable, "-c", "raise SystemExit(3)"], InputError, "exit code 3"),
        ([sys.executable, "-c", "print('fast')"], InputError, "where milliseconds belong"),
        (lambda folder: None, InputError, "how many milliseconds"),
    ],
)
def test_a_runtime_that_does_not_work_is_a_sentence(ds, runtime, error, says):
    with pytest.raises(error, match=says):
        ds.compress(images(), latency=0.2, runtime=runtime, progress=False)


@pytest.mark.parametrize("runtime", ["openvino", "onnxruntime"])
def test_another_runtime_times_the_exported_model(ds, runtime):
    try:
        check_runtime(runtime)
    except MissingExtraError:
        with pytest.raises(
            MissingExtraError, match=f"{runtime}|paddle2onnx"
        ):  # before anything is calibrated
            ds.compress(images(), latency=0.2, runtime=runtime, progress=False)
        return
    outcome = ds.compress(images(), flops=0.3, align=None, runtime=runtime, progress=False)
    assert outcome.ms_before > 0
    assert outcome.ms_after > 0


def test_layers_are_weighed_by_their_time(tmp_path):
    model = made(networks.SmallNet, width=16)
    view = view_of(SHAPE)
    cost = cost_of(model, view)
    timed = timed_cost(model, view, cost, tmp_path)
    assert set(timed.by_layer) == set(cost.by_layer)
    assert timed.flops == sum(timed.by_layer.values()) > 0
    assert timed.params == cost.params
    # A layer with nearly no work takes more time than its FLOPs say.
    share = {path: timed.by_layer[path] / timed.flops for path in cost.by_layer}
    least = min(cost.by_layer, key=lambda path: cost.by_layer[path])
    assert share[least] > cost.by_layer[least] / cost.flops


class TakesMore(nn.Layer):
    """Is handed a dictionary, as PaddleDetection's networks are, and uses a part of it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = networks.SmallNet(width=32)

    def forward(self, inputs):
        return self.inner(inputs["image"])


@pytest.mark.parametrize("runtime", ["paddle", "openvino"])
def test_a_network_that_does_not_use_all_its_inputs_is_timed(runtime):
    if runtime == "openvino":
        pytest.importorskip("openvino")
    calls = [
        {"scale": paddle.ones([2, 2]), "image": paddle.randn([2, *SHAPE[1:]]), "id": paddle.zeros([2, 1])}
        for _ in range(4)
    ]
    ds = DygraphSensitivity(made(TakesMore), (calls[0],))
    outcome = ds.compress(calls, flops=0.3, align=None, runtime=runtime, progress=False)
    assert outcome.ms_after is not None
    assert outcome.ms_after > 0
