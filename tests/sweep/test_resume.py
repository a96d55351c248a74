"""A sweep that is broken off goes on where it was, and computes nothing twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import random
import signal
import sys
import zlib  # noqa: F401  before Paddle 2.6, which brings its own
from functools import partial
from pathlib import Path

import paddle
import pytest
from interrupting import places_of

import dysens
from dysens.errors import JournalError, UnsafePickleError

from .sweeping import GROUPS, RATIOS, SHAPE, Closeness, Convs, evaluations, made, network, results, sweep

TESTS = Path(__file__).parents[1]
ALL = GROUPS * len(RATIOS)
FEW = [0.25, 0.5]
KILLS = 10

posix = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is a POSIX thing")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The sweep, undisturbed."""
    folder = tmp_path_factory.mktemp("whole")
    sens = sweep(folder / "sens.jsonl", folder / "counts.txt")
    assert set(evaluations(folder / "counts.txt", network()).values()) == {1}
    return results(sens)


@pytest.fixture(scope="module")
def processes():
    """Starts sweeps as processes that one process forks, which has imported Paddle but computed nothing yet.

    Otherwise a dozen sweeps would wait for a dozen imports, of seconds each.
    """
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), str(TESTS.parent), before or ""])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sweep.sweeping", "dysens.sensitivity"])
    yield context
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


def started(processes, *arguments):
    process = processes.Process(target=sweep, args=arguments, daemon=True)
    process.start()
    return process


def lines(journal: Path, kind: str) -> list[dict]:
    if not journal.exists():
        return []
    whole_lines = journal.read_text().split("\n")[:-1]
    return [record for record in map(json.loads, whole_lines) if record["kind"] == kind]


