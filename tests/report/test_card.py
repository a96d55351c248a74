"""The model card: plain data, a page that holds everything, and names that may be anything."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from browsing import console, set_screen

from dysens.errors import InputError
from dysens.report import CARD_JSON, Card, CardState, card_page, read_card, sample, write_card

HOSTILE = (
    '</script><script>document.title="broken"</script>'
    """<img src=x onerror="document.title='broken'">{{title}} & "quoted" 'too'"""
)


def reading(regions=(), text=None):
    return SimpleNamespace(regions=regions, text=text)


def images():
    drawn = np.random.default_rng(0).integers(0, 255, (60, 200, 3)).astype("uint8")
    box = (((10.0, 10.0), (90.0, 10.0), (90.0, 40.0), (10.0, 40.0)), "text 0.98")
    return (
        sample(drawn, reading((box, box)), reading((box,))),
        sample(drawn, reading(text="JOINT-STOCK"), reading(text="JOINT-ST0CK")),
        sample(drawn, reading(text="中国银行"), reading(text="中国银行")),
    )


@pytest.fixture(scope="module")
def card() -> Card:
    states = (
        CardState("original", 0.961, 0.012, 1_500_000_000, 4_700_000, 5_000_000, 56.1),
        CardState("pruned", 0.948, 0.013, 740_000_000, 2_400_000, 2_600_000, 33.9),
        CardState("exported", 0.948, None, 740_000_000, 2_400_000, 2_600_000, 33.8),
    )
    return Card(
        "configs/ocr/ch_PP-OCRv4_det.yml",
        states,
        "hmean",
        framework="PaddleOCR",
        evaluated_on="DetMetric.hmean on pages/label.txt (64 images)",
        calibrated_on="images of Train (160)",
        criterion="elimination with folding, allocated by layer errors, folded in sequence",
        timed_on="a processor, paddle, one thread, median of calls in turns",
        output_error=0.0123,
        proofs={"masked_and_cut": 1.2e-5, "any other": 0.0},
        widths=tuple(
            (f"backbone.stage{place}.conv.weight", 8 * place + 8, 8 * (place // 2) + 8) for place in range(40)
        ),
        samples=images(),
        notes=("25 layers read few vectors.",),
        versions={"dysens": "0.2.0", "Paddle": "3.3.1"},
        seed=1024,
        date="2026-11-18T00:30:00+00:00",
        commands=("dysens compress a.yml --flops 50% -o out",),
    )


def test_what_is_written_is_read_again(card, tmp_path):
    page = write_card(tmp_path / "new" / "folder", card)
    assert page.read_text(encoding="utf-8") == card_page(card)
    assert read_card(page.with_name(CARD_JSON)) == card


def test_what_is_no_number_is_not_measured(card, tmp_path):
    odd = replace(card, states=(*card.states, CardState("trained", float("nan"))), output_error=float("inf"))
    found = read_card(write_card(tmp_path, odd).with_name(CARD_JSON))
    assert found.states[-1] == CardState("trained")
    assert found.output_error is None
    assert "nan" not in card_page(found)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"states": []},
        {"states": [{"state": 3}]},
        {"states": [{"state": "original", "score": "0.9"}]},
        {"model": ["a"]},
        {"widths": [["a", 1]]},
        {"widths": [["a", float("inf"), 1]]},
        {"notes": ["a" * 2**26]},
        {"proofs": {"a": "<script>"}},
        {"samples": [{"image": "https://example.com/a.png", "width": 1, "height": 1}]},
        {"notes": 5},
    ],
)
def test_a_file_that_is_no_card_is_a_sentence(card, tmp_path, change):
    path = tmp_path / CARD_JSON
    path.write_text(json.dumps({**json.loads(card.to_json()), **change}))
    with pytest.raises(InputError, match="is not a card that dysens wrote"):
        read_card(path)


def test_a_card_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_card(tmp_path / CARD_JSON)
    (tmp_path / CARD_JSON).write_text("[" * 100_000)
    with pytest.raises(InputError, match="is not a card"):
        read_card(tmp_path / CARD_JSON)


def shown(browser, page):
    """Open a page; its text, and what else it asked for."""
    browser.get(page.as_uri())
    return browser.execute_script("return document.body.innerText")


def test_the_page_in_a_browser(browser, card, tmp_path):
    page = write_card(tmp_path, card)
    set_screen(browser, 1200)
    text = shown(browser, page)
    assert "0.9480 ± 0.0130" in text
    assert "standard error of the score" in text
    assert "elimination with folding, allocated by layer errors, folded in sequence" in text
    assert "was 1.5 G\n−50.7%" in text
    assert "Channels before and after" in text
    assert "JOINT-ST0CK" in text
    browser.find_element("id", "language").click()
    text = browser.execute_script("return document.body.innerText")
    assert "剪枝前后的通道数" in text
    assert "Channels before" not in text
    assert "逐个剔除并入，分配方式：按层误差，按顺序并入" in text
    assert "a processor, paddle，单线程，轮流调用取中位数" in text
    background = "return getComputedStyle(document.body).backgroundColor"
    light = browser.execute_script(background)
    browser.find_element("id", "theme").click()
    assert browser.execute_script(background) != light
    # Every picture is inside the page, and was drawn.
    asked = "return performance.getEntriesByType('resource').filter(e => !e.name.startsWith('data:')).length"
    assert browser.execute_script(asked) == 0
    assert browser.execute_script("return document.querySelectorAll('figure image').length") == 3
    assert console(browser) == []


def test_the_page_on_a_phone_does_not_scroll_sideways(browser, card, tmp_path):
    page = write_card(tmp_path, replace(card, model="a" * 200))
    set_screen(browser, 375, 800, dark=True)
    shown(browser, page)
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    fits = "const box = document.querySelector('.stacked').parentElement; return box.scrollWidth <= box.clientWidth"
    assert browser.execute_script(fits)
    cell = browser.execute_script("return document.querySelector('.stacked td').innerText")
    assert cell.split() == ["hmean", "0.9610", "±", "0.0120"]  # its heading is beside it
    assert browser.execute_script("return document.documentElement.dataset.theme") == "dark"
    ink = "return getComputedStyle(document.body).color"
    on_screen = browser.execute_script(ink)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    on_paper = browser.execute_script(ink)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert (on_screen, on_paper) == ("rgb(227, 232, 239)", "rgb(27, 36, 48)")  # paper is light


def test_names_may_be_anything(browser, card, tmp_path):
    samples = sample(np.zeros((8, 8, 3), "uint8"), reading(text=HOSTILE), reading(text=""))
    boxed = sample(np.zeros((8, 8, 3), "uint8"), reading(((((0, 0), (1, 1), (0, 1)), HOSTILE),)), reading())
    odd = Card(
        HOSTILE,
        (CardState("original", 1.0, None, 10), CardState(HOSTILE, 0.5, None, 5)),
        HOSTILE,
        framework=HOSTILE,
        evaluated_on=HOSTILE,
        calibrated_on=HOSTILE,
        criterion=HOSTILE,
        proofs={HOSTILE: 0.0},
        widths=((HOSTILE, 8, 4),),
        samples=(samples, boxed),
        notes=(HOSTILE,),
        versions={HOSTILE: HOSTILE},
        date=HOSTILE,
        commands=(HOSTILE,),
        running=True,
    )
    set_screen(browser, 900)
    text = shown(browser, write_card(tmp_path, odd))
    assert browser.title.startswith("</script>")
    assert browser.execute_script("return document.querySelectorAll('img').length") == 0
    assert browser.execute_script("return document.scripts.length") == 1
    assert text.count("onerror=") >= 6
    assert console(browser) == []
