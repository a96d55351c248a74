"""Several processes on one journal, some of them killed."""

import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from dysens.results import Journal, Owner
from dysens.results._journal import CLOCK_TOLERANCE, FOREIGN_CLAIM_SECONDS
from dysens.results._records import Claim, encode

from .common import header, point, start_python

PRELUDE = """
import sys, time
from dysens.results import Journal
from dysens.results import Header, Point
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

# Computes all points that nobody else does, and waits for theirs. As which line of dysens runs it dies: 0 for never.
WORKER = (
    PRELUDE
    + f"""
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from interrupting import kill_at

def compute():
    wanted = [(param, number / 50) for param in PATHS for number in range(10)]
    waits = False
    while len(journal.points()) < len(wanted):
        idle = True
        for param, ratio in wanted:
            if journal.claim(param, ratio):
                idle = False
                print("computes", param, ratio, flush=True)
                journal.append(point(param, ratio))
        if idle and not waits:
            waits = True
            print("waits", flush=True)
        time.sleep(0.01)

kill_at(compute, int(sys.argv[2]))
"""
)

HOLDER = (
    PRELUDE
    + """
journal.claim("conv2d_1.w_0", 0.1)
print("conv2d_1.w_0", 0.1, flush=True)
time.sleep(1000)
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
    victim = start_python(HOLDER, path)  # claims a point and never finishes it
    claimed = victim.stdout.readline().split()
    workers = [start_python(WORKER, path, 0) for _ in range(2)]
    computed = [line for worker in workers for line in iter(worker.stdout.readline, "waits\n")]
    assert all(worker.poll() is None for worker in workers)  # they wait for the living
    assert len(Journal.open(path, header()).points()) == 19
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate()
    (last,) = [line for worker in workers for line in finish(worker).splitlines(keepends=True)]
    assert last.split()[1:] == claimed
    assert len({*computed, last}) == len(computed) + 1 == 20
    assert len(Journal.open(path, header()).points()) == 20


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is a POSIX thing")
def test_killed_anywhere_and_resumed(path):
    """Each run dies at a line of dysens of its first points; the one after the last ends with all, and few computed twice."""
    chance = random.Random(7)
    computed = []
    for _ in range(8):
        worker = start_python(WORKER, path, chance.randint(1, 1200))
        computed.extend(worker.communicate(timeout=120)[0].splitlines())
        assert worker.returncode == -signal.SIGKILL
    assert 0 < len(Journal.open(path, header()).points()) < 20
    computed.extend(finish(start_python(WORKER, path, 0)).splitlines())
    counts = Counter(computed)
    assert len(Journal.open(path, header()).points()) == len(counts) == 20
    assert sum(counts.values()) <= 20 + 8  # one too many for each kill


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

    @pytest.mark.parametrize("ahead", [CLOCK_TOLERANCE + 60, 86400, 1e300])
    def test_a_clock_that_is_ahead_holds_nothing(self, path, ahead, caplog):
        journal = Journal.open(path, header())
        far = Claim("conv2d_0.w_0", "stem.0.weight", 0.3, Owner("far away", 1, 0.0), time.time() + ahead)
        with path.open("ab") as file:
            file.write(encode(far))
        assert journal.claim("conv2d_0.w_0", 0.3)
        assert "the clock of far away is ahead" in caplog.text

    def test_a_claim_ends_by_what_this_machine_sees(self, path, monkeypatch):
        """The other clock is a little ahead, and ours is set back: time has passed here all the same."""
        journal = Journal.open(path, header())
        far = Claim("conv2d_0.w_0", "stem.0.weight", 0.3, Owner("far away", 1, 0.0), time.time() + 100)
        with path.open("ab") as file:
            file.write(encode(far))
        assert not journal.claim("conv2d_0.w_0", 0.3)
        later = time.monotonic() + FOREIGN_CLAIM_SECONDS + 1
        monkeypatch.setattr(time, "monotonic", lambda: later)
        assert journal.claim("conv2d_0.w_0", 0.3)

    def test_leaving_gives_claims_back(self, path):
        with Journal.open(path, header()) as journal:
            journal.claim("conv2d_0.w_0", 0.3)
        assert not journal._reader.claims
