"""`sensitivity` and `analysis_prune`: the same numbers from a live layer and from a real Executor, in PaddleSlim's files."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from static_nets import CLASSES, PARAMS, PIR, Net, Static, same

from dysens.compat import (
    Pruner,
    analysis_prune,
    get_ratios_by_loss,
    load_sensitivities,
    merge_sensitive,
    sensitivity,
)
from dysens.errors import DysensError, InputError


@pytest.fixture(autouse=True)
def static() -> Iterator[None]:
    paddle.enable_static()
    yield
    paddle.disable_static()


@pytest.fixture(scope="module")
def net() -> Static:
    """One for all: a sweep leaves it as it is."""
    paddle.enable_static()
    return Static()


@pytest.fixture(autouse=True)
def left_as_found(net: Static) -> Iterator[None]:
    before, shapes = net.values(), net.shapes(net.test)
    yield
    assert same(net.values(), before)
    assert net.shapes(net.test) == shapes


class Scores:
    """A user's eval_func: how near to the right answer, in two batches of different sizes."""

    def __init__(self, net: Static, look: Callable[[Any], object] = lambda program: None) -> None:
        self.net, self.look, self.programs, self.__name__ = net, look, [], "test"

    def __call__(self, program: Any, *others: Any) -> Any:
        self.programs.append(program)
        self.look(program)
        right = []
        for rows in (slice(0, 32), slice(32, 48)):
            feed = {"image": self.net.x[rows], "label": self.net.y[rows]}
            _, loss, logits = self.net.exe.run(program, feed=feed, fetch_list=self.net.test_fetch)
            chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            right.append(np.take_along_axis(chances, feed["label"], 1).mean() / (1 + loss))
        return np.mean(right)


def swept(
    net: Static,
    scores: Callable[..., Any],
    params: list[str],
    ratios: Any,
    file: Path | None = None,
    **others: Any,
):
    with paddle.static.scope_guard(net.scope):
        return sensitivity(net.test, net.place, params, scores, file, ratios, **others)


def test_the_tutorial(net: Static, tmp_path: Path) -> None:
    file, scores = tmp_path / "sensitivities_0.data", Scores(net)
    first = swept(net, scores, PARAMS[1:4], [0.25, 0.5], file)
    assert type(scores.programs[-1]) is not type(net.test)  # a layer answered
    assert list(first) == PARAMS[1:4]
    assert all(list(curve) == [0.25, 0.5] for curve in first.values())
    extended = swept(net, scores, PARAMS[1:4], [0.75], file)
    assert {name: {r: curve[r] for r in (0.25, 0.5)} for name, curve in extended.items()} == first
    assert load_sensitivities(file) == extended
    assert pickle.loads(file.read_bytes()) == extended  # what PaddleSlim does
    other = swept(net, Scores(net), PARAMS[1:4], [0.9], tmp_path / "sensitivities_1.data")
    merged = merge_sensitive([str(file), str(tmp_path / "sensitivities_1.data")])
    assert merged == {name: {**extended[name], **other[name]} for name in extended}
    ratios = get_ratios_by_loss(merged, 0.05)
    assert set(ratios) == set(PARAMS[1:4])
    evaluated = len(scores.programs)
    assert swept(net, scores, PARAMS[1:4], [0.25, 0.5, 0.75], file) == extended
    assert len(scores.programs) == evaluated  # nothing was left to measure


def test_a_callback_that_looks_at_the_program_gets_a_real_one(net: Static) -> None:
    served = swept(net, Scores(net), ["conv3_weights", "conv5_weights"], [0.5])
    for look in (lambda program: program.global_block(), lambda program: isinstance(program, int)):
        scores = Scores(net, look)
        found = swept(net, scores, ["conv3_weights", "conv5_weights"], [0.5])
        assert type(scores.programs[-1]) is type(net.test)
        for name, curve in served.items():
            assert found[name][0.5] == pytest.approx(curve[0.5], abs=1e-5)


def test_a_callback_that_looks_later_gets_a_real_one_from_then_on(net: Static, tmp_path: Path) -> None:
    served = swept(net, Scores(net), PARAMS[1:4], [0.5])
    scores = Scores(net)
    scores.look = lambda program: program.global_block() if len(scores.programs) == 4 else None
    found = swept(net, scores, PARAMS[1:4], [0.5], tmp_path / "sens.data")
    assert type(scores.programs[-1]) is type(net.test)
    for name, curve in served.items():
        assert found[name][0.5] == pytest.approx(curve[0.5], abs=1e-5)


@pytest.mark.skipif(PIR, reason="a program of Paddle 3's kind is pruned in place")
def test_losses_are_those_of_the_pruned_program(net: Static) -> None:
    """By PaddleSlim's recipe: prune, score, bring back."""
    found = swept(net, Scores(net), PARAMS, [0.5], eval_args=["unused"])
    scores = Scores(net)
    with paddle.static.scope_guard(net.scope):
        baseline = scores(net.test)
        for name in PARAMS:
            pruned, values, _ = Pruner().prune(
                net.test, net.scope, [name], [0.5], net.place, param_backup=True
            )
            loss = (baseline - scores(pruned)) / baseline
            for each, array in (values or {}).items():
                net.scope.find_var(each).get_tensor().set(array, net.place)
            assert found[name][0.5] == pytest.approx(loss, abs=1e-5)


