"""PaddleSlim's own static examples with one import changed: conv1 to conv6 of its tests, and the MobileNetV1 tutorial.

Programs of Paddle 2's kind: here on Paddle 2.6, beside PaddleSlim itself; on Paddle 3 in a process with the flag, where the
layers for such programs are still there.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest

from dysens import DygraphSensitivity, compat
from dysens.data import load_digits
from dysens.evaluators import Evaluator

PIR = bool(getattr(paddle.framework, "use_pir_api", lambda: False)())
old_programs = pytest.mark.skipif(PIR, reason="runs in a process with FLAGS_enable_pir_api=0")


@pytest.mark.skipif(not PIR, reason="such programs are this Paddle's own")
def test_on_paddle_3_with_the_flag() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", __file__],
        env={**os.environ, "FLAGS_enable_pir_api": "0"},
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "7 passed" in done.stdout


@pytest.fixture(autouse=True)
def static() -> Iterator[None]:
    paddle.enable_static()
    yield
    paddle.disable_static()


def libraries() -> list[Any]:
    """dysens, and PaddleSlim where it is installed for this Paddle."""
    if not paddle.__version__.startswith("2.6"):
        return [compat]
    return [compat, importlib.import_module("paddleslim.prune")]


def conv_bn(
    x: Any, filters: int, size: int, name: str, stride: int = 1, groups: int = 1, act: Any = None
) -> Any:
    """A convolution and a batch norm, under the names that PaddleSlim's examples have."""
    conv = paddle.static.nn.conv2d(
        x,
        filters,
        size,
        stride=stride,
        padding=(size - 1) // 2,
        groups=groups,
        param_attr=paddle.ParamAttr(name=f"{name}_weights"),
        bias_attr=False,
        name=f"{name}_out",
    )
    return paddle.static.nn.batch_norm(
        conv,
        act=act,
        name=f"{name}_bn_output",
        param_attr=paddle.ParamAttr(name=f"{name}_bn_scale"),
        bias_attr=paddle.ParamAttr(name=f"{name}_bn_offset"),
        moving_mean_name=f"{name}_bn_mean",
        moving_variance_name=f"{name}_bn_variance",
    )


def six_convolutions() -> tuple[Any, Any, Any]:
    """conv1 -> conv2 -> sum1 -> conv3 -> conv4 -> sum2 -> conv5 -> conv6, with both sums over what goes around."""
    paddle.seed(1)
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.utils.unique_name.guard(), paddle.static.program_guard(main, startup):
        image = paddle.static.data("image", [None, 3, 16, 16])
        conv1 = conv_bn(image, 8, 3, "conv1")
        sum1 = conv1 + conv_bn(conv1, 8, 3, "conv2")
        conv4 = conv_bn(conv_bn(sum1, 8, 3, "conv3"), 8, 3, "conv4")
        sum2 = conv4 + sum1
        conv_bn(conv_bn(sum2, 8, 3, "conv5"), 8, 3, "conv6")
    exe, scope = paddle.static.Executor(paddle.CPUPlace()), paddle.static.Scope()
    exe.run(startup, scope=scope)
    return main, scope, exe


def values(program: Any, scope: Any) -> dict[str, np.ndarray]:
    return {p.name: np.array(scope.find_var(p.name).get_tensor()) for p in program.all_parameters()}


@old_programs
def test_conv1_to_conv6() -> None:
    found = []
    for library in libraries():
        main, scope, _ = six_convolutions()
        whole = values(main, scope)
        pruned, _, _ = library.Pruner().prune(
            main,
            scope,
            params=["conv4_weights"],
            ratios=[0.5],
            place=paddle.CPUPlace(),
            lazy=False,
            only_graph=False,
            param_backup=None,
            param_shape_backup=None,
        )
        shapes = {p.name: tuple(p.shape) for p in pruned.all_parameters() if p.name.endswith("_weights")}
        assert shapes == {
            "conv1_weights": (4, 3, 3, 3),
            "conv2_weights": (4, 4, 3, 3),
            "conv3_weights": (8, 4, 3, 3),
            "conv4_weights": (4, 8, 3, 3),
            "conv5_weights": (8, 4, 3, 3),
            "conv6_weights": (8, 8, 3, 3),
        }, library.__name__
        found.append((whole, values(pruned, scope)))
    for whole, left in found[1:]:  # PaddleSlim keeps the same filters
        assert all(np.array_equal(whole[name], found[0][0][name]) for name in whole)
        assert all(np.array_equal(left[name], found[0][1][name]) for name in left)


