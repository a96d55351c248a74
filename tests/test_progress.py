"""What is shown while a sweep runs: a bar on a terminal, a line a minute in a log, nothing if so wished."""

from __future__ import annotations

import logging
import os
import struct
import subprocess
import sys

import paddle
import pytest

from dysens import MetricEvaluator
from dysens import progress as module
from dysens.evaluators import evaluate
from dysens.progress import at_work, progress, shown_log, step_done

SCRIPT = """
from dysens.progress import progress
with progress(4, "sweep", shown={shown}, done=1) as display:
    for done in (2, 3, 4):
        display.at("stem.0.weight at 0.5")
        display.last(0.125)
        display.reach(done)
"""


def on_a_terminal(shown: bool) -> str:
    """What a terminal gets to see of it."""
    pty, fcntl, termios = map(pytest.importorskip, ("pty", "fcntl", "termios"))
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    try:
        subprocess.run([sys.executable, "-c", SCRIPT.format(shown=shown)], stderr=slave, check=True)
        os.set_blocking(master, False)
        try:
            return os.read(master, 1 << 16).decode()
        except BlockingIOError:
            return ""
    finally:
        os.close(master)
        os.close(slave)


def test_a_bar_on_a_terminal():
    seen = on_a_terminal(shown=True)
    assert "sweep:" in seen
    assert "1/4" in seen
    assert "4/4" in seen
    assert "last loss 0.1250, stem.0.weight at 0.5" in seen
    assert "<" in seen  # 00:03<00:01: what is gone, what is left


def test_no_bar_if_so_wished():
    assert on_a_terminal(shown=False) == ""


def test_nothing_but_the_log_elsewhere():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(shown=True)], capture_output=True, text=True, check=True
    )
    assert done.stdout == done.stderr == ""


def test_a_line_in_the_log_now_and_then(caplog, monkeypatch):
    caplog.set_level("INFO", logger="dysens")
    with progress(4, "sweep", done=1) as display:
        display.at("stem.0.weight at 0.5")
        display.reach(2)
    assert not caplog.text  # a minute has not passed
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_LINES", 0.0)
    with progress(4, "sweep", done=1) as display:
        display.at("stem.0.weight at 0.5")
        display.last(0.125)
        display.reach(2)
    first, second = caplog.messages
    assert first.startswith("sweep: 1 of 4 points, unknown time left, stem.0.weight at 0.5")
    assert second.startswith("sweep: 2 of 4 points, 00:00 left, last loss 0.1250, stem.0.weight at 0.5")
    with progress(4, "sweep") as display:
        display.reach(2)
    assert caplog.messages[2] == "sweep: 2 of 4 points, 00:00 left"
    with progress(4, "sweep", shown=False) as display:
        display.reach(1)
    assert len(caplog.messages) == 3


def test_a_kernel_that_is_only_loaded_makes_no_notebook(caplog, monkeypatch):
    pytest.importorskip("ipykernel.kernelapp")
    caplog.set_level("INFO", logger="dysens")
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_LINES", 0.0)
    with progress(2, "sweep") as display:
        display.reach(1)
    assert caplog.messages == ["sweep: 1 of 2 points, 00:00 left"]


def test_work_of_unknown_length_is_reported_where_a_command_shows_the_log(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dysens.progress._FIRST_WORD", 0.0)
    caplog.set_level(logging.INFO, "dysens")
    with at_work("finding groups"):
        step_done()
    assert caplog.records == []  # who calls from Python gets a line a minute
    with shown_log(), at_work("finding groups"):
        step_done()
        step_done()
    step_done()  # of no work
    assert capsys.readouterr().err == "finding groups: 1 forwards in 0 s so far\n"


def test_a_long_scoring_is_reported_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dysens.progress._FIRST_WORD", 0.0)
    evaluator = MetricEvaluator(
        [(paddle.ones([2, 3]), paddle.zeros([2, 1], "int64"))] * 2, paddle.metric.Accuracy()
    )
    with shown_log():
        evaluate(paddle.nn.Identity(), evaluator)
    assert capsys.readouterr().err == "scoring by Accuracy acc: 1 batches in 0 s so far\n"


FROM_PYTHON = """
import logging, paddle, dysens.progress
logging.getLogger("dysens.sweep").info("a remark")
logging.getLogger("dysens.sweep").warning("a warning")
logging.getLogger("dysens.progress").info("a minute later")
with dysens.progress.shown_log(logging.WARNING):
    logging.getLogger("dysens.progress").info("not on a quiet terminal")
logging.getLogger("dysens").setLevel("INFO")
logging.getLogger("dysens.sweep").info("asked for")
"""


def test_who_calls_from_python_gets_warnings_and_how_far_it_is() -> None:
    """Paddle sets the root logger to INFO with a handler of its own."""
    words = [sys.executable, "-W", "ignore", "-c", FROM_PYTHON]
    said = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stderr
    assert [line.rpartition(" - ")[2] for line in said.splitlines()] == [
        "a warning",
        "a minute later",
        "asked for",
    ]