def paddleslim() -> Any:
    if PIR or paddle.__version__ >= "3":
        pytest.skip("PaddleSlim runs on Paddle 2.6")
    return pytest.importorskip("paddleslim")


def test_the_numbers_are_paddleslims(net: Static, tmp_path: Path) -> None:
    slim = paddleslim()
    params, ratios = PARAMS[:4], [0.25, 0.5]
    ours = swept(net, Scores(net), params, ratios, tmp_path / "sens.data")
    with paddle.static.scope_guard(net.scope):
        # It goes on with our file, and agrees with it.
        theirs = slim.prune.sensitivity(
            net.test, net.place, params, Scores(net), str(tmp_path / "slim.data"), ratios
        )
        assert slim.prune.load_sensitivities(str(tmp_path / "sens.data")) == ours
    for name in params:
        for ratio in ratios:
            assert ours[name][ratio] == pytest.approx(theirs[name][ratio], abs=1e-4)


def test_bad_callbacks(net: Static) -> None:
    def raising(program: Any) -> float:
        raise RuntimeError("no data")

    def training(program: Any) -> float:
        net.exe.run(net.train, feed=net.feed, fetch_list=net.fetch[:1])
        return 1.0

    def later(program: Any, calls: list[int] = []) -> float:  # noqa: B006
        calls.append(0)
        if len(calls) > 2:
            raise ValueError("broken off")
        return float(Scores(net)(program))

    for scores, what in (
        (raising, "raising raised RuntimeError: no data"),
        (training, "training changed .* in the scope"),
        (later, "later raised ValueError: broken off"),
        (lambda program: None, "returned None"),
        (lambda program: 0.0, "scores 0"),
        (lambda program: [1.0, 2.0], "2 values"),
        (0.5, "has to be a function"),
    ):
        with pytest.raises(InputError, match=what):
            swept(net, scores, ["conv3_weights"], [0.5])
        assert not paddle.in_dynamic_mode()


def test_bad_arguments(net: Static, caplog: pytest.LogCaptureFixture) -> None:
    scores = Scores(net)
    for params, ratios, others, what in (
        (["conv9_weights"], [0.5], {}, '"conv9_weights" names no parameter'),
        (["conv3_weights"], [1.5], {}, "under 1"),
        (["conv3_weights"], [], {}, "empty"),
        (["conv3_weights"], [0.5], {"criterion": "l3"}, "l3"),
    ):
        with pytest.raises(InputError, match=what):
            swept(net, scores, params, ratios, **others)
    assert not scores.programs
    with pytest.raises(InputError, match="None of the 1 parameters"):
        swept(net, scores, ["fc_weights"], [0.5])
    assert list(swept(net, scores, ["fc_weights", "conv3_weights"], [0.5])) == ["conv3_weights"]
    assert '"fc_weights" is not measured' in caplog.text


def bad_files(tmp_path: Path) -> dict[str, bytes]:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    whole = pickle.dumps({"conv3_weights": {0.5: 0.1}}, protocol=2)
    return {
        "empty": b"",
        "garbage": b"nothing",
        "truncated": whole[:-9],
        "foreign": pickle.dumps([1]),
        "evil": pickle.dumps(Evil()),
    }


def test_bad_files(net: Static, tmp_path: Path) -> None:
    scores = Scores(net)
    for name, data in bad_files(tmp_path).items():
        file = tmp_path / name
        file.write_bytes(data)
        with pytest.raises(DysensError):
            swept(net, scores, ["conv3_weights"], [0.5], file)
        assert file.read_bytes() == data
    assert not scores.programs
    assert not (tmp_path / "ran").exists()


# An exported model


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    paddle.disable_static()
    paddle.seed(3)
    model = Net(flat=True)  # PaddleSlim does not prune before a reshape
    model.train()
    model(paddle.randn([16, 1, 12, 12]))
    model.eval()
    spec = [paddle.static.InputSpec([None, 1, 12, 12], "float32", "image")]
    paddle.jit.save(paddle.jit.to_static(model, input_spec=spec), str(folder / "inference"))
    paddle.enable_static()
    return folder


IMAGES = np.random.default_rng(5).normal(size=(24, 1, 12, 12)).astype("float32")


class Agreement:
    """A user's eval_function, in the form of PaddleSlim's example."""

    def __init__(self, look: bool = False) -> None:
        self.look, self.calls, self.wanted, self.__name__ = look, 0, np.empty(0), "eval_function"

    def __call__(self, program: Any, exe: Any, feed_names: Any, fetch_list: Any) -> float:
        self.calls += 1
        if self.look:
            program.global_block()
        out = exe.run(program, feed={feed_names[0]: IMAGES}, fetch_list=fetch_list)[0]
        assert out.shape == (24, CLASSES)
        if not self.wanted.size:
            self.wanted = out
        return 1 / (1 + float(np.abs(out - self.wanted).mean()))


