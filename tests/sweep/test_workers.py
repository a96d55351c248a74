"""Several processes share a sweep; some of them die, fail, or lose their parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import zlib  # noqa: F401  before Paddle 2.6, which brings its own
from functools import partial
from pathlib import Path

import numpy as np
import paddle
import psutil
import pytest

import __main__
import dysens
from dysens.errors import InputError, WorkerError
from dysens.model import fingerprint
from dysens.results import Header, Owner
from dysens.sweep import RunOptions
from dysens.sweep._worker import Job, work
from dysens.sweep._workers import checked_build, environments

from . import sweeping
from .sweeping import GROUPS, RATIOS, SHAPE, evaluations, made, results

TESTS = Path(__file__).parents[1]
ALL = GROUPS * len(RATIOS)
FEW = [0.25, 0.5]

posix = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is a POSIX thing")


@pytest.fixture(scope="module")
def ours():
    """The model of this process, its scores, and the sweep that it makes on its own."""
    model, evaluate = made()
    ds = dysens.DygraphSensitivity(model, SHAPE)
    return ds, evaluate, ds.sensitive(evaluate, RATIOS, progress=False, fast="off")


def claimants(journal: Path) -> set[int]:
    if not journal.exists():
        return set()
    records = map(json.loads, journal.read_text().split("\n")[:-1])
    return {record["pid"] for record in records if record["kind"] == "claim"}


def child_processes() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if child.is_running()]


@posix
def test_three_workers_and_one_is_killed(ours, tmp_path, gate, caplog):
    ds, evaluate, alone = ours
    journal, counts = tmp_path / "sens.jsonl", tmp_path / "counts.txt"
    before = set(child_processes())
    killed = []

    def kill_one() -> None:
        killed.append(gate.arrived(3)[0])  # each of the three has a point of its own now
        os.kill(killed[0], signal.SIGKILL)
        gate.open()

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    build = partial(made, counts, gate=gate.folder)
    shared = ds.sensitive(
        evaluate, RATIOS, sen_file=journal, progress=False, fast="off", workers=3, build=build
    )
    killer.join()
    assert results(shared) == results(alone)
    assert results(dysens.Sensitivities.load(journal)) == results(alone)
    computed = evaluations(counts, sweeping.network())
    assert len(computed) == ALL
    assert sum(computed.values()) == ALL + 1  # what the dead one was about to measure
    assert len(claimants(journal)) == 3
    assert killed[0] not in {os.getpid(), *(child.pid for child in child_processes())}
    assert "was killed by signal 9; the others take over" in caplog.text
    assert set(child_processes()) <= before


def test_without_a_file_and_by_name(ours, monkeypatch):
    ds, evaluate, alone = ours
    monkeypatch.syspath_prepend(str(TESTS))
    shared = ds.sensitive(evaluate, FEW, progress=False, workers=2, build="sweep.sweeping:made")
    expected = [point for point in results(alone) if point[1] in FEW]
    assert [point[:2] for point in results(shared)] == [point[:2] for point in expected]
    # The workers compile copies of their models, which round in other places.
    np.testing.assert_allclose([p[2:] for p in results(shared)], [p[2:] for p in expected], rtol=1e-4)


class ByTheReaders(dysens.GroupCriterion):
    """Scores by the weights that read a unit. Holds what no pickle can."""

    def __init__(self):
        self._power = lambda weight: np.square(weight).sum(axis=1)

    def score(self, group, tensors):
        (port,) = (port for port in group.units if port.side == "in")
        (piece,) = port.slices
        weight = np.moveaxis(tensors[piece.tensor].numpy(), piece.axis, 0)
        return self._power(weight.reshape(group.size, -1))


def variance_of(model):
    x = np.random.default_rng(3).standard_normal(SHAPE).astype("float32")
    return dysens.Variance(model, [(paddle.to_tensor(x),)])


@pytest.mark.parametrize(
    "criterion", [lambda model: ByTheReaders(), variance_of], ids=["scores", "compensates"]
)
def test_workers_remove_what_any_criterion_chooses(criterion):
    model, evaluate = made()
    ds = dysens.DygraphSensitivity(model, SHAPE, criterion=criterion(model))
    alone = ds.sensitive(evaluate, FEW, progress=False, fast="off")
    by_filters = dysens.DygraphSensitivity(model, SHAPE).sensitive(evaluate, FEW, progress=False, fast="off")
    shared = ds.sensitive(
        evaluate, FEW, progress=False, options=dysens.RunOptions(workers=2, build=made, fast="off")
    )
    assert results(shared) == results(alone) != results(by_filters)


def test_a_criterion_that_compensates_has_to_be_picklable_for_workers():
    class Local(ByTheReaders):
        def compensate(self, layers):
            return dict(layers)

    model, evaluate = made()
    ds = dysens.DygraphSensitivity(model, SHAPE, criterion=Local())
    before = set(child_processes())
    with pytest.raises(
        InputError, match=r"criterion Local does, and it cannot be handed .* in one process\."
    ):
        ds.sensitive(evaluate, FEW, progress=False, workers=2, build=made)
    assert set(child_processes()) <= before


def test_a_complete_journal_starts_nobody(ours, tmp_path):
    ds, evaluate, _ = ours
    ds.sensitive(evaluate, FEW, sen_file=tmp_path / "sens.jsonl", progress=False)
    shared = ds.sensitive(
        evaluate, FEW, sen_file=tmp_path / "sens.jsonl", progress=False, workers=2, build="no.such:function"
    )
    assert len(shared.points) == GROUPS * len(FEW)


def test_an_exception_in_a_worker_reaches_the_parent_in_words(ours, tmp_path, caplog):
    ds, evaluate, _ = ours
    before = set(child_processes())
    with pytest.raises(WorkerError, match=r"worker \d failed: ValueError: the data set is gone"):
        ds.sensitive(
            evaluate,
            RATIOS,
            sen_file=tmp_path / "sens.jsonl",
            progress=False,
            workers=2,
            build=sweeping.failing,
        )
    assert "in fails_later" in caplog.text  # the worker's traceback
    assert set(child_processes()) <= before
    assert dysens.Sensitivities.load(tmp_path / "sens.jsonl").points


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (sweeping.other_weights, "What build makes is not what is being swept: the weights are not the same"),
        (sweeping.other_data, "the baseline was 1 and is 0.5 now"),
        (sweeping.only_a_model, "build has to return the model and its evaluator"),
        (sweeping.other_network, 'has no weight "convs.0.weight"'),
        ("sweep.sweeping:mad", 'has no function "mad"; did you mean "made"?'),
        ("no_such_module:made", "cannot be imported: No module named 'no_such_module'"),
    ],
)
def test_a_build_that_does_not_fit(ours, build, said, monkeypatch, tmp_path):
    """What a worker says of it; in this process, which has Paddle loaded already."""
    ds, evaluate, _ = ours
    model = sweeping.network()
    header = Header("Convs", fingerprint(model), "fpgm", "Closeness", evaluate())
    journal = tmp_path / "sens.jsonl"
    monkeypatch.syspath_prepend(str(TESTS))
    with pytest.raises(InputError) as error:
        work(Job(ds.groups, {}, FEW, header, journal, Owner.current(), RunOptions(build=build)))
    assert said in str(error.value)
    assert not journal.exists()


def test_what_cannot_be_handed_to_another_process(ours, monkeypatch):
    ds, evaluate, _ = ours
    with pytest.raises(InputError, match="Workers need models of their own: give build"):
        ds.sensitive(evaluate, FEW, workers=2)
    with pytest.raises(InputError, match="cannot be handed to another process"):
        ds.sensitive(evaluate, FEW, workers=2, build=lambda: made())
    with pytest.raises(InputError, match=r'has to be "package.module:function", not "made"'):
        checked_build("made")
    with pytest.raises(InputError, match="or a function without arguments, not 3"):
        checked_build(3)
    monkeypatch.setattr(__main__, "in_the_script", in_the_script, raising=False)
    with pytest.raises(InputError, match="defined in the script that is running"):
        checked_build(in_the_script)


def in_the_script():
    return made()


in_the_script.__module__ = "__main__"


def test_threads_are_divided(monkeypatch):
    if hasattr(os, "sched_getaffinity"):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    else:
        monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert [settings["OMP_NUM_THREADS"] for settings in environments(3)] == ["2", "2", "2"]
    assert [settings["OMP_NUM_THREADS"] for settings in environments(16)] == ["1"] * 16


SCRIPT = """
import signal
import sys
from functools import partial
from pathlib import Path
import dysens
from sweep.sweeping import RATIOS, SHAPE, made
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run where it is ignored
    journal, gate = map(Path, sys.argv[1:])
    model, evaluate = made()
    ds = dysens.DygraphSensitivity(model, SHAPE)
    try:
        ds.sensitive(evaluate, RATIOS, sen_file=journal, progress=False, workers=2, build=partial(made, gate=gate))
    except KeyboardInterrupt:
        print("interrupted")
"""


@posix
@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "killed"])
def test_no_worker_outlives_its_parent(tmp_path, gate, blow):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    parent = subprocess.Popen(
        [sys.executable, script, tmp_path / "sens.jsonl", gate.folder],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a terminal of its own, whose Ctrl-C goes to all of them
    )
    workers = [psutil.Process(pid) for pid in gate.arrived(2)]
    if blow == signal.SIGINT:
        os.killpg(parent.pid, blow)
    else:
        parent.kill()
    out, err = parent.communicate(timeout=60)
    if blow == signal.SIGINT:
        assert (parent.returncode, "interrupted" in out.splitlines()) == (0, True), err
    else:
        assert parent.returncode == -signal.SIGKILL
    psutil.wait_procs(workers, timeout=30)
    assert not [worker for worker in workers if worker.is_running()]
