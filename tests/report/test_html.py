"""The report as a file: one page, nothing from elsewhere, and names that cannot break out of it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dysens.costs import Costs, GroupCosts, Term, Width
from dysens.errors import InputError, JournalError
from dysens.report import write_report
from dysens.results import Point, Sensitivities

HOSTILE = "</script><img src=x onerror=alert(1)>&\"'{{data}}.weight"


def measured(*paths: str, costs: bool = True) -> Sensitivities:
    points = [
        Point(f"conv2d_{i}.w_0", path, ratio, None, 0.02 * (i + 1) * ratio)
        for i, path in enumerate(paths)
        for ratio in (0.2, 0.5, 0.8)
    ]
    return Sensitivities(points, 0.9, source="sens.jsonl", costs=costs_of(*paths) if costs else None)


def costs_of(*paths: str) -> Costs:
    groups = tuple(GroupCosts(f"conv2d_{i}.w_0", path, 20, 20, 1, 1) for i, path in enumerate(paths))
    widths = tuple(Width(20, {i: 1}) for i in range(len(paths)))
    return Costs(groups, widths, (Term(7.0, 11, ()), *(Term(100.0, 9, (i,)) for i in range(len(paths)))))


class Parsed(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        tag, attributes = self.tags[-1] if self.tags else ("", {})
        self.texts.setdefault(attributes.get("id") or tag, data)

    @property
    def data(self) -> dict:
        return json.loads(self.texts["data"])


def test_one_file_that_needs_nothing_else(tmp_path: Path) -> None:
    page = Parsed(write_report(measured("stem.weight"), tmp_path / "report.html"))
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert not [tag for tag, attributes in page.tags if {"src", "href"} & attributes.keys()]
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in text
    assert "url(" not in text


def test_others_may_read_it_as_any_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    page = write_report(measured("stem.weight"), tmp_path / "report.html")
    assert page.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_names_cannot_break_out(tmp_path: Path) -> None:
    page = Parsed(write_report(measured(HOSTILE, "{{script}}"), tmp_path / "r.html", title=HOSTILE))
    assert page.data["groups"][0]["path"] == HOSTILE
    assert page.data["groups"][1]["path"] == "{{script}}"
    assert page.data["title"] == page.texts["title"] == HOSTILE
    assert sum(tag == "script" for tag, _ in page.tags) == 3
    assert not any(tag == "img" for tag, _ in page.tags)


def test_a_file_of_sensitivities_will_do(tmp_path: Path) -> None:
    measured("stem.weight").to_json(tmp_path / "sens.json")
    page = Parsed(write_report(tmp_path / "sens.json", tmp_path / "new" / "report.html", language="zh"))
    assert page.data["source"] == "sens.json"
    assert page.data["language"] == "zh"
    assert page.data["costs"] is not None


def test_losses_without_a_score_and_partial_points(tmp_path: Path) -> None:
    points = [
        Point("a", "a.weight", 0.5, float("nan"), 0.1),
        Point("a", "a.weight", 0.2, 0.8, 0.1, share=0.5),
        Point("b", "b.weight", 0.2, 0.8, 0.1, share=0.25),
    ]
    groups = Parsed(write_report(Sensitivities(points), tmp_path / "r.html")).data["groups"]
    assert [(g["label"], g["points"], g["partial"]) for g in groups] == [
        ("a", [[0.5, None]], [[0.2, 0.1, 0.5]]),
        ("b", [], [[0.2, 0.1, 0.25]]),
    ]


def test_costs_that_do_not_know_every_group_are_not_used(tmp_path: Path) -> None:
    sens = measured("a.weight", "b.weight", costs=False)
    data = Parsed(write_report(sens, tmp_path / "r.html", costs=costs_of("a.weight"))).data
    assert data["costs"] is None
    assert data["withoutCosts"] == ["b"]
    assert data["targets"] == []


def test_groups_come_in_the_order_of_the_model(tmp_path: Path) -> None:
    sens = measured("a.weight", "b.weight", "c.weight")
    points = sorted(sens.points, key=lambda point: point.path, reverse=True)
    mixed = Sensitivities(points, costs=costs_of("a.weight", "b.weight", "c.weight"))
    data = Parsed(write_report(mixed, tmp_path / "r.html")).data
    assert [group["label"] for group in data["groups"]] == ["a", "b", "c"]


def test_what_cannot_be_reported_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no points"):
        write_report(Sensitivities([]), tmp_path / "r.html")
    with pytest.raises(InputError, match='"en", "zh" or None'):
        write_report(measured("a"), tmp_path / "r.html", language="fr")
    with pytest.raises(JournalError, match="nowhere"):
        write_report(tmp_path / "nowhere.jsonl", tmp_path / "r.html")
    assert not list(tmp_path.iterdir())