def analysed(
    folder: Path,
    file: Path,
    evaluate: Callable[..., Any],
    ratios: Any = (0.25, 0.5),
    loss: float | None = 0.05,
    **more: Any,
):
    program = next(path.name for path in folder.iterdir() if path.suffix in (".json", ".pdmodel"))
    return analysis_prune(
        evaluate, str(folder), program, "inference.pdiparams", str(file), list(ratios), loss, **more
    )


def test_an_exported_model(exported: Path, tmp_path: Path) -> None:
    global_names = set(dir(paddle.static.global_scope()))
    served, looking = Agreement(), Agreement(look=True)
    ratios = analysed(exported, tmp_path / "a.data", served)
    assert set(ratios) == set(PARAMS)
    again = analysed(exported, tmp_path / "b.data", looking, input_shape=[1, 1, 12, 12])
    ours, theirs = load_sensitivities(tmp_path / "a.data"), load_sensitivities(tmp_path / "b.data")
    for name in PARAMS:
        assert again[name] == pytest.approx(ratios[name], abs=1e-3)
        for ratio in (0.25, 0.5):
            assert ours[name][ratio] == pytest.approx(theirs[name][ratio], abs=1e-4)
    calls = served.calls
    assert analysed(exported, tmp_path / "a.data", served) == ratios
    assert analysed(exported, tmp_path / "a.data", served, loss=None) == {}
    assert served.calls == calls
    analysed(exported, tmp_path / "a.data", Agreement(), ratios=[0.75])
    assert list(load_sensitivities(tmp_path / "a.data")["conv3_weights"]) == [0.25, 0.5, 0.75]
    assert set(dir(paddle.static.global_scope())) == global_names
    assert paddle.static.global_scope().find_var("conv1_weights") is None


def test_an_exported_models_numbers_are_paddleslims(exported: Path, tmp_path: Path) -> None:
    paddleslim()
    from paddleslim.auto_compression.analysis import analysis_prune as slims

    ratios = analysed(exported, tmp_path / "a.data", Agreement())
    arguments = (
        str(exported),
        "inference.pdmodel",
        "inference.pdiparams",
        str(tmp_path / "b.data"),
        [0.25, 0.5],
        0.05,
    )
    with paddle.static.scope_guard(paddle.static.Scope()):
        theirs = slims(Agreement(), *arguments)
    assert set(ratios) == set(theirs)
    slim = load_sensitivities(tmp_path / "b.data")
    for name, curve in load_sensitivities(tmp_path / "a.data").items():
        for ratio, loss in curve.items():
            assert loss == pytest.approx(slim[name][ratio], abs=1e-3), name


def test_what_can_be_refused_before_anything_is_measured(exported: Path, tmp_path: Path) -> None:
    for what, arguments in {
        "not NaN": {"loss": float("nan")},
        "must be a number": {"loss": "0.1"},
        "input_shape is '1,1,12,12'; it has to be a shape": {"input_shape": "1,1,12,12"},
        r"input_shape is \[\[1, 12\], 5\]; it has to be a shape": {"input_shape": [[1, 12], 5]},
        "has 2 shapes, and the program takes 1": {"input_shape": [[1, 1, 12, 12]] * 2},
    }.items():
        evaluate = Agreement()
        with pytest.raises(InputError, match=what):
            analysed(exported, tmp_path / "sens.data", evaluate, **arguments)
        assert not evaluate.calls
    assert not list(tmp_path.iterdir())


def test_broken_exports(exported: Path, tmp_path: Path) -> None:
    program = next(path.name for path in exported.iterdir() if path.suffix in (".json", ".pdmodel"))
    weights = (exported / "inference.pdiparams").read_bytes()
    evaluate = Agreement()
    for name, files in {
        "missing": {},
        "no weights": {program: (exported / program).read_bytes()},
        "empty": {program: b"", "inference.pdiparams": weights},
        "foreign": {program: b"no program", "inference.pdiparams": weights},
        "truncated": {program: (exported / program).read_bytes(), "inference.pdiparams": weights[:400]},
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        for file, data in files.items():
            (folder / file).write_bytes(data)
        with pytest.raises(DysensError) as caught:
            analysis_prune(
                evaluate, str(folder), program, "inference.pdiparams", str(tmp_path / "sens.data"), [0.5], 0.1
            )
        assert str(caught.value).endswith("."), name
    assert not evaluate.calls
    assert not (tmp_path / "sens.data").exists()
    assert not paddle.in_dynamic_mode()


def test_an_export_is_left_alone_by_a_callback_that_fails(exported: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in exported.iterdir()}
    for result in (None, RuntimeError("boom")):

        def evaluate(*arguments: Any, result: Any = result) -> Any:
            if result is not None:
                raise result

        with pytest.raises(InputError, match=r"returned None|boom"):
            analysed(exported, tmp_path / "sens.data", evaluate)
    assert {path.name: path.read_bytes() for path in exported.iterdir()} == before
    assert not (tmp_path / "sens.data").exists()
