"""docs/compress.md says what docs/compress.json says."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = json.loads((ROOT / "docs" / "compress.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("compress_benchmark", ROOT / "benchmarks" / "compress.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(ROOT / "benchmarks"))  # it imports its neighbours
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return module


def test_the_page_was_written_from_the_figures(benchmark):
    assert (ROOT / "docs" / "compress.md").read_text(encoding="utf-8") == benchmark.page(ROWS)


def test_every_row_was_proven_and_restored():
    assert ROWS
    assert all(row["restored"] and row["proof"] < 1e-3 for row in ROWS)


def test_several_seeds_are_told_as_mean_and_spread(benchmark):
    row = {**ROWS[0], "way": "compress", "budget": 0.5, "score": 0.8, "seed": 0}
    page = benchmark.page([row, {**row, "score": 0.9, "seed": 1}])
    assert "0.850 (spread 0.100)" in page
    assert "0.850" not in benchmark.page([row])
