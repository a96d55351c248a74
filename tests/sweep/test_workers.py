"""Several processes share a sweep; some of them die, fail, or lose their parent."""

from __future__ import annotations

import json
import logging
import os
import platform
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

import dysens
from dysens.errors import InputError, WorkerError
from dysens.model import fingerprint
from dysens.results import Header
from dysens.sweep import RunOptions
from dysens.sweep._measurer import Job, RemoteMeasurer, weights_of

from . import digits, sweeping
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


def child_processes() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if child.is_running()]


@posix
def test_workers_of_which_one_is_killed(ours, tmp_path, gate, caplog, executor):
    """Its point goes elsewhere, another takes its place, and the journal is that of one process."""
    ds, evaluate, alone = ours
    journal, counts = tmp_path / "sens.jsonl", tmp_path / "counts.txt"
    killed = []

    def kill_one() -> None:
        killed.append(gate.arrived(2)[0])  # both have a point of their own now
        os.kill(killed[0], signal.SIGKILL)
        gate.open()

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    build = partial(made, counts, gate=gate.folder)
    shared = ds.sensitive(
        evaluate,
        RATIOS,
        sen_file=journal,
        progress=False,
        fast="off",
        workers=2,
        build=build,
        executor=executor,
    )
    killer.join()
    assert results(shared) == results(alone)
    assert results(dysens.Sensitivities.load(journal)) == results(alone)
    computed = evaluations(counts, sweeping.network())
    assert len(computed) == ALL
    assert sum(computed.values()) == ALL + 1  # what the dead one was about to measure
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    assert {record["pid"] for record in records if record["kind"] == "claim"} == {os.getpid()}
    assert sum(record["kind"] == "point" for record in records) == ALL
    assert "is lost" in caplog.text
    assert "The others take over, and a new one is started." in caplog.text


@posix
def test_one_with_other_data_is_refused_and_the_others_go_on(ours, tmp_path, gate, caplog, executor):
    ds, evaluate, alone = ours

    class OpensTheGate(logging.Handler):
        def emit(self, record):
            if "is refused" in record.getMessage():
                gate.open()  # now the one that is right may be built

    handler = OpensTheGate()
    logging.getLogger("dysens").addHandler(handler)
    try:
        shared = ds.sensitive(
            evaluate,
            FEW,
            progress=False,
            fast="off",
            workers=2,
            build=partial(sweeping.halved_once, tmp_path / "marker", gate.folder),
            executor=executor,
        )
    finally:
        logging.getLogger("dysens").removeHandler(handler)
    assert results(shared) == [point for point in results(alone) if point[1] in FEW]
    assert f"{platform.node()} (process" in caplog.text
    assert (
        "is refused: what build makes there is not what is being measured: the baseline was 1" in caplog.text
    )


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
        def __init__(self):
            super().__init__()
            self._lock = threading.Lock()

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
    with pytest.raises(WorkerError, match=r"worker \d on .* failed: ValueError: the data set is gone"):
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
        (sweeping.other_weights, "the baseline was 1 and is"),  # it compares with what it was built with
        (sweeping.other_data, "the baseline was 1 and is 0.5 now"),
        (sweeping.only_a_model, "build has to return the model and its evaluator"),
        (sweeping.other_network, 'differs from the one that is measured at "'),
        ("sweep.sweeping:mad", 'has no function "mad"; did you mean "made"?'),
        ("no_such_module:made", "cannot be imported: No module named 'no_such_module'"),
    ],
)
def test_a_build_that_does_not_fit(ours, build, said, monkeypatch):
    """What a worker says of it; in this process, which has Paddle loaded already."""
    ds, evaluate, _ = ours
    model = sweeping.network()
    header = Header("Convs", fingerprint(model), "fpgm", "Closeness", evaluate())
    monkeypatch.syspath_prepend(str(TESTS))
    job = Job(build, weights_of(model), ds.groups, header, RunOptions(fast="off"))
    try:
        found = "; ".join(RemoteMeasurer(job).greet().differences(header))
    except InputError as error:
        found = str(error)
    assert said in found


def test_another_version_is_told(ours):
    ds, evaluate, _ = ours
    model = sweeping.network()
    header = Header("Convs", fingerprint(model), "fpgm", "Closeness", evaluate())
    job = Job(made, weights_of(model), ds.groups, header, RunOptions(fast="off"))
    greeting = RemoteMeasurer(job).greet()
    assert greeting.differences(header) == []
    older = greeting._replace(versions={**greeting.versions, "Paddle": "2.4.0"})
    assert older.differences(header) == [f"Paddle is 2.4.0 there and {paddle.__version__} here"]


