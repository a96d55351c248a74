"""docs/coverage.json as it was measured: both stacks agree, and every reason is one that docs/concepts.md lists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dysens.pruning import TOLERANCE

DOCS = Path(__file__).parents[1] / "docs"
ROWS = json.loads((DOCS / "coverage.json").read_text(encoding="utf-8"))
STACKS = {"paddle3", "paddle26"}


def listed_reasons() -> list[re.Pattern[str]]:
    """The first column of the table of reasons: dots stand for anything, and a slash separates two wordings."""
    text = (DOCS / "concepts.md").read_text(encoding="utf-8")
    table = text.split("| reason | what it means |", 1)[1].split("\n\n", 1)[0]
    cells = [line.split("|")[1].strip() for line in table.splitlines()[2:]]
    wordings = [wording for cell in cells for wording in cell.split(" / ")]
    return [re.compile(".*".join(map(re.escape, wording.split("...")))) for wording in wordings]


@pytest.mark.parametrize("network", sorted({row["network"] for row in ROWS}))
def test_every_reason_is_listed(network):
    listed = listed_reasons()
    assert len(listed) > 10
    for row in (row for row in ROWS if row["network"] == network):
        for reason in row["unprunable"]:
            assert any(pattern.search(reason) for pattern in listed), reason


@pytest.mark.parametrize("network", sorted({row["network"] for row in ROWS}))
def test_both_stacks_find_the_same(network):
    rows = {row["stack"]: row for row in ROWS if row["network"] == network}
    assert set(rows) == STACKS
    for key in ("weights", "depthwise", "groups", "rules"):
        assert rows["paddle3"][key] == rows["paddle26"][key], key
    assert max(row["difference"] for row in rows.values()) < TOLERANCE