@old_programs
@pytest.mark.parametrize("params", [["conv1_weights"], ["conv2_weights", "conv5_weights"]])
def test_lazy_zeroes_and_backups(params: list[str]) -> None:
    for library in libraries():
        main, scope, _ = six_convolutions()
        whole = values(main, scope)
        ratios = [0.5] * len(params)
        pruned, backup, shapes = library.Pruner().prune(
            main,
            scope,
            params,
            ratios,
            paddle.CPUPlace(),
            lazy=True,
            param_backup=True,
            param_shape_backup=True,
        )
        now = values(pruned, scope)
        assert now["conv1_weights"].shape == (8, 3, 3, 3)
        assert (now[params[0]] == 0).reshape(8, -1).all(axis=1).sum() == 4, library.__name__
        assert backup
        assert all(np.array_equal(whole[name], np.array(value)) for name, value in backup.items()), shapes


@old_programs
@pytest.mark.parametrize("side", [1, 2])
def test_the_convolution_before_a_fully_connected_layer(side: int) -> None:
    """Its operation, mul, takes a picture for a vector."""
    found = []
    for library in libraries():
        paddle.seed(1)
        main, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.utils.unique_name.guard(), paddle.static.program_guard(main, startup):
            x = conv_bn(conv_bn(paddle.static.data("image", [None, 3, 8, 8]), 8, 3, "conv1"), 8, 3, "conv2")
            x = paddle.nn.functional.adaptive_avg_pool2d(paddle.nn.functional.relu(x), side)
            out = paddle.static.nn.fc(x, 5, weight_attr=paddle.ParamAttr(name="fc_weights"))
        test = main.clone(for_test=True)
        exe, scope = paddle.static.Executor(paddle.CPUPlace()), paddle.static.Scope()
        exe.run(startup, scope=scope)
        feed = {"image": np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype("float32")}
        arguments = (test, scope, ["conv2_weights"], [0.5], paddle.CPUPlace())
        zeroed, before, _ = library.Pruner().prune(*arguments, lazy=True, param_backup=True)
        expected = exe.run(zeroed, feed=feed, fetch_list=[out.name], scope=scope)[0]
        for name, value in before.items():
            scope.find_var(name).get_tensor().set(value, paddle.CPUPlace())
        pruned, _, _ = library.Pruner().prune(*arguments)
        shapes = {p.name: tuple(p.shape) for p in pruned.all_parameters() if p.name.endswith("_weights")}
        assert shapes["conv2_weights"] == (4, 8, 3, 3)
        assert shapes["fc_weights"] == (4 * side * side, 5)
        found.append((expected, exe.run(pruned, feed=feed, fetch_list=[out.name], scope=scope)[0]))
    np.testing.assert_allclose(found[0][1], found[0][0], rtol=1e-4, atol=1e-6)
    for _, theirs in found[1:]:
        np.testing.assert_allclose(found[0][1], theirs, rtol=1e-4, atol=1e-6)


class Size(Evaluator):
    """A score that every channel has a part in."""

    def batches(self) -> list[Any]:
        return [np.random.default_rng(n).normal(size=(8, 3, 192, 192)).astype("float32") for n in range(2)]

    def arguments(self, batch: Any) -> tuple[Any]:
        return (paddle.to_tensor(batch),)

    def measure(self, outputs: Any, batch: Any) -> float:
        return float(np.abs(outputs.numpy()).mean())

    def score(self, measurements: Any) -> float:
        return float(np.mean(list(measurements)))


