import json
import math
import os
import pickle

import numpy as np
import pytest

from dysens.errors import JournalError, UnsafePickleError
from dysens.results import (
    Journal,
    Sensitivities,
    continue_slim_file,
    is_slim_file,
    read_slim_file,
    write_static,
    write_status,
)

from .common import PATHS, golden_sensitivities, header, point, run_python
from .python2_pickles import PYTHON2

CURVES = {"conv2d_0.w_0": {0.1: 0.01, 0.3: 0.25}, "conv2d_1.w_0": {0.1: -0.02}}


class Spy:
    """Unpickled by the wrong machine it would run a command."""

    def __init__(self, reduced):
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced


def write(path, data):
    path.write_bytes(data)
    return path


@pytest.fixture
def file(tmp_path):
    return tmp_path / "sen.pickle"


class TestReading:
    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_the_static_dict(self, file, protocol):
        noisy = {
            name: {np.float64(r): np.float64(v) for r, v in curve.items()} for name, curve in CURVES.items()
        }
        assert read_slim_file(write(file, pickle.dumps(noisy, protocol))) == CURVES

    @pytest.mark.parametrize("name", sorted(PYTHON2))
    def test_python_2(self, file, name):
        assert read_slim_file(write(file, PYTHON2[name])) == {"conv2d_0.w_0": {0.1: 0.25}}
        assert Sensitivities.load(file).to_dict() == {"conv2d_0.w_0": {0.1: 0.25}}

    def test_arrays_of_one_element_and_losses_that_are_no_numbers(self, file):
        data = pickle.dumps({"a": {0.1: np.array([0.5], "float32"), 0.2: math.nan, 0.3: -math.inf}})
        write(file, data)
        assert read_slim_file(file)["a"][0.1] == 0.5
        assert Sensitivities.load(file).to_dict() == {"a": {0.1: 0.5, 0.2: math.inf, 0.3: math.inf}}

    def test_a_loaded_file_knows_no_baseline(self, file):
        write_static(file, CURVES)
        assert Sensitivities.load(file).baseline is None

    def test_float_noise_of_numpy_arange(self, file):
        write(file, pickle.dumps({"a": dict.fromkeys(np.arange(0.1, 1, step=0.1), 0.1)}))
        assert list(Sensitivities.load(file)["a"]) == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]

    @pytest.mark.parametrize(
        "content",
        [
            7,
            {"a": 1},
            {"a": {0.1: "x"}},
            {"a": {"x": 0.1}},
            {"a": {1.5: 0.1}},
            {"a": {math.nan: 0.1}},
            {1: {0.1: 0.1}},
            {"": {0.1: 0.1}},
            {b"\xff": {0.1: 0.1}},
            {"\ud800": {0.1: 0.1}},
            {"a": {0.1: np.array([1.0, 2.0])}},
            {"a": {0.1: 10**400}},
            {"a": {0.1: True}},
        ],
    )
    def test_other_contents_are_refused_in_words(self, file, content):
        with pytest.raises(
            JournalError, match=r"sen\.pickle cannot be read as a PaddleSlim sensitivity file"
        ):
            read_slim_file(write(file, pickle.dumps(content)))

    def test_a_command_does_not_run(self, file, tmp_path):
        trap = tmp_path / "trap"
        write(file, pickle.dumps(Spy((os.system, (f"touch {trap}",)))))
        for read in (read_slim_file, Sensitivities.load, continue_slim_file):
            with pytest.raises(UnsafePickleError, match=r"sen\.pickle .*(posix|nt)\.system.*Nothing was run"):
                read(file)
        assert not trap.exists()

    def test_a_huge_file(self, file):
        with file.open("wb") as handle:
            handle.write(b"\x80\x04")
            handle.truncate(2**30)
        for read in (read_slim_file, Sensitivities.load):
            with pytest.raises(JournalError, match="larger than"):
                read(file)


class TestWriting:
    @pytest.mark.parametrize("write_file", [write_status, write_static])
    def test_there_and_back(self, file, write_file):
        write_file(file, CURVES)
        assert is_slim_file(file)
        assert Sensitivities.load(file).to_dict() == CURVES

    @pytest.mark.parametrize("write_file", [write_status, write_static])
    def test_sensitivities_can_be_given(self, file, write_file):
        write_file(file, Sensitivities([point(ratio=0.2), point(ratio=0.5, metric=math.nan)]))
        assert read_slim_file(file) == {"conv2d_0.w_0": {0.2: 0.1, 0.5: math.inf}}

    def test_many_groups(self, file):
        curves = {f"conv2d_{n}.w_0": {r / 100: r / 200 for r in range(1, 100)} for n in range(60)}
        write_status(file, curves)
        assert read_slim_file(file) == curves