def test_workers_get_the_weights_of_the_driver():
    """Whatever build loads: what is measured is the model as it is here."""
    model, _ = made(seed=7)
    header = Header("Convs", fingerprint(model), "fpgm", "Closeness", 1.0)
    ds = dysens.DygraphSensitivity(model, SHAPE)
    greeting = RemoteMeasurer(Job(made, weights_of(model), ds.groups, header, RunOptions(fast="off"))).greet()
    assert greeting.header.weights == fingerprint(model)


def test_what_cannot_be_handed_to_another_process(ours):
    ds, evaluate, _ = ours
    with pytest.raises(InputError, match="Workers need models of their own: give build"):
        ds.sensitive(evaluate, FEW, workers=2)
    with pytest.raises(InputError, match="Workers need models of their own: give build"):
        ds.sensitive(evaluate, FEW, executor=dysens.Ray())
    lock = threading.Lock()
    with pytest.raises(InputError, match="cannot be handed to another process: cannot pickle"):
        ds.sensitive(evaluate, FEW, workers=2, build=lambda: (lock, made()))
    with pytest.raises(InputError, match=r'has to be "package.module:function", not "made"'):
        RunOptions(build="made").checked_build()
    with pytest.raises(InputError, match="or a function without arguments, not 3"):
        RunOptions(build=3).checked_build()
    with pytest.raises(InputError, match=r"executor has to be one, such as dysens.Ray\(\), not 'auto'"):
        ds.sensitive(evaluate, FEW, build=made, executor="auto")
    with pytest.raises(InputError, match="timeout has to be a number of seconds over 0"):
        ds.sensitive(evaluate, FEW, timeout=0)


def unread_digits():
    """The network before it has learnt: what a machine without the checkpoint builds."""
    return digits.SmallReader(), digits.evaluator()


def test_two_workers_search_as_one_process_does(tmp_path, executor):
    ds = dysens.DygraphSensitivity(digits.trained(), digits.SHAPE)
    run = partial(ds.search, digits.evaluator(), progress=False, fast="off", spot_checks=2)
    alone = run()
    shared = run(sen_file=tmp_path / "s.jsonl", workers=2, build=unread_digits, executor=executor)
    assert shared.baseline == alone.baseline
    assert len({group.ratio for group in alone.groups}) > 1
    assert [(g.path, g.ratio, g.beyond) for g in shared.groups] == [
        (g.path, g.ratio, g.beyond) for g in alone.groups
    ]
    assert len(shared.spot_checks) == len(alone.spot_checks) == 2
    again = run(sen_file=tmp_path / "s.jsonl")
    assert again.ratios == shared.ratios


SCRIPT = """
import signal
import sys
from functools import partial
from pathlib import Path
import dysens
from sweep.sweeping import SHAPE, made

def build(counts, gate):
    return made(counts, gate=gate)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run where it is ignored
    journal, counts, gate = map(Path, sys.argv[1:4])
    model, evaluate = made()
    ds = dysens.DygraphSensitivity(model, SHAPE)
    executor = dysens.Ray("auto") if sys.argv[4] == "ray" else None
    try:
        ds.sensitive(evaluate, [0.25, 0.5], sen_file=journal, progress=False, fast="off", workers=2,
                     build=partial(build, counts, gate), executor=executor)
    except KeyboardInterrupt:
        print("interrupted")
"""


LATER = pytest.mark.once("test-all")


@posix
@pytest.mark.parametrize("where", ["processes", pytest.param("ray", marks=LATER)])
@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "killed"])
def test_no_worker_outlives_its_driver_and_what_it_did_counts(ours, tmp_path, gate, blow, where):
    _, _, alone = ours
    journal, counts = tmp_path / "sens.jsonl", tmp_path / "counts.txt"
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    driver = subprocess.Popen(
        [sys.executable, script, journal, counts, gate.folder, where],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
            "RAY_USAGE_STATS_ENABLED": "0",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a terminal of its own, whose Ctrl-C goes to all of them
    )
    workers = [psutil.Process(pid) for pid in gate.arrived(2)]
    if blow == signal.SIGINT:
        os.killpg(driver.pid, blow)
    else:
        driver.kill()
    out, err = driver.communicate(timeout=60)
    if blow == signal.SIGINT:
        assert (driver.returncode, "interrupted" in out.splitlines()) == (0, True), err
    else:
        assert driver.returncode == -signal.SIGKILL
    psutil.wait_procs(workers, timeout=30)
    assert not [worker for worker in workers if worker.is_running()]
    gate.open()
    model, evaluate = made(counts)
    again = dysens.DygraphSensitivity(model, SHAPE).sensitive(
        evaluate, FEW, sen_file=journal, progress=False, fast="off"
    )
    assert results(again) == [point for point in results(alone) if point[1] in FEW]
    computed = evaluations(counts, model)
    assert sum(computed.values()) <= len(computed) + len(workers)  # at most one point a worker is repeated
