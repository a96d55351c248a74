"""Several processes on one journal, some of them killed."""

import os
import random
import signal
import sys
import time

import pytest

from dysens.results.journal import FOREIGN_CLAIM_SECONDS, Journal
from dysens.results.owners import Owner
from dysens.results.records import Claim, encode

from .common import header, point, start_python

PRELUDE = """
import sys, time
from dysens.results.journal import Journal
from dysens.results.points import Header, Point
PATHS = {"conv2d_0.w_0": "stem.0.weight", "conv2d_1.w_0": "block.conv.weight"}
journal = Journal.open(sys.argv[1], Header("TinyNet", "c0ffee", "fpgm", "accuracy", 0.9, paths=PATHS))

def point(param, ratio):
    return Point(param, PATHS.get(param, param), ratio, 0.8, ratio / 2, 0.01)
"""

APPENDER = (
    PRELUDE
    + """
for number in range(int(sys.argv[3])):
    journal.append(point("worker" + sys.argv[2], number / 1000))
    print(number, flush=True)
"""
)

WORKER = (
    PRELUDE
    + """
wanted = [(param, number / 50) for param in PATHS for number in range(10)]
while len(journal.points()) < len(wanted):
    for param, ratio in wanted:
        if journal.claim(param, ratio):
            print("computes", param, ratio, flush=True)
            time.sleep(float(sys.argv[2]))
            journal.append(point(param, ratio))
    time.sleep(0.01)
"""
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sens.jsonl"


def finish(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is a POSIX thing")
def test_appending_from_many_processes_loses_nothing_when_one_is_killed(path):
    count = 60
    victim = start_python(APPENDER, path, 0, 100_000)
    others = [start_python(APPENDER, path, number, count) for number in (1, 2, 3)]
    while int(victim.stdout.readline()) < 20:
        pass
    os.kill(victim.pid, signal.SIGKILL)
    said = [int(line) for line in victim.stdout.read().split() if line.isdigit()]
    victim.communicate()
    for process in others:
        finish(process)
    found = {(p.param, p.ratio) for p in Journal.open(path, header()).points()}
    expected = {(f"worker{n}", i / 1000) for n in (1, 2, 3) for i in range(count)}
    expected |= {("worker0", number / 1000) for number in (*range(21), *said)}
    assert expected <= found
    assert len(found - expected) <= 1  # the victim may have died between writing and saying so


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is a POSIX thing")
def test_workers_share_the_points_and_take_over_from_the_dead(path):
    victim = start_python(WORKER, path, 1000)  # claims a point and never finishes it
    claimed = victim.stdout.readline().split()[1:]
    workers = [start_python(WORKER, path, 0.01) for _ in range(2)]
    time.sleep(0.5)
    assert all(worker.poll() is None for worker in workers)  # they wait for the living
    os.kill(victim.pid, signal.SIGKILL)
    computed = [line.split()[1:] for worker in workers for line in finish(worker).splitlines()]
    victim.communicate()
    assert claimed in computed
    assert len(computed) == len({tuple(each) for each in computed}) == 20
    assert len(Journal.open(path, header()).points()) == 20


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is a POSIX thing")
def test_killed_at_any_moment_and_resumed(path):
    """Each run is killed at a random moment; the one after the last ends with all points and few computed twice."""
    chance = random.Random(7)
    computed = []
    for _ in range(8):
        worker = start_python(WORKER, path, 0.005)
        computed.append(worker.stdout.readline())
        time.sleep(chance.uniform(0, 0.03))
        os.kill(worker.pid, signal.SIGKILL)
        computed.extend(worker.stdout.readlines())
        worker.communicate()
        if len(Journal.open(path, header()).points()) == 20:
            break
    computed.extend(finish(start_python(WORKER, path, 0)).splitlines())
    counts = {line.strip(): 0 for line in computed if line.strip()}
    for line in computed:
        if line.strip():
            counts[line.strip()] += 1
    assert len(Journal.open(path, header()).points()) == len(counts) == 20
    assert sum(count - 1 for count in counts.values()) <= 8  # one too many for each kill


class TestClaims:
    def test_one_owner_at_a_time(self, path):
        journal = Journal.open(path, header())
        process = start_python("import time; print('up', flush=True); time.sleep(60)")
        try:
            process.stdout.readline()
            import psutil

            other = Owner(Owner.current().host, process.pid, psutil.Process(process.pid).create_time())
            assert journal.claim("conv2d_0.w_0", 0.3, other)
            assert journal.claim("conv2d_0.w_0", 0.3, other)
            assert not journal.claim("conv2d_0.w_0", 0.1 + 0.2)
            assert journal.claim("conv2d_0.w_0", 0.4)
            journal.release(other)
            assert journal.claim("conv2d_0.w_0", 0.3)
        finally:
            process.kill()
            process.communicate()

    def test_a_measured_point_is_not_given_out(self, path):
        journal = Journal.open(path, header())
        assert journal.claim("conv2d_0.w_0", 0.3)
        journal.append(point(ratio=0.3))
        assert not journal.claim("conv2d_0.w_0", 0.3)

    def test_a_dead_owner_holds_nothing(self, path):
        journal = Journal.open(path, header())
        me = Owner.current()
        assert journal.claim("conv2d_0.w_0", 0.3, Owner(me.host, me.pid, me.started - 1000))
        assert journal.claim("conv2d_0.w_0", 0.3)

    @pytest.mark.parametrize(("age", "free"), [(0, False), (FOREIGN_CLAIM_SECONDS + 1, True)])
    def test_another_machine_is_believed_for_a_while(self, path, age, free):
        journal = Journal.open(path, header())
        far = Claim("conv2d_0.w_0", "stem.0.weight", 0.3, Owner("far away", 1, 0.0), time.time() - age)
        with path.open("ab") as file:
            file.write(encode(far))
        assert journal.claim("conv2d_0.w_0", 0.3) is free

    def test_leaving_gives_claims_back(self, path):
        with Journal.open(path, header()) as journal:
            journal.claim("conv2d_0.w_0", 0.3)
        assert not journal._reader.claims
