"""What every executor has to do: start workers, call, tell when one is lost, leave nothing behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
from functools import partial

import numpy as np
import psutil
import pytest

import dysens
from dysens.errors import InputError, MissingExtraError
from dysens.sweep import Here, WorkerFailedError, WorkerLostError
from dysens.sweep._processes import environments

from .sweeping import Gate

SECONDS = 120  # until an answer counts as missing

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL and named pipes are POSIX things")


class Answering:
    """Lives in a worker; knows nothing of models."""

    def __init__(self, start: int = 0) -> None:
        self._count = start

    def add(self, values):
        self._count += int(np.sum(values))
        return self._count

    def fail(self):
        raise ValueError("the data set is gone")

    def process(self):
        return os.getpid()

    def setting(self, name):
        return os.environ.get(name)

    def say(self, words):
        os.write(1, words.encode())  # as C++ does

    def wait(self, gate):
        Gate.wait(gate)


def never():
    raise ValueError("cannot be built")


def ask(worker, method, *arguments):
    return worker.call(method, *arguments).result(SECONDS)


def ended(pid: int) -> bool:
    try:
        psutil.Process(pid).wait(30)
    except psutil.NoSuchProcess:
        return True
    return not psutil.pid_exists(pid)


def check_calls(executor):
    """What holds for all of them; one worker, because starting is what takes time."""
    with executor.opened(partial(Answering, 2), 1) as start:
        worker = start(1)
        calls = [worker.call("add", np.full(3, number)) for number in range(3)]
        assert [call.result(SECONDS) for call in calls] == [2, 5, 11]
        with pytest.raises(Exception, match="the data set is gone") as raised:
            ask(worker, "fail")
        assert ask(worker, "add", 1) == 12  # it lives on
        worker.end()
        worker.end()
    return raised.value


def test_calls_here():
    assert isinstance(check_calls(Here()), ValueError)


def test_calls_elsewhere(executor):
    raised = check_calls(executor)
    assert isinstance(raised, WorkerFailedError)
    assert str(raised) == "ValueError: the data set is gone"
    assert "in fail" in raised.trace
    assert raised.host


def test_a_worker_that_is_killed_is_lost_and_another_can_be_started(executor, gate):
    secret = 40
    with executor.opened(lambda: Answering(secret), 2) as start:  # code of this module goes along
        first = start(1)
        pid = ask(first, "process")
        ask(first, "say", "and then the lights went out\n")
        call = first.call("wait", gate.folder)
        assert gate.arrived(1) == [pid]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerLostError):
            call.result(SECONDS)
        with pytest.raises(WorkerLostError):
            ask(first, "add", 1)
        assert "the lights went out" in first.last_words()
        second = start(1)
        assert ask(second, "add", 2) == 42
        hung = second.call("wait", gate.folder)
        (other,) = gate.arrived(1)
        second.end()  # whatever it is at
        with pytest.raises(WorkerLostError):
            hung.result(SECONDS)
    assert ended(pid)
    assert ended(other)


def test_nothing_is_left_behind_when_the_driver_fails(executor, gate):
    with pytest.raises(KeyboardInterrupt), executor.opened(never_mind, 1) as start:  # noqa: PT012
        start(1).call("wait", gate.folder)
        (pid,) = gate.arrived(1)
        raise KeyboardInterrupt
    assert ended(pid)


def never_mind():
    return Answering()


def test_what_cannot_be_built(executor):
    with executor.opened(never, 1) as start, pytest.raises(WorkerFailedError, match="cannot be built"):
        ask(start(1), "process")
    lock = threading.Lock()
    with pytest.raises(InputError, match="cannot be handed to another process"):  # noqa: SIM117
        with executor.opened(lambda: Answering(lock), 1):
            pass


def test_threads_of_a_ray_worker(ray_cluster):
    executor = dysens.Ray("auto", num_cpus=4, runtime_env={"env_vars": {"ELSEWHERE": "yes"}})
    with executor.opened(Answering, 1) as start:
        worker = start(1)
        assert ask(worker, "setting", "OMP_NUM_THREADS") == "4"
        assert ask(worker, "setting", "ELSEWHERE") == "yes"
    assert ray_cluster.is_initialized()  # it was not ours to end


def test_a_cluster_that_is_too_small_is_said(ray_cluster, caplog):
    with dysens.Ray("auto", num_cpus=64, num_gpus=2).opened(Answering, 1):
        assert (
            "needs 64 CPUs and 2 GPUs, and no machine of the cluster has as many (at most 4 and 0)"
            in caplog.text
        )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"address": ""}, "address has to be"),
        ({"num_cpus": -1}, "num_cpus has to be 0 or more, not -1"),
        ({"num_gpus": "two"}, "num_gpus"),
    ],
)
def test_arguments_that_no_cluster_takes(arguments, said):
    with pytest.raises(InputError, match=said):
        dysens.Ray(**arguments)


def test_ray_is_asked_for_in_words_if_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r'pip install "dysens\[ray\]"'):  # noqa: SIM117
        with dysens.Ray("auto").opened(Answering, 1):
            pass


def test_processes_share_the_threads(monkeypatch):
    if hasattr(os, "sched_getaffinity"):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    else:
        monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert [settings["OMP_NUM_THREADS"] for settings in environments(3)] == ["2", "2", "2"]
    assert [settings["OMP_NUM_THREADS"] for settings in environments(16)] == ["1"] * 16
