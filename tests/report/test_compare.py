"""Several files of sensitivities in one page."""

from __future__ import annotations

import pytest
from browsing import console, set_screen
from results.common import PATHS, header, point
from test_html import HOSTILE, measured

from dysens.cli import main
from dysens.errors import InputError
from dysens.report import write_comparison
from dysens.results import Journal


def journal(path, losses, **changes):
    path.parent.mkdir(parents=True, exist_ok=True)
    with Journal.open(path, header(**changes)) as opened:
        for name in PATHS:
            for ratio, loss in losses.items():
                opened.append(point(name, ratio, loss))
    return path


@pytest.fixture
def two(tmp_path):
    first = journal(tmp_path / "monday" / "sens.jsonl", {0.25: 0.02, 0.5: 0.01, 0.75: 0.4})
    second = journal(tmp_path / "tuesday" / "sens.jsonl", {0.25: 0.05, 0.5: 0.2}, criterion="l1")
    return first, second


def test_the_page_in_a_browser(browser, two, tmp_path):
    page = write_comparison(two, tmp_path / "page.html")
    set_screen(browser, 1200)
    browser.get(page.as_uri())
    text = browser.execute_script("return document.body.innerText")
    # Files of one name are told apart by their folders.
    assert "monday/sens.jsonl" in text
    assert "tuesday/sens.jsonl" in text
    assert (
        "± 0.0071" in text
    )  # the first has a point that is lower than the one before it; the second says nothing
    assert "0.0200" in text  # the prediction at a half never falls below what a quarter loses
    assert "0.2000" in text
    browser.find_element("id", "language").click()
    text = browser.execute_script("return document.body.innerText")
    assert "敏感度对比" in text
    assert "Sensitivities compared" not in text
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    set_screen(browser, 375, 800, dark=True)
    browser.get(page.as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    inside = "const box = document.querySelector('#runs .scroll'); return box.scrollWidth <= box.clientWidth"
    assert browser.execute_script(inside)  # no column of the table is out of sight
    assert "baseline" in browser.execute_script("return document.querySelector('#runs tbody').innerText")
    assert console(browser) == []


def test_budgets_are_compared_where_costs_are_known(tmp_path):
    files = []
    for number, paths in enumerate((("a.weight", "b.weight"), ("a.weight", HOSTILE))):
        files.append(tmp_path / f"{number}.json")
        measured(*paths).to_json(files[-1])
    text = write_comparison(files, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "What a share of the FLOPs costs" in text
    assert "<img" not in text
    assert "do not have the same layers" in text


def test_what_cannot_be_compared_is_said(two, tmp_path, capsys):
    with pytest.raises(InputError, match="2 to 6 files"):
        write_comparison(two[:1], tmp_path / "page.html")
    empty = journal(tmp_path / "empty.jsonl", {})
    with pytest.raises(InputError, match="no points"):
        write_comparison([two[0], empty], tmp_path / "page.html")
    words = ["report", *map(str, two), "-o", str(tmp_path / "page.html")]
    assert main([*words, "--title", "mine"]) == 1
    assert "--title goes with the report of one file" in capsys.readouterr().err
    assert main(words) == 0
    assert (tmp_path / "page.html").is_file()
