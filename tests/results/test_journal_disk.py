"""A disk that fills up in the middle of a sweep. A limit on the file size gives the same errors as a full disk."""

import re
import sys
from pathlib import Path

import pytest

from dysens.results import Journal, Sensitivities

from .common import header, point, run_python

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")

PRELUDE = """
import logging, resource, sys, tempfile
from pathlib import Path
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from dysens.results import Journal
from dysens.results import Header, Point
PATHS = {"conv2d_0.w_0": "stem.0.weight", "conv2d_1.w_0": "block.conv.weight"}
header = Header("TinyNet", "c0ffee", "fpgm", "accuracy", 0.9, paths=PATHS)
path = Path(sys.argv[1])
tempfile.tempdir = str(path.parent)

def point(ratio):
    return Point("conv2d_0.w_0", "stem.0.weight", ratio, 0.8, 0.1, 1.5)

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
"""


def test_points_are_kept_when_the_disk_is_full_and_written_when_it_is_not(tmp_path):
    path = tmp_path / "sens.jsonl"
    script = """
journal = Journal.open(path, header)
journal.append(point(0.1))
path.open("ab").write(b" " * 2000 + b"\\n")  # so that the limit leaves room for another file
limit(path.stat().st_size + 40)  # the next line is torn in the middle
journal.append(point(0.2))
journal.append(point(0.3))
print("in memory:", [p.ratio for p in journal.points()])
print("claims:", journal.claim("conv2d_0.w_0", 0.2), journal.claim("conv2d_0.w_0", 0.4))
limit(10**6)
journal.append(point(0.4))
print("at last:", [p.ratio for p in Journal.open(path, header).points()])
"""
    out = run_python(PRELUDE + script, path)
    assert "in memory: [0.1, 0.2, 0.3]" in out
    assert "claims: False True" in out
    assert "at last: [0.1, 0.2, 0.3, 0.4]" in out
    assert re.search(r"cannot be written \(.*\): 2 point\(s\) are kept in memory and in \S+\.jsonl", out)
    refuge = re.search(r"in memory and in (\S+\.jsonl)", out).group(1)
    assert "can be written again" in out
    assert not Path(refuge).exists()


def test_the_refuge_is_a_journal_of_its_own(tmp_path):
    path = tmp_path / "sens.jsonl"
    script = """
journal = Journal.open(path, header)
big = 2000
path.open("ab").write(b" " * big + b"\\n")
limit(big)  # room for the refuge, none for the journal
journal.append(point(0.1))
journal.append(point(0.2))
"""
    out = run_python(PRELUDE + script, path)
    refuge = re.search(r"2 point\(s\) are kept in memory and in (\S+\.jsonl)", out).group(1)
    rescued = Sensitivities.load(refuge)
    assert rescued.baseline == 0.9
    assert list(rescued["stem.0.weight"]) == [0.1, 0.2]
    merged = Sensitivities.merge([path, refuge])
    assert list(merged["stem.0.weight"]) == [0.1, 0.2]


def test_no_room_at_all_is_said_before_the_sweep(tmp_path):
    script = """
from dysens.errors import JournalError
limit(100)
try:
    Journal.open(path, header)
except JournalError as error:
    print(error)
"""
    assert "Nothing was started" in run_python(PRELUDE + script, tmp_path / "sens.jsonl")


def test_points_stay_in_memory_when_there_is_no_refuge(tmp_path):
    script = """
journal = Journal.open(path, header)
tempfile.tempdir = "/proc"
limit(0)
journal.append(point(0.1))
print([p.ratio for p in journal.points()])
"""
    out = run_python(PRELUDE + script, tmp_path / "sens.jsonl")
    assert "1 point(s) are kept in memory only" in out
    assert "[0.1]" in out


def test_a_lock_that_nobody_gives_back_is_no_hang(tmp_path, monkeypatch, caplog):
    import dysens.results._journal as module

    path = tmp_path / "sens.jsonl"
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.2)
    holder, journal = Journal.open(path, header()), Journal.open(path, header())
    with holder._lock:
        journal.append(point(ratio=0.1))
    assert "kept in memory and in" in caplog.text
    assert [p.ratio for p in journal.points()] == [0.1]
    journal.append(point(ratio=0.2))
    assert [p.ratio for p in holder.points()] == [0.1, 0.2]
