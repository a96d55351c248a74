import os
import signal
import sys

import pytest

from dysens.results import Owner

from .common import start_python

SLEEP = "import time; print('up', flush=True); time.sleep(60)"


def owner_of(process):
    import psutil

    return Owner(Owner.current().host, process.pid, psutil.Process(process.pid).create_time())


def test_this_process_lives():
    assert Owner.current().is_alive()
    assert Owner.current() == Owner.current()
    assert Owner.current().is_local


def test_a_recycled_process_id_is_another_process():
    me = Owner.current()
    assert not Owner(me.host, me.pid, me.started - 100).is_alive()


@pytest.mark.parametrize("pid", [2**22 + 1, -1, 10**30])
def test_an_id_that_no_process_has(pid):
    assert not Owner(Owner.current().host, pid, 0.0).is_alive()


@pytest.mark.skipif(sys.platform == "win32", reason="signals are a POSIX thing")
def test_a_killed_child_is_dead_before_its_parent_collects_it():
    process = start_python(SLEEP)
    try:
        process.stdout.readline()
        owner = owner_of(process)
        assert owner.is_alive()
    finally:
        os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
    assert not owner.is_alive()
    process.communicate()
    assert not owner.is_alive()
