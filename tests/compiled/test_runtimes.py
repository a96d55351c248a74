"""The runtimes that run a compiled copy: the same numbers from each, and a sentence where one is not taken."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from networks import SHAPE, SmallNet, images, made
from paddle import nn

from dysens import DygraphSensitivity
from dysens.compiled import _copies, _forward
from dysens.compiled._runtime import Loaded
from dysens.compiled._runtimes import RUNTIMES, OpenVino, PaddlePredictor, runtimes_for
from dysens.errors import ForwardError, InputError, JournalError, MissingExtraError
from dysens.evaluators import Evaluator, MetricEvaluator
from dysens.results import Header

RATIOS = [0.3, 0.6]


class Around(nn.Layer):
    """A function of pictures between two convolutions, of which the second one's input is masked."""

    def __init__(self, function, channels=8):
        super().__init__()
        self.first = nn.Conv2D(3, 8, 3, padding=1)
        self.second = nn.Conv2D(8, 8, 3, stride=2)
        self.last = nn.Conv2D(channels, 4, 1)
        self._function = function

    def forward(self, x):
        return self.last(self._function(self.second(F.relu(self.first(x)))))


class Size(Evaluator):
    """A score that every channel has a part in."""

    name = "size"

    def __init__(self, *sizes):
        self._batches = [
            images(rows, [1, 3, *side], seed=n) for n, (rows, *side) in enumerate(sizes or [(2, 16, 16)] * 4)
        ]

    def batches(self):
        return self._batches

    def arguments(self, batch):
        return (batch,)

    def measure(self, outputs, batch):
        return float(np.abs(outputs.numpy()).mean())

    def score(self, measurements):
        return float(np.mean(measurements))


FUNCTIONS = {
    "activations": lambda x: F.hardswish(x) + F.hardsigmoid(x) + F.relu6(x) * F.sigmoid(x) + F.swish(x),
    "more activations": lambda x: F.leaky_relu(x, 0.1) + F.gelu(x) + F.elu(x) + paddle.tanh(x),
    "arithmetic": lambda x: (2.5 * x - 1) / (1 + x * x) + paddle.sqrt(paddle.abs(x)) + paddle.exp(-x.abs()),
    "clipping": lambda x: paddle.clip(x, -0.1, 0.2) + x,
    "pools": lambda x: (
        F.max_pool2d(x, 3, 2, 1) + F.avg_pool2d(x, 3, 2, 1) + F.avg_pool2d(x, 3, 2, 1, exclusive=False)
    ),
    "whole pools": lambda x: x * F.adaptive_avg_pool2d(x, 1),
    "reductions": lambda x: x - x.mean([2, 3], keepdim=True) + x.sum(1, keepdim=True),
    "nearest": lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
    "bilinear": lambda x: F.interpolate(x, [5, 9], mode="bilinear"),
    "bilinear between corners": lambda x: F.interpolate(x, [5, 9], mode="bilinear", align_corners=True),
    "pieces": lambda x: paddle.concat([paddle.split(x, 4, 1)[2], paddle.split(x, [2, 6], 1)[1]], 1),
    "slices": lambda x: x[:, :, 1:, :-2] + x[:, :1, 1:, 2:],
    "other shapes": lambda x: x.reshape([0, 8, -1]).transpose([0, 2, 1]).transpose([0, 2, 1]).unsqueeze(-1),
    "shuffling": lambda x: x.reshape([0, 2, 4, 7, 7]).transpose([0, 2, 1, 3, 4]).flatten(1, 2),
    "attention": lambda x: F.softmax(x.flatten(2) @ x.flatten(2).transpose([0, 2, 1]) / 7, -1).unsqueeze(-1),
    "normalised": lambda x: x + F.layer_norm(x, [7]),
    "left out": lambda x: (
        F.dropout(x, 0.5, training=False) + F.dropout(x, 0.5, training=False, mode="downscale_in_infer")
    ),
    "squeezed": lambda x: x.mean([2, 3], keepdim=True).squeeze([2, 3]).unsqueeze([2, 3]) * x,
}


def swept(model, fast, evaluator=None, shape=SHAPE):
    ds = DygraphSensitivity(model, shape)
    return ds.sensitive(evaluator or Size(), RATIOS, progress=False, fast=fast)


def losses(found):
    return np.array([loss for curve in found.values() for loss in curve.values()])


