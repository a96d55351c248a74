"""Names and numbers from strangers: no formulas in tables, no costs beyond measure, no name that cannot be printed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dysens.costs import Costs, GroupCosts, Term, Width
from dysens.errors import InputError
from dysens.results import Journal, Sensitivities
from dysens.results._records import encode

from .common import header, point

NAMES = ["=1+1", "+x", "-x", "@SUM(A1)", "\tx", "'x", "'=x", "''", "x=1", "a-b", "层.weight"]


@pytest.mark.parametrize("name", NAMES)
def test_a_table_holds_no_formula(name, tmp_path):
    points = [point(param=name, path=f"{name}.weight", ratio=ratio) for ratio in (0.1, 0.2)]
    Sensitivities(points, 0.9).to_csv(tmp_path / "sens.csv")
    for line in (tmp_path / "sens.csv").read_text(encoding="utf-8").splitlines()[1:]:
        cells = line.split(",")
        assert not cells[0].strip('"').startswith(("=", "+", "-", "@", "\t"))
    assert list(Sensitivities.load(tmp_path / "sens.csv").points) == points


COSTS = Costs((GroupCosts("a", "a", 8, 8, 1, 1),), (Width(8, {0: 1}),), (Term(100, 9, (0,)),)).to_json()


@pytest.mark.parametrize(
    ("key", "rows"),
    [
        ("groups", [["a", "a", 10**18, 10**18, 1, 0]]),
        ("groups", [["a", "a", 8, 2**19, 2**19, 0]]),
        ("groups", [["a", "a", 8, 8, 1, 1]] * 10_001),
        ("widths", [[10**30, [[0, 0]]]]),
        ("widths", [[8, []]] * 20_001),
        ("terms", [[1e300, 9, [0]]]),
        ("terms", [[float("inf"), 9, [0]]]),
        ("terms", [[100, 10**4000, [0]]]),
        ("terms", [[100, 9, [0] * 1000]]),
    ],
)
def test_costs_beyond_measure_are_refused(key, rows):
    with pytest.raises(InputError, match="the costs"):
        Costs.from_json({**COSTS, key: rows})


def test_many_groups_times_many_widths_are_refused():
    groups = [[f"{n}", f"{n}", 64, 64, 1, 1] for n in range(2000)]
    with pytest.raises(InputError, match="more groups and widths"):
        Costs.from_json({"groups": groups, "widths": [[64, []]] * 2000, "terms": []})


def test_points_count_without_such_costs(tmp_path, caplog):
    path = tmp_path / "sens.jsonl"
    with Journal.open(path, header()) as journal:
        journal.append(point(ratio=0.3))
    first, *rest = path.read_bytes().splitlines(keepends=True)
    fields = {**json.loads(first), "costs": {**COSTS, "terms": [[1e308, 9, [0] * 16]]}}
    path.write_bytes(json.dumps(fields).encode() + b"\n" + b"".join(rest))
    assert [p.ratio for p in Sensitivities.load(path).points] == [0.3]
    assert "FLOPs and parameters are unknown" in caplog.text


@pytest.mark.parametrize(
    "command", [["show"], ["ratios", "--loss", "0.2"], ["report", "-o", "页.html"]], ids=lambda c: c[0]
)
@pytest.mark.parametrize("coerced", [True, False])
def test_names_in_any_script_under_an_ascii_locale(tmp_path, command, coerced):
    named = header(paths={"卷积_0.w_0": "主干.weight"}, evaluator="精度")
    points = [point(param="卷积_0.w_0", path="主干.weight", ratio=ratio) for ratio in (0.3, 0.6)]
    (tmp_path / "日志.jsonl").write_bytes(b"".join(map(encode, [named, *points])))
    plain = {} if coerced else {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-m", "dysens", command[0], "日志.jsonl", *command[1:]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", **plain},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-1000:]
    assert done.stdout