@old_programs
def test_openvino_runs_copies_that_are_traced_as_programs_of_paddle_2(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pytest.importorskip("openvino")
    paddle.disable_static()
    paddle.seed(0)
    model = paddle.nn.Sequential(paddle.nn.Conv2D(3, 8, 3), paddle.nn.ReLU(), paddle.nn.Conv2D(8, 4, 3))
    ds = DygraphSensitivity(model, [1, 3, 192, 192])
    caplog.set_level("INFO", "dysens")
    live, served = (ds.sensitive(Size(), [0.5], progress=False, fast=fast) for fast in ("off", "openvino"))
    assert "Compiled copies of the model run with OpenVINO" in caplog.text
    assert next(iter(served.values())) == pytest.approx(next(iter(live.values())), abs=1e-4)


WIDTHS = [(8, 1), (16, 2), (16, 1), (32, 2), (32, 1), (64, 1)]  # filters and stride of the separable blocks


class Tutorial:
    """MobileNetV1, narrow and for small images, with train and test program as the tutorial has them."""

    def __init__(self) -> None:
        paddle.seed(7)
        train, test = load_digits()
        self.data = [
            (np.asarray(part.images, "float32"), np.asarray(part.labels, "int64")) for part in (train, test)
        ]
        self.train, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.utils.unique_name.guard(), paddle.static.program_guard(self.train, startup):
            image = paddle.static.data("image", [None, *self.data[0][0].shape[1:]])
            label = paddle.static.data("label", [None, 1], "int64")
            x = conv_bn(image, 8, 3, "conv1", act="relu")
            for number, (width, stride) in enumerate(WIDTHS, 2):
                x = conv_bn(x, x.shape[1], 3, f"conv{number}_dw", stride, x.shape[1], "relu")
                x = conv_bn(x, width, 1, f"conv{number}_sep", act="relu")
            x = paddle.nn.functional.adaptive_avg_pool2d(x, 1)
            out = paddle.static.nn.fc(x, 10, weight_attr=paddle.ParamAttr(name="fc7_weights"))
            loss = paddle.nn.functional.cross_entropy(out, label).mean()
            accuracy = paddle.metric.accuracy(paddle.nn.functional.softmax(out), label)
            self.fetch = [accuracy.name, loss.name]
            self.val = self.train.clone(for_test=True)
            paddle.optimizer.Momentum(0.1, 0.9).minimize(loss)
        self.place = paddle.CPUPlace()
        self.exe = paddle.static.Executor(self.place)
        self.exe.run(startup)
        self.params = [p.name for p in self.train.all_parameters() if "_sep_weights" in p.name][:4]

    def fit(self, program: Any, steps: int) -> float:
        images, labels = self.data[0]
        rng = np.random.default_rng(0)
        for _ in range(steps):
            rows = rng.integers(0, len(images), 64)
            feed = {"image": images[rows], "label": labels[rows].reshape(-1, 1)}
            found = self.exe.run(program, feed=feed, fetch_list=self.fetch)
        return float(np.ravel(found[1])[0])

    def score(self, program: Any) -> float:
        images, labels = (part[:128] for part in self.data[1])
        feed = {"image": images, "label": labels.reshape(-1, 1)}
        return float(np.ravel(self.exe.run(program, feed=feed, fetch_list=self.fetch)[0])[0])

    def run(self, library: Any, folder: Path) -> dict[str, Any]:
        """The tutorial, step by step."""
        self.fit(self.train, 60)
        files = [str(folder / f"sensitivities_{number}.data") for number in range(3)]
        args = (self.val, self.place, self.params, self.score)
        library.sensitivity(*args, sensitivities_file=files[0], pruned_ratios=[0.25, 0.5])
        library.sensitivity(*args, sensitivities_file=files[0], pruned_ratios=[0.75])  # extended
        library.sensitivity(*args, sensitivities_file=files[1], pruned_ratios=[0.4])  # another process's part
        merged = library.merge_sensitive([library.load_sensitivities(file) for file in files[:2]])
        ratios = library.get_ratios_by_loss(merged, 0.3)
        names, shares = list(ratios), list(ratios.values())
        pruner = library.Pruner()
        scope = paddle.static.global_scope()
        # The order of the tutorial: first the program for testing, without touching values, then that for training.
        val, _, _ = pruner.prune(
            self.val, scope, params=names, ratios=shares, place=self.place, only_graph=True
        )
        train, _, _ = pruner.prune(self.train, scope, params=names, ratios=shares, place=self.place)
        cut = self.score(val)
        loss = self.fit(train, 40)
        widths = {p.name: tuple(p.shape) for p in train.all_parameters()}
        return {
            "losses": merged,
            "ratios": ratios,
            "cut": cut,
            "trained": self.score(val),
            "loss": loss,
            "widths": widths,
        }


@old_programs
def test_the_mobilenet_tutorial(tmp_path: Path) -> None:
    found = []
    for library in libraries():
        folder = tmp_path / library.__name__
        folder.mkdir()
        with paddle.static.scope_guard(paddle.static.Scope()):
            found.append(Tutorial().run(library, folder))
    ours = found[0]
    assert ours["trained"] > 0.5
    assert np.isfinite(ours["loss"])
    assert any(ratio > 0 for ratio in ours["ratios"].values())
    for theirs in found[1:]:
        assert ours["losses"].keys() == theirs["losses"].keys()
        for name, curve in theirs["losses"].items():
            assert ours["losses"][name] == pytest.approx(curve, abs=1e-3)
        assert ours["ratios"] == pytest.approx(theirs["ratios"], abs=1e-2)
        if ours["ratios"] == theirs["ratios"]:
            assert ours["widths"] == theirs["widths"]
            assert ours["cut"] == pytest.approx(theirs["cut"], abs=1e-6)