def assert_openvino_agrees(model, evaluator=None):
    live = swept(model, "off", evaluator)
    served = swept(model, "openvino", evaluator)
    np.testing.assert_allclose(losses(served), losses(live), atol=1e-4)
    assert np.abs(losses(live)).max() > 1e-2


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Even the smallest network is worth a copy."""
    monkeypatch.setattr(_forward, "_QUICK_FORWARD_SECONDS", 0.0)


@pytest.fixture
def warnings_of(caplog):
    return lambda: [
        r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING and "dysens" in r.name
    ]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_operators(name, warnings_of):
    model = made(lambda: Around(FUNCTIONS[name]))
    assert_openvino_agrees(model)
    assert not warnings_of()  # it was OpenVINO that ran


# What OpenVINO does not read from a program of Paddle 2, or reads otherwise.
OTHERWISE = {"group norm": "group_norm", "padded output": "differ"}


@pytest.mark.parametrize(
    "network", ["depthwise", "groups", "transposed", "layer norm", "padded output", "group norm"]
)
def test_layers(network, warnings_of):
    layer = {
        "depthwise": lambda: nn.Conv2D(8, 8, 3, padding=2, dilation=2, groups=8),
        "groups": lambda: nn.Conv2D(8, 8, 3, padding=[1, 0, 2, 1], groups=2, bias_attr=False),
        "transposed": lambda: nn.Conv2DTranspose(8, 8, 3, 2, padding=1),
        "layer norm": lambda: nn.LayerNorm(14),
        "padded output": lambda: nn.Conv2DTranspose(8, 8, 3, 2, padding=1, output_padding=1),
        "group norm": lambda: nn.GroupNorm(4, 8),
    }[network]
    model = made(
        lambda: nn.Sequential(nn.Conv2D(3, 8, 3), nn.BatchNorm2D(8), layer(), nn.ReLU(), nn.Conv2D(8, 4, 1))
    )
    if network in OTHERWISE and paddle.__version__.startswith("2."):
        swept(model, "openvino")
        assert OTHERWISE[network] in warnings_of()[0]
        return
    assert_openvino_agrees(model)
    assert not warnings_of()


def test_batches_of_many_sizes(warnings_of):
    """More than get a network of their own."""
    sizes = [(rows, side, side + 2) for rows in (1, 3) for side in (12, 16, 20)] * 2
    assert_openvino_agrees(made(SmallNet), Size(*sizes))
    assert not warnings_of()


REFUSED = {
    "float64": (lambda x: (x.astype("float64") * 2).astype("float32"), "precision|float64"),
    "picking": (lambda x: x + paddle.argmax(x, 1, keepdim=True).astype("float32"), "arg_?max"),
    "sorting": (lambda x: paddle.sort(x, 1) + x, "sort"),
    "rounding": (lambda x: x + (x * 10).astype("int64").astype("float32"), "whole numbers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_openvino_does_not_get_is_said_by_name_and_another_runs_it(case, caplog, warnings_of):
    function, word = REFUSED[case]
    ds_model = made(lambda: Around(function))
    groups = DygraphSensitivity(ds_model, SHAPE).groups
    if not groups:
        pytest.skip("nothing can be cut there")
    with caplog.at_level(logging.INFO, logger="dysens"):
        found = swept(ds_model, "auto")
    told = [r.getMessage() for r in caplog.records if "OpenVINO does not run copies" in r.getMessage()]
    assert len(told) == 1
    assert re.search(word, told[0])
    np.testing.assert_allclose(losses(found), losses(swept(ds_model, "off")), atol=1e-4)
    assert not warnings_of()
    swept(ds_model, "openvino")
    assert "runs the live model instead" in warnings_of()[0]


class Shifted(Loaded):
    """Runs what another one loaded, and gives something else."""

    def __init__(self, loaded, by):
        self._loaded, self._by, self.outputs = loaded, by, loaded.outputs

    def run(self, feeds):
        return [array + self._by for array in self._loaded.run(feeds)]


class TestChoice:
    @pytest.mark.parametrize("fastest", ["paddle", "openvino"])
    def test_the_fastest_that_agrees(self, monkeypatch, fastest, tmp_path):
        def measured(self, found, call):
            assert {each.copy.runtime.name for each in found} == {"paddle", "openvino"}
            return next(each for each in found if each.copy.runtime.name == fastest)

        monkeypatch.setattr(_copies.ComparedCopies, "_fastest", measured)
        ds = DygraphSensitivity(made(SmallNet), SHAPE)
        ds.sensitive(Size(), RATIOS, progress=False, sen_file=tmp_path / "s.jsonl")
        assert header(tmp_path / "s.jsonl")["runtime"] == fastest

    def test_they_are_timed_in_turns(self):
        times = {}
        load = {runtime: type(runtime).load for runtime in RUNTIMES}

        class Counting(Loaded):
            def __init__(self, loaded, name):
                self._loaded, self._name, self.outputs = loaded, name, loaded.outputs

            def run(self, feeds):
                times[self._name] = times.get(self._name, 0) + 1
                return self._loaded.run(feeds)

        with pytest.MonkeyPatch.context() as patch:
            for runtime in RUNTIMES:
                patch.setattr(
                    type(runtime),
                    "load",
                    lambda self, *given: Counting(load[self](self, *given), self.name),
                )
            swept(made(SmallNet), "auto")
        assert set(times) == {"paddle", "openvino"}
        assert min(times.values()) >= 4

    @pytest.mark.parametrize("wrong", [OpenVino, PaddlePredictor])
    def test_one_that_differs_is_not_taken(self, monkeypatch, wrong, caplog, tmp_path):
        load = wrong.load
        monkeypatch.setattr(wrong, "load", lambda self, *given: Shifted(load(self, *given), 0.1))
        ds = DygraphSensitivity(made(SmallNet), SHAPE)
        with caplog.at_level(logging.INFO, logger="dysens"):
            ds.sensitive(Size(), RATIOS, progress=False, sen_file=tmp_path / "s.jsonl")
        assert any(
            f"{wrong.title} does not run copies of the model" in r.getMessage() for r in caplog.records
        )
        assert header(tmp_path / "s.jsonl")["runtime"] not in ("live", wrong.name)

    def test_where_none_agrees_the_live_model_runs(self, monkeypatch, warnings_of, tmp_path):
        for runtime in RUNTIMES:
            load = type(runtime).load
            monkeypatch.setattr(
                type(runtime), "load", lambda self, *given, load=load: Shifted(load(self, *given), 0.1)
            )
        ds = DygraphSensitivity(made(SmallNet), SHAPE)
        ds.sensitive(Size(), RATIOS, progress=False, sen_file=tmp_path / "s.jsonl")
        assert "differ" in warnings_of()[0]
        assert header(tmp_path / "s.jsonl")["runtime"] == "live"
        with pytest.raises(ForwardError, match='fast="on"'):
            ds.sensitive(Size(), RATIOS, progress=False, fast="on")

    def test_not_installed(self, monkeypatch):
        monkeypatch.setattr(OpenVino, "installed", False)
        with pytest.raises(MissingExtraError, match=r"pip install dysens\[openvino\]"):
            swept(made(SmallNet), "openvino")
        assert [runtime.name for runtime in runtimes_for("auto")] == ["paddle"]
        assert len(swept(made(SmallNet), "auto"))

    def test_another_name(self):
        with pytest.raises(InputError, match='"openvino", not'):
            runtimes_for("tensorrt")


def header(path):
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["kind"] == "header"][-1]


class TestJournal:
    def test_goes_on_with_another_runtime(self, tmp_path):
        path, model = tmp_path / "s.jsonl", made(SmallNet)
        ds = DygraphSensitivity(model, SHAPE)
        ds.sensitive(Size(), RATIOS[:1], progress=False, sen_file=path, fast="paddle")
        assert header(path)["runtime"] == "paddle"
        assert header(path)["samples"] == 8
        found = ds.sensitive(Size(), RATIOS, progress=False, sen_file=path, fast="openvino")
        assert header(path)["runtime"] == "openvino"
        np.testing.assert_allclose(losses(found), losses(swept(model, "off")), atol=1e-4)
        live = ds.sensitive(Size(), [*RATIOS, 0.8], progress=False, sen_file=path, fast="off")
        assert header(path)["runtime"] == "live"
        assert live.baseline == found.baseline  # the first one stays

    @pytest.mark.parametrize(("off", "joins"), [(1, True), (2, False)])
    def test_one_sample_may_round_otherwise(self, tmp_path, off, joins):
        path = tmp_path / "s.jsonl"
        data = [images(4, seed=n) for n in range(5)]
        model = made(SmallNet)
        with paddle.no_grad():
            labels = [model(x).flatten(1).argmax(1, keepdim=True) for x in data]
        evaluator = MetricEvaluator([[x, y] for x, y in zip(data, labels)], paddle.metric.Accuracy())
        flat = nn.Sequential(model, nn.Flatten())
        ds = DygraphSensitivity(flat, SHAPE)
        ds.sensitive(evaluator, RATIOS[:1], progress=False, sen_file=path, fast="paddle")
        text = path.read_text(encoding="utf-8")
        assert '"baseline": 1.0' in text
        path.write_text(text.replace('"baseline": 1.0', f'"baseline": {1 - off / 20}'), encoding="utf-8")
        if joins:
            found = ds.sensitive(evaluator, RATIOS, progress=False, sen_file=path, fast="openvino")
            assert found.baseline == 0.95
        else:
            with pytest.raises(JournalError, match="baseline"):
                ds.sensitive(evaluator, RATIOS, progress=False, sen_file=path, fast="openvino")

    def test_with_the_same_runtime_the_baseline_has_to_be_the_same(self, tmp_path):
        kept = Header("Net", "c0ffee", "fpgm", "acc", 0.95, runtime="paddle", samples=20)
        assert not kept.differences(replace(kept, baseline=0.90, runtime="openvino"))
        for other in ({}, {"runtime": "openvino", "samples": 19}, {"runtime": "", "samples": 20}):
            assert "baseline" in kept.differences(replace(kept, baseline=0.90, **other))[0]