def test_is_slim_file(tmp_path):
    assert not is_slim_file(tmp_path / "nowhere")
    assert not is_slim_file(tmp_path)
    path = tmp_path / "sens.jsonl"
    Journal.open(path, header())
    assert not is_slim_file(path)


def test_a_pickle_is_continued_in_a_journal_beside_it(file):
    write_status(file, CURVES)
    before = file.read_bytes()
    points, beside = continue_slim_file(file, PATHS)
    assert beside == file.with_name("sen.pickle.jsonl")
    journal = Journal.open(beside, header())
    for each in points:
        journal.append(each)
    assert not journal.claim("conv2d_0.w_0", 0.3)
    assert journal.claim("conv2d_0.w_0", 0.5)
    assert Sensitivities.load(beside).to_dict() == CURVES
    assert file.read_bytes() == before


SLIM_SCRIPT = """
import zlib, json, sys, numpy as np, paddle
from pathlib import Path
from paddleslim.dygraph import L1NormFilterPruner
from paddleslim.dygraph.prune.filter_pruner import Status
from paddleslim.prune import get_ratios_by_loss, load_sensitivities, merge_sensitive
from paddleslim.prune.sensitive import _save_sensitivities
folder = Path(sys.argv[1])
ratios = np.arange(0.1, 1, step=0.1)
result = {}

status = Status(folder / "our_status")
result["status"] = [status.sensitivies, status.accumulates, status.is_ckp]

static = load_sensitivities(str(folder / "our_static"))
result["static"] = [all(ratio in static["a"] for ratio in ratios), len(static["a"]), get_ratios_by_loss(static, 0.2)]

net = paddle.nn.Sequential(paddle.nn.Conv2D(3, 10, 3), paddle.nn.Conv2D(10, 4, 3))
calls, file = [], str(folder / "our_unfinished")
pruner = L1NormFilterPruner(net, [1, 3, 8, 8], sen_file=file)
swept = pruner.sensitive(eval_func=lambda: calls.append(1) or 0.5, sen_file=file, skip_vars=[])
result["sweep"] = [len(calls), sorted(swept["conv2d_0.w_0"].items())[-2:]]

curves = {"conv2d_0.w_0": {round(ratio, 2): np.float64(ratio / 2) for ratio in ratios}}
status = Status()
status.sensitivies = curves
status.save(folder / "their_status")
_save_sensitivities(curves, folder / "their_static")
print("RESULT", json.dumps(result))
"""


class TestPaddleSlimItself:
    """PaddleSlim 2.6.0 writes what we read and reads what we write. In a process of its own: it changes Paddle."""

    curves, _ = golden_sensitivities("tiny_resnet", "l1")

    @pytest.fixture(scope="class")
    def folder(self, tmp_path_factory):
        pytest.importorskip("paddleslim", reason="PaddleSlim 2.6.0 runs on the paddle26 stack only")
        return tmp_path_factory.mktemp("slim")

    @pytest.fixture(scope="class")
    def theirs(self, folder):
        write_status(folder / "our_status", self.curves)
        write_static(folder / "our_static", {"a": {n / 10: n / 20 for n in range(1, 10)}})
        write_status(folder / "our_unfinished", {"conv2d_0.w_0": {n / 10: 0.5 for n in range(1, 9)}})
        lines = run_python(SLIM_SCRIPT, folder).splitlines()
        return json.loads(next(line for line in lines if line.startswith("RESULT"))[len("RESULT") :])

    def test_it_loads_our_status(self, theirs):
        texts = {
            name: {str(ratio): loss for ratio, loss in curve.items()} for name, curve in self.curves.items()
        }
        assert theirs["status"] == [texts, {}, True]

    def test_it_loads_our_static_file_and_knows_its_ratios(self, theirs):
        assert theirs["static"] == [True, 9, {"a": 0.4}]

    def test_its_sweep_computes_only_what_our_status_lacks(self, theirs, folder):
        assert theirs["sweep"] == [2, [[0.8, 0.5], [0.9, 0.0]]]  # the baseline and the one missing point
        assert read_slim_file(folder / "our_unfinished")["conv2d_0.w_0"][0.9] == 0.0

    @pytest.mark.parametrize("name", ["their_status", "their_static"])
    def test_we_load_what_it_saves(self, theirs, folder, name):
        expected = {n / 10: pytest.approx(n / 20) for n in range(1, 10)}
        assert Sensitivities.load(folder / name).to_dict() == {"conv2d_0.w_0": expected}
