"""The command line as a program of its own: signals, pipes, what is installed."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.conftest import TESTS, start
from dysens import Sensitivities

SLOW = [
    *("sweep", "sweep.sweeping:made", "--input-shape", "2,3,6,6", "--set", "seconds=0.3"),
    *("--ratios", "0.25,0.5,0.75", "--fast", "off", "-o", "my sens.jsonl"),
]


def _wait_for_points(journal: Path, count: int) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if journal.exists() and journal.read_text().count('"kind": "point"') >= count:
            return
        time.sleep(0.05)
    raise AssertionError("no points came")


def test_ctrl_c_says_how_to_go_on_and_that_works(tmp_path):
    process = start(*SLOW, cwd=tmp_path)
    _wait_for_points(tmp_path / "my sens.jsonl", 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert "points are safe in my sens.jsonl" in err
    command = shlex.split(err.splitlines()[-1])
    assert command == ["python", "-m", "dysens", *SLOW]

    before = Sensitivities.load(tmp_path / "my sens.jsonl").points
    assert 2 <= len(before) < 12
    again = start(*command[3:], cwd=tmp_path)
    assert "12 points are in my sens.jsonl" in again.communicate(timeout=120)[1]
    assert again.returncode == 0
    # What was measured before is as it was, its duration too: it was not measured again.
    assert set(before) < set(Sensitivities.load(tmp_path / "my sens.jsonl").points)


INTERRUPTED_IMPORT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)

class Finder:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder())
from dysens.cli import main
raise SystemExit(main(["--version"]))
"""


@pytest.mark.parametrize("module", ["argparse", "dysens.cli._program", "dysens.cli._compress"])
def test_ctrl_c_while_the_program_is_imported(module):
    words = [sys.executable, "-c", INTERRUPTED_IMPORT, module]
    done = subprocess.run(words, capture_output=True, text=True, cwd=TESTS.parent, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\nInterrupted.\n")


def test_a_reader_that_has_seen_enough(tmp_path, journal):
    reading, writing = os.pipe()
    os.close(reading)
    # argparse itself passes over a closed pipe.
    for words, code in ((["show", journal], 141), (["--help"], 141), (["show", "--help"], 0)):
        process = start(*words, cwd=tmp_path, stdout=writing)
        assert process.communicate(timeout=60)[1] == ""
        assert process.returncode == code
    os.close(writing)


WITHOUT_PADDLE = """
import sys
sys.modules["paddle"] = None  # as if it were not installed
from dysens.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["sweep", "--help"], 0),
        (["show", "sens.jsonl"], 0),
        (["plot", "sens.jsonl"], 0),
        (["ratios", "sens.jsonl", "--loss", "0.2"], 0),
        (["convert", "sens.jsonl", "-o", "sens.pickle"], 0),
        (["merge", "sens.jsonl", "sens.jsonl", "-o", "two.jsonl"], 0),
        (["report", "sens.jsonl"], 0),
        (["groups", "resnet18"], 1),
        (["demo"], 1),
    ],
)
def test_without_paddle(tmp_path, journal, words, code):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PADDLE, *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert ('pip install "dysens[cpu]"' in done.stderr) == (code == 1)


CHATTER = """
import os
import dysens
import paddle
from dysens.cli import main

def build():
    print("printed by Python")
    os.system("echo printed by a child")
    return paddle.vision.models.LeNet()

if __name__ == "__main__":
    raise SystemExit(main(["groups", "chatter:build", "--input-shape", "1,1,28,28", "--json"]))
"""


def test_what_others_print_goes_to_standard_error(tmp_path):
    (tmp_path / "chatter.py").write_text(CHATTER)
    done = subprocess.run(
        [sys.executable, "chatter.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert len(json.loads(done.stdout)["groups"]) == 2
    assert "printed by Python" in done.stderr
    assert "printed by a child" in done.stderr
