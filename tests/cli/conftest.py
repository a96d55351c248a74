"""Running the command line, in this process and in one of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from results.common import PATHS, header, point

from dysens.cli import main
from dysens.results import Journal

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


Dysens = Callable[..., Done]


@pytest.fixture
def dysens(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Dysens:
    """Runs a command in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*words: Any) -> Done:
        capfd.readouterr()
        code = main([str(word) for word in words])
        return Done(code, *capfd.readouterr())

    return run


def start(*words: Any, cwd: Path, **settings: Any) -> subprocess.Popen[str]:
    """Starts ``python -m dysens`` in a folder, with the tests' modules importable."""
    environment = {**os.environ, "PYTHONPATH": f"{TESTS.parent}{os.pathsep}{TESTS}", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "dysens", *map(str, words)],
        cwd=cwd,
        env=environment,
        stdout=settings.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        text=True,
        # As in a terminal; a test run in the background may have turned it off for its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Two groups at three ratios, without costs."""
    losses = {"conv2d_0.w_0": (0.1, 0.3, 0.9), "conv2d_1.w_0": (-0.0001, 0.02, float("inf"))}
    path = tmp_path / "sens.jsonl"
    with Journal.open(path, header()) as opened:
        for name in PATHS:
            for ratio, loss in zip((0.25, 0.5, 0.75), losses[name]):
                opened.append(point(name, ratio, loss))
    return path
