"""docs/compress.md says what docs/compress.json says."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = json.loads((ROOT / "docs" / "compress.json").read_text(encoding="utf-8"))


def benchmark(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(ROOT / "benchmarks"))  # it imports its neighbours
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return module


@pytest.fixture(scope="module")
def page():
    return benchmark("compress_page")


@pytest.fixture(scope="module")
def summary():
    return benchmark("compress_summary")


def test_the_page_was_written_from_the_figures(page):
    assert (ROOT / "docs" / "compress.md").read_text(encoding="utf-8") == page.page(ROWS)


def test_every_row_was_proven_and_restored():
    assert ROWS
    assert all(row["restored"] and row["proof"] < 1e-3 for row in ROWS if row["way"] != "whole")


def rows_of(way, scores, trained=None):
    """One row a draw."""
    return [
        {**ROWS[0], "network": "PP-OCRv4 det", "way": way, "budget": 0.5, "seed": seed, "whole": 0.9}
        | {"score": score, "trained": score if trained is None else trained}
        for seed, score in enumerate(scores)
    ]


def test_ways_are_compared_on_the_draws_that_both_have(summary):
    ours = rows_of("compress", [0.8, 0.9, 0.1])
    assert summary.first([*ours, *rows_of("sweep", [0.85, 0.85])], "score") == (
        1,
        [],
    )  # equal in the mean of two
    number, behind = summary.first([*ours, *rows_of("sweep", [0.85, 0.86])], "score")
    assert (number, behind) == (
        1,
        ["PP-OCRv4 det -50%: `ratios_by_flops` 0.855 to 0.850 (2 draws)"],
    )
    assert summary.first(ours, "score") == (0, [])
    assert summary.first([*ours, *rows_of("whole", [1.0])], "score") == (
        0,
        [],
    )  # what is not cut is no way to cut


def test_draws_are_counted_one_by_one(summary):
    ours = rows_of("compress", [0.8, 0.9, 0.7])
    others = [*rows_of("sweep", [0.85, 0.9]), *rows_of("uniform", [0.1])]
    assert summary.draw_by_draw([*ours, *others, *rows_of("whole", [1.0])], "score") == (2, 3)
    assert "not behind in 2 of 3" in "\n".join(summary.summary([*ours, *others], []))
    others[1]["whole"] = 0.8  # of another network: nothing to compare
    assert summary.draw_by_draw([*ours, *others], "score") == (1, 2)


def test_the_summary_tells_what_was_reached_and_what_not(summary):
    text = "\n".join(summary.summary(rows_of("compress", [0.89, 0.88], trained=0.85), []))
    assert "without training: reached by PP-OCRv4 det (1.50, 2 draws)" in text
    assert "**not** by PP-OCRv4 det (5.00, 2 draws)" in text
    assert "1.5 → 5.0" in text
    assert "PP-OCRv4 det was not measured at" in text  # its time
    time = {"network": "PP-OCRv4 det", "share": 0.3, "seed": 0, "whole": 0.9, "score": 0.89, "load": 0.1}
    text = "\n".join(summary.summary([], [{**time, "ms_before": 10.0, "ms_after": 5.0}]))
    assert "PP-OCRv4 det 2.00 times (1.6 wanted)" in text
    ruined = {**time, "ms_before": 10.0, "ms_after": 5.0, "score": 0.5}
    assert "PP-OCRv4 det was not measured at" in "\n".join(summary.summary([], [ruined]))


def test_a_training_is_held_against_the_whole_network_after_it(summary):
    ours = rows_of("compress", [0.89], trained=0.93)
    control = [{**row, "budget": 0.0} for row in rows_of("whole", [0.9], trained=0.95)]
    assert "1.0 → -3.0" in "\n".join(summary.summary(ours, []))
    text = "\n".join(summary.summary([*control, *ours], []))
    assert "1.0 → 2.0" in text
    assert "**not** by PP-OCRv4 det (2.00, one draw)" in text
    worse = [{**row, "trained": 0.5} for row in control]  # a training that harms is no excuse
    assert "1.0 → -3.0" in "\n".join(summary.summary([*worse, *ours], []))


def test_time_is_that_of_the_fastest_cut_that_keeps_its_score(summary):
    rows = [
        {
            **row,
            "network": "PP-OCRv4 rec",
            "budget": budget,
            "ms_before": 10.0,
            "ms_after": after,
            "load": 2.0,
        }
        for budget, after, scores in ((0.2, 8.0, [0.88]), (0.5, 5.0, [0.5]))
        for row in rows_of("compress", scores)
    ]
    text = "\n".join(summary.summary(rows, []))
    assert "PP-OCRv4 rec 1.25* times (1.3 wanted, **not** reached), 0.900 → 0.880" in text


def test_parts_are_shares_of_all_layers(page):
    found = [
        {"name": name, "ms": ms, "flops": flops}
        for name, ms, flops in (("stem, depthwise", 3.0, 1), ("head", 1.0, 3))
    ]
    text = "\n".join(page.parts_table([{"network": "PP-OCRv4 rec", "parts": found, "load": 0.0}]))
    assert "| stem, depthwise | 75% | 25% |" in text
    assert "| head | 25% | 75% |" in text
    assert "take 75% of the time for 25% of the FLOPs" in text
    assert page.parts_table([]) == []


def test_several_seeds_are_told_as_mean_and_spread(page):
    row = {**ROWS[0], "way": "compress", "budget": 0.5, "score": 0.8, "seed": 0}
    text = page.page([row, {**row, "score": 0.9, "seed": 1}])
    assert "0.850 (spread 0.100)" in text
    assert "0.850" not in page.page([row])
