"""Mistakes of a first day: what docs/mistakes.md says is what the program says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOME = (
    2,
    4,
    8,
    13,
    16,
    18,
    20,
    25,
    28,
    30,
    35,
    41,
    42,
    49,
    52,
    55,
    57,
    59,
    60,
    62,
    64,
    65,
    66,
    70,
    74,
    79,
    85,
    89,
    91,
    94,
)


@pytest.fixture(scope="module")
def mistakes():
    spec = importlib.util.spec_from_file_location("mistakes", ROOT / "benchmarks" / "mistakes.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["mistakes"] = module  # its dataclass looks itself up there
    spec.loader.exec_module(module)
    return module


def test_some_of_them_again(mistakes):
    shown = (ROOT / "docs" / "mistakes.md").read_text(encoding="utf-8").splitlines()
    with mistakes.scratch() as folder:
        rows = mistakes.table(folder, list(SOME))
        assert [
            *folder.glob("exported*"),
            *folder.glob(".exported*"),
        ] == []  # Ctrl-C leaves no half of an export
    assert [row for row in rows if row not in shown] == []


def test_every_answer_is_one(mistakes):
    """No stack trace, an exit code that scripts can rely on, and a sentence."""
    rows = [
        line.split(" | ")
        for line in (ROOT / "docs" / "mistakes.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and line[2].isdigit()
    ]
    assert len(rows) == len(mistakes.MISTAKES) >= 45
    for number, what, typed, code, said in rows:
        again = "a second time" in what
        expected = ("130",) if "Ctrl-C" in what else ("0",) if again else ("1", "2")
        assert code in expected, (number, typed)
        assert again or said.startswith(("error: ", "Interrupted", "usage: ")), said
        assert "Traceback" not in said