@posix
def test_killed_anywhere(processes, whole, tmp_path):
    """Each run dies at a line of dysens drawn from those of the next points; the last one has few of them to compute again."""
    model, evaluate = made()
    ds = dysens.DygraphSensitivity(model, SHAPE)
    run = partial(ds.sensitive, evaluate, RATIOS, sen_file=tmp_path / "own.jsonl", progress=False, fast="off")
    every_line = sum(places_of(run).values())
    journal, counts = tmp_path / "sens.jsonl", tmp_path / "counts.txt"
    chance = random.Random(20)
    for _ in range(KILLS):
        process = started(processes, journal, counts, None, chance.randint(1, every_line // KILLS))
        process.join()
        assert process.exitcode == -signal.SIGKILL
    assert 0 < len(lines(journal, "point")) < ALL
    process = started(processes, journal, counts)
    process.join()
    assert process.exitcode == 0
    assert results(dysens.Sensitivities.load(journal)) == whole
    computed = evaluations(counts, network())
    assert len(computed) == ALL
    assert sum(computed.values()) <= ALL + KILLS


@posix
def test_three_processes_share_a_journal_and_one_is_killed(processes, whole, tmp_path, gate):
    journal, counts = tmp_path / "sens.jsonl", tmp_path / "counts.txt"
    crew = [started(processes, journal, counts, gate.folder) for _ in range(3)]
    assert set(gate.arrived(3)) == {process.pid for process in crew}  # each has a point of its own now
    crew[0].kill()
    crew[0].join()
    gate.open()
    for process in crew:
        process.join()
    assert [process.exitcode for process in crew] == [-signal.SIGKILL, 0, 0]
    assert results(dysens.Sensitivities.load(journal)) == whole
    computed = evaluations(counts, network())
    assert len(computed) == ALL
    assert sum(computed.values()) == ALL + 1  # what the dead one was about to measure
    owners = {claim["pid"] for claim in lines(journal, "claim")}
    assert owners == {process.pid for process in crew}


class Counted:
    """A sweep in this process that counts what it computes."""

    def __init__(self, tmp_path, seed: int = 0, criterion: str = "fpgm") -> None:
        self.counts = tmp_path / "counts.txt"
        self.model, self.evaluate = made(self.counts, seed=seed)
        self.ds = dysens.DygraphSensitivity(self.model, SHAPE, criterion)

    def sweep(self, *arguments, **options):
        """What the sweep gives, and how many points it computed."""
        before = sum(evaluations(self.counts, self.model).values())
        sens = self.ds.sensitive(*arguments, progress=False, fast="off", **options)
        return sens, sum(evaluations(self.counts, self.model).values()) - before


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_only_what_is_missing_is_computed(tmp_path, error):
    counted = Counted(tmp_path)
    expected, _ = counted.sweep(counted.evaluate, FEW)
    calls = []

    class Breaks(Closeness):
        def __call__(self):
            calls.append(1)
            if len(calls) == 5:
                raise error("broken off")
            return super().__call__()

    Breaks.__name__ = "Closeness"  # the same evaluator, by name
    with pytest.raises(error):
        counted.sweep(Breaks(counted.model), FEW, sen_file=tmp_path / "sens.jsonl")
    assert len(dysens.Sensitivities.load(tmp_path / "sens.jsonl").points) == 3
    # Nothing is left claimed: another process need not wait for this one to end.
    assert lines(tmp_path / "sens.jsonl", "release")
    sens, computed = counted.sweep(counted.evaluate, FEW, sen_file=tmp_path / "sens.jsonl")
    assert computed == len(FEW) * GROUPS - 3
    assert results(sens) == results(expected)
    _, computed = counted.sweep(counted.evaluate, FEW, sen_file=tmp_path / "sens.jsonl")
    assert computed == 0


def test_more_ratios_and_more_groups_compute_only_the_new_ones(tmp_path):
    counted = Counted(tmp_path)
    path = tmp_path / "sens.jsonl"
    first = counted.ds.groups[0].name
    _, computed = counted.sweep(counted.evaluate, FEW, sen_file=path, target_vars=[first])
    assert computed == len(FEW)
    _, computed = counted.sweep(counted.evaluate, [*FEW, 0.75], sen_file=path, target_vars=[first])
    assert computed == 1
    sens, computed = counted.sweep(counted.evaluate, FEW, sen_file=path, skip_vars=[first])
    assert computed == len(FEW) * (GROUPS - 1)
    assert first not in sens
    sens, computed = counted.sweep(counted.evaluate, [*FEW, 0.75], sen_file=path)
    assert computed == GROUPS - 1
    assert len(sens.points) == 3 * GROUPS


def test_a_journal_of_something_else_is_refused_with_what_differs(tmp_path):
    path = tmp_path / "sens.jsonl"
    counted = Counted(tmp_path)
    counted.sweep(counted.evaluate, FEW, sen_file=path)
    other = Counted(tmp_path, seed=1)
    with pytest.raises(JournalError, match="the weights are not the same"):
        other.sweep(other.evaluate, FEW, sen_file=path)
    by_l1 = dysens.DygraphSensitivity(counted.model, SHAPE, "l1")
    with pytest.raises(JournalError, match="the criterion was fpgm and is l1 now"):
        by_l1.sensitive(counted.evaluate, FEW, sen_file=path, progress=False)

    def another() -> float:
        return counted.evaluate()

    with pytest.raises(JournalError, match="the evaluator was Closeness and is another now"):
        counted.sweep(another, FEW, sen_file=path)

    class Halved(Closeness):
        def __call__(self):
            return super().__call__() / 2

    Halved.__name__ = "Closeness"
    with pytest.raises(JournalError, match=r"the baseline was 1 and is 0\.5 now"):
        counted.sweep(Halved(counted.model), FEW, sen_file=path)


def test_force_goes_on_with_a_journal_of_something_else(tmp_path, caplog):
    path = tmp_path / "sens.jsonl"
    counted = Counted(tmp_path)
    counted.sweep(counted.evaluate, FEW, sen_file=path)
    by_l1 = dysens.DygraphSensitivity(counted.model, SHAPE, "l1")
    sens = by_l1.sensitive(counted.evaluate, [*FEW, 0.75], sen_file=path, progress=False, force=True)
    assert len(sens.points) == 3 * GROUPS
    assert "continued by force although the criterion was fpgm and is l1 now" in caplog.text


def test_names_that_shifted_are_the_same_points(tmp_path):
    path = tmp_path / "sens.jsonl"
    counted = Counted(tmp_path)
    expected, _ = counted.sweep(counted.evaluate, FEW, sen_file=path)
    with paddle.utils.unique_name.guard():
        paddle.nn.Conv2D(3, 3, 1)  # so that the parameters made after it have higher numbers
        shifted = Convs()
    shifted.set_state_dict(counted.model.state_dict())
    ds = dysens.DygraphSensitivity(shifted, SHAPE)
    assert [g.name for g in ds.groups] != [g.name for g in counted.ds.groups]
    calls = Closeness(shifted, tmp_path / "more.txt")
    sens = ds.sensitive(calls, FEW, sen_file=path, progress=False, fast="off")
    assert not evaluations(tmp_path / "more.txt", shifted)
    assert results(sens) == results(expected)
    assert list(sens) == [group.name for group in ds.groups]


class Command:
    """Pickled, it is a call that makes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_runs_a_command_is_refused_and_nothing_runs(tmp_path, protocol):
    target = tmp_path / "ran"
    evil = tmp_path / "sens.pickle"
    evil.write_bytes(pickle.dumps({"conv2d_0.w_0": Command(target)}, protocol))
    counted = Counted(tmp_path)
    with pytest.raises(UnsafePickleError, match=r"(posix|nt)[. ]system"):
        counted.sweep(counted.evaluate, FEW, sen_file=evil)
    assert not target.exists()
    assert not counted.counts.exists()  # and nothing was evaluated
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sens.pickle"]


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_evaluated(tmp_path):
    counted = Counted(tmp_path)
    (tmp_path / "file").write_text("in the way")
    for place in (tmp_path / "file" / "sens.jsonl", Path("/proc/nowhere/sens.jsonl"), tmp_path):
        with pytest.raises(JournalError, match=r"cannot be written|not a regular file"):
            counted.sweep(counted.evaluate, FEW, sen_file=place)
    assert not counted.counts.exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_said_before_anything_is_evaluated(tmp_path):
    counted = Counted(tmp_path)
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    with pytest.raises(JournalError, match="cannot be written: Permission denied"):
        counted.sweep(counted.evaluate, FEW, sen_file=folder / "sens.jsonl")
    assert not counted.counts.exists()
