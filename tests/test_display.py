"""What a notebook shows: whole tables, with nothing that a name could break out of."""

from __future__ import annotations

import math
from html.parser import HTMLParser

import pytest
from networks import SHAPE, SmallNet, made

from dysens import DygraphSensitivity, Sensitivities
from dysens.display import loss_text
from dysens.groups import GroupList, Unprunable
from dysens.pruning import PruneOutcome, PrunePlan
from dysens.results import Point
from dysens.sweep import GroupRatio, SearchResult, SpotCheck, TaylorCurves

HOSTILE = "<img src=x onerror=alert(1)>&" + "a_long_name." * 9 + "weight"
ALLOWED = {"div", "table", "thead", "tbody", "tr", "th", "td", "p"}


class Shown(HTMLParser):
    """The rows of the tables and the texts below them."""

    def __init__(self, thing: object) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.notes: list[str] = []
        self.styles: list[str] = []
        self._in = ""
        self.feed(thing._repr_html_())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.styles.append(dict(attrs).get("style") or "")
        if tag == "p":
            self.notes.append("")
        self._in = tag

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in in ("td", "th"):
            self.rows[-1][-1] += data
        elif self._in == "p":
            self.notes[-1] += data


@pytest.fixture(scope="module")
def ds() -> DygraphSensitivity:
    return DygraphSensitivity(made(SmallNet), SHAPE)


def test_groups(ds: DygraphSensitivity) -> None:
    shown = Shown(ds.groups)
    assert shown.rows[0] == ["param", "path", "channels", "units", "layers", "rule"]
    assert [row[1] for row in shown.rows[1:]] == [group.path for group in ds.groups]
    assert Shown(GroupList()).notes == ["no groups"]


def test_reasons(ds: DygraphSensitivity) -> None:
    shown = Shown(Unprunable({"a": HOSTILE, "b": HOSTILE, "c": "it is <fixed>"}))
    assert shown.rows[1:] == [["a, b", HOSTILE], ["c", "it is <fixed>"]]
    assert "every 4-D weight is in a group" in Shown(Unprunable()).notes[0]
    assert len(Shown(ds.unprunable).rows) == 1 + len(ds.unprunable.by_reason())


def test_sensitivities() -> None:
    points = [
        Point("a", HOSTILE, 0.25, None, 0.5),
        Point("a", HOSTILE, 0.5, None, math.inf),
        Point("b", "", 0.5, None, -0.001),
    ]
    shown = Shown(Sensitivities(points, 0.9))
    assert shown.rows == [["", "0.25", "0.5"], [HOSTILE, "0.50", "none"], ["b", "", "0.00"]]
    assert [style[-5:-1] for style in shown.styles if style] == ["1.00", "1.00", "0.00"]
    assert "2 groups, 3 points, baseline 0.9" in shown.notes[0]
    assert Shown(Sensitivities([])).rows == [[""]]


def test_a_cut(ds: DygraphSensitivity) -> None:
    with ds.pruned({ds.groups[0].name: 0.5}) as outcome:
        shown = Shown(outcome)
    first = ds.groups[0]
    assert shown.rows[1] == [first.name, first.path, str(first.channels), str(first.channels // 2)]
    assert shown.notes[0].startswith("FLOPs")
    assert f"{outcome.params_after:,}" in shown.notes[1]
    nothing = Shown(PruneOutcome(5, 5, 3, 3, PrunePlan(()), (), (HOSTILE,)))
    assert nothing.notes[0] == "nothing was cut"
    assert HOSTILE in nothing.notes[-1]


def test_a_search() -> None:
    found = GroupRatio("a", HOSTILE, 0.3, None, 0.01, (0.0, 0.02), 0.5, 1.5)
    check = SpotCheck(HOSTILE, 0.9, 0.001, rises=False)
    shown = Shown(SearchResult((found,), 0.02, 0.95, 0.9, (check,)))
    assert shown.rows[1][:3] == ["a", HOSTILE, "0.3"]
    assert "target loss 0.02 against 0.9" in shown.notes[0]
    assert HOSTILE in shown.notes[-1]


def test_a_first_look() -> None:
    shown = Shown(TaylorCurves({"b": {0.5: 2.0}, "a": {0.5: 1e-5}}, {"a": HOSTILE, "b": "b.weight"}))
    assert [row[0] for row in shown.rows[1:]] == ["b.weight", HOSTILE]
    assert "training loss" in shown.notes[0]


@pytest.mark.parametrize(
    ("loss", "text"), [(0.126, "0.13"), (-0.004, "0.00"), (-1.0, "-1.00"), (math.inf, "none")]
)
def test_losses_in_two_digits(loss: float, text: str) -> None:
    assert loss_text(loss) == text
