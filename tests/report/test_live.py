"""The live page: follows a journal or a card, and only for this machine."""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.request
from dataclasses import replace
from threading import Thread

import pytest
from browsing import console
from results.common import PATHS, header, point
from selenium.webdriver.support.ui import WebDriverWait

from dysens.errors import InputError
from dysens.report import Card, CardState, shown_live, watch, write_card, write_report
from dysens.report._live import Watched
from dysens.results import Journal

CARD = Card(
    "a network",
    (CardState("original", 0.9, flops=100), CardState("pruned", 0.8, flops=50)),
    "acc",
    running=True,
)


class Watching:
    """A watch in a thread of its own; its address, and what it said."""

    def __init__(self, path, **settings):
        self.said = []
        self._thread = Thread(
            target=watch, args=(path,), kwargs={"say": self.said.append, "seconds": 0.05, **settings}
        )
        self._thread.start()
        while not self.said and self._thread.is_alive():
            self._thread.join(0.01)
        self.address = re.search(r"http://127\.0\.0\.1:\d+/", self.said[0]).group()

    def ended(self):
        self._thread.join(20)
        return not self._thread.is_alive()


def fetched(address, **headers):
    request = urllib.request.Request(address, headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode("utf-8")


def test_a_journal_as_it_grows(tmp_path):
    path = tmp_path / "sens.jsonl"
    watched = Watched(path)
    assert "Waiting for the first result" in watched.page()
    with Journal.open(path, header()) as journal:
        name = next(iter(PATHS))
        assert journal.claim(name, 0.25)
        assert watched.is_running()
        assert "Waiting for the first result" in watched.page()
        journal.append(point(name, 0.25, 0.1))
        version, page = watched.version(), watched.page()
        assert PATHS[name] in page
        assert version in page
        journal.append(point(name, 0.5, 0.3))
        assert watched.version() != version
        assert watched.page() != page
    assert not watched.is_running()  # it has let go


def test_a_live_page_says_where_ratios_by_flops_are(tmp_path):
    path = tmp_path / "sens.jsonl"
    with Journal.open(path, header()) as journal:
        journal.append(point(next(iter(PATHS)), 0.25, 0.1))
    assert '"live":true' in Watched(path).page()
    assert '"live":false' in write_report(path, tmp_path / "page.html", progress=False).read_text(
        encoding="utf-8"
    )


def test_lines_that_are_no_records_say_nothing(tmp_path):
    path = tmp_path / "sens.jsonl"
    path.write_text(
        '[]\n{"kind": "claim"}\n{"kind": "claim", "host": 1, "pid": "a", "started": {}}\n{"kind": "cla'
    )
    assert not Watched(path).is_running()
    assert "Waiting" in Watched(path).page()


def test_a_search_claims_nothing_and_runs_while_it_writes(tmp_path):
    path = tmp_path / "sens.jsonl"
    with Journal.open(path, header()) as journal:
        journal.append(point(next(iter(PATHS)), 0.25, 0.1))
    assert Watched(path).is_running()
    os.utime(path, (0, 0))
    assert not Watched(path).is_running()


def test_it_ends_with_the_run(tmp_path):
    write_card(tmp_path, CARD)
    watching = Watching(tmp_path)
    assert "a network" in fetched(watching.address)
    assert "still running" in fetched(watching.address)
    version = fetched(watching.address + "version")
    write_card(tmp_path, replace(CARD, running=False))
    assert watching.ended()
    assert watching.said[-1] == "The run is over."
    assert Watched(tmp_path).version() != version


def test_only_this_machine_and_only_two_addresses(tmp_path):
    write_card(tmp_path, CARD)
    watching = Watching(tmp_path)
    for address, headers in (
        (watching.address, {"Host": "example.com"}),
        (f"{watching.address}card.json", {}),
        (f"{watching.address}../../etc/passwd", {}),
    ):
        with pytest.raises(urllib.error.HTTPError):
            fetched(address, **headers)
    taken = int(watching.address.rsplit(":", 1)[1].strip("/"))
    with pytest.raises(InputError, match=f"The port {taken} cannot be used"):
        watch(tmp_path, port=taken)
    write_card(tmp_path, replace(CARD, running=False))
    assert watching.ended()


def test_a_browser_follows(browser, tmp_path):
    write_card(tmp_path, CARD)
    watching = Watching(tmp_path)
    browser.get(watching.address)
    assert "still running" in browser.execute_script("return document.body.innerText")
    write_card(tmp_path, replace(CARD, model="another one"))
    # The page loads itself anew.
    WebDriverWait(browser, 60).until(lambda shown: shown.title == "another one · dysens")
    asked = "return performance.getEntriesByType('resource').map(e => e.name)"
    assert all(name.startswith((watching.address, "data:")) for name in browser.execute_script(asked))
    assert browser.find_element("id", "live").text == "live"
    write_card(tmp_path, replace(CARD, running=False))
    assert watching.ended()
    WebDriverWait(browser, 60).until(lambda shown: shown.find_element("id", "live").text == "the run is over")
    assert [line for line in console(browser) if "favicon" not in line and "version" not in line] == []


def test_what_a_reader_set_stays_when_points_come(browser, tmp_path):
    path, (first, second) = tmp_path / "sens.jsonl", PATHS
    with Journal.open(path, header()) as journal:
        journal.append(point(first, 0.25, 0.1))
        assert journal.claim(first, 0.5)  # the run goes on
        watching = Watching(path)
        browser.get(watching.address)
        browser.find_element("id", "language").click()
        browser.find_element("id", "theme").click()
        theme = browser.execute_script("return document.documentElement.dataset.theme")
        browser.execute_script("exact.value = '0.07'; exact.dispatchEvent(new Event('input'))")
        journal.append(point(second, 0.25, 0.3))
        WebDriverWait(browser, 60).until(lambda shown: PATHS[second] in shown.page_source)
        asked = (
            "return [document.documentElement.lang, document.documentElement.dataset.theme, exact.value, "
            "performance.getEntriesByType('resource').map(e => e.name)]"
        )
        *shown, requests = browser.execute_script(asked)
    assert shown == ["zh-CN", theme, "0.07"]
    assert all(name.startswith((watching.address, "data:")) for name in requests)
    assert watching.ended()


def test_a_run_shows_itself_for_as_long_as_it_lasts(tmp_path):
    said = []
    with shown_live(tmp_path, opened=False, say=said.append, seconds=0.01) as address:
        assert "Waiting for the first result" in fetched(address)
        write_card(tmp_path, CARD)
        assert "a network" in fetched(address)
    assert address in said[0]
    with pytest.raises(urllib.error.URLError):
        fetched(address)
