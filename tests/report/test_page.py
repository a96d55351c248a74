"""The report in a real browser: what it shows is what Python computes, and it can be used by everybody."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml
from browsing import console, golden_sensitivities, set_screen
from results.common import PATHS, header, point
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from dysens.costs import Costs, GroupCosts, Term, Width
from dysens.ratios import RatioFile, predicted_loss, read_ratio_file, write_ratio_file
from dysens.report import write_report
from dysens.report._page import page_data
from dysens.results import Journal, Point, Sensitivities

HOSTILE = "</script><b>\"'&\u2028{{data}}\n.weight"


@pytest.fixture(scope="module")
def sens() -> Sensitivities:
    return golden_sensitivities("tiny_resnet")


@pytest.fixture(scope="module")
def report(sens: Sensitivities, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(sens, tmp_path_factory.mktemp("report") / "report.html", progress=False)


@pytest.fixture
def page(browser: Chrome, report: Path) -> Page:
    return Page(browser, report)


@pytest.fixture
def opened(browser: Chrome, tmp_path: Path) -> Callable[..., Page]:
    """Opens a report of the given sensitivities."""

    def opened(sens: Sensitivities, **options: str) -> Page:
        return Page(browser, write_report(sens, tmp_path / "report.html", progress=False, **options))

    return opened


class Page:
    """What a reader does and sees. When it is closed, the console has to be silent."""

    def __init__(self, browser: Chrome, file: Path, width: int = 1200, dark: bool = False) -> None:
        self.browser = browser
        self.file = file
        console(browser)
        self.load(width, dark)

    def load(self, width: int, dark: bool = False) -> None:
        set_screen(self.browser, width, dark=dark)
        self.browser.get(self.file.as_uri())
        assert console(self.browser) == []

    def script(self, code: str, *arguments: object) -> object:
        return self.browser.execute_script(code, *arguments)

    def find(self, selector: str):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def click(self, selector: str) -> None:
        self.script("arguments[0].click()", self.find(selector))

    def slide(self, position: int) -> None:
        code = """const slider = document.getElementById("slider"); slider.value = arguments[0];
                  for (const name of ["input", "change"]) slider.dispatchEvent(new Event(name, {bubbles: true}))"""
        self.script(code, position)

    def type(self, value: float) -> None:
        field = self.find("#exact")
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(str(value), Keys.TAB)

    @property
    def setting(self) -> float:
        return float(self.find("#exact").get_property("value"))

    @property
    def text(self) -> str:
        return str(self.find("body").text)

    def column(self, number: int) -> list[str]:
        code = "return [...document.querySelectorAll('#table tbody tr')].map(row => row.cells[arguments[0]].textContent)"
        return self.script(code, number)

    def rows(self) -> dict[str, dict[str, str]]:
        code = """return Object.fromEntries([...document.querySelectorAll("#table tbody tr")]
                  .map(row => [row.dataset.name, {...row.dataset}]))"""
        return self.script(code)

    def figure(self, name: str) -> float:
        return float(self.script("return document.getElementById(arguments[0]).dataset.value", name))

    def shows(self, sens: Sensitivities, ratios: Mapping[str, float]) -> None:
        """The table and the sums are those of these ratios."""
        rows = self.rows()
        assert {name: float(row["ratio"]) for name, row in rows.items() if row["ratio"]} == ratios
        losses = {name: predicted_loss(sens[name], ratio) for name, ratio in ratios.items()}
        shown = {name: float(row["loss"]) for name, row in rows.items() if name in ratios}
        assert shown == pytest.approx(losses, rel=1e-12)
        assert self.figure("loss") == pytest.approx(math.fsum(losses.values()), rel=1e-12)
        if sens.costs is None:
            return
        left = {name: sens.costs.group(name).channels_left(ratios.get(name, 0.0)) for name in rows}
        assert {name: int(row["left"]) for name, row in rows.items()} == left
        assert self.figure("flops") == pytest.approx(sens.costs.flops(ratios), rel=1e-12)
        assert self.figure("params") == sens.costs.params(ratios)


def wavy(groups: int, costs: Costs | None = None, prefix: str = "") -> Sensitivities:
    """Curves that fall at times, start below zero, and end without a score."""
    points = []
    for i in range(groups):
        for step, ratio in enumerate((0.0625, 0.1875, 0.3125, 0.5, 0.6875, 0.96)):
            loss = 0.04 * step * (1 + i % 5) / 3 - 0.03 * (step % 2) - 0.005
            unscored = i % 4 == 3 and step > 3
            points.append(
                Point(
                    f"conv2d_{i}.w_0",
                    f"{prefix}block.{i}.weight",
                    ratio,
                    None,
                    math.inf if unscored else loss,
                )
            )
    return Sensitivities(points, 0.75, costs=costs)


def odd_costs(groups: int) -> Costs:
    """Groups of few channels (so that halves have to be rounded), some with a table, some in blocks; a width that two share."""
    described, widths = [], []
    for i in range(groups):
        table = tuple(min(2 * step, 8 + step) for step in range(8))
        losing = table if i % 3 == 2 else 2 if i % 3 == 1 else 1
        described.append(
            GroupCosts(f"conv2d_{i}.w_0", f"block.{i}.weight", 16 if losing != 1 else 8, 8, 1 + i % 2, losing)
        )
        widths.append(Width(16 if losing != 1 else 8, {i: losing}))
    widths.append(Width(40, {0: 1, 1: 2}))
    terms = [
        Term(123.4, 17, ()),
        Term(0.3, 9, (groups,)),
        *(Term(7.7 + i, 3, (i, (i + 1) % groups)) for i in range(groups)),
    ]
    return Costs(tuple(described), tuple(widths), tuple(terms))


def test_the_loss_slider_gives_what_python_gives(page: Page, sens: Sensitivities) -> None:
    seen = set()
    for position in (0, 70, 224, 500, 1000):
        page.slide(position)
        page.shows(sens, sens.ratios_by_loss(page.setting))
        seen.add(page.setting)
    assert len(seen) == 5
    for threshold in (0.05, 0.0123, -0.01, 2):
        page.type(threshold)
        page.shows(sens, sens.ratios_by_loss(threshold))
    assert console(page.browser) == []


def test_the_page_opens_with_a_sensible_choice(page: Page, sens: Sensitivities) -> None:
    assert page.setting == page_data(sens, budgets=False)["threshold"]
    page.type(0.05)
    assert page.find("#monotone").is_selected()
    page.shows(sens, sens.ratios_by_loss(0.05))
    assert "up to which" in page.find("#hint").text


def test_paddleslims_rule_is_a_switch(page: Page, sens: Sensitivities) -> None:
    assert sens.ratios_by_loss(0.05) != sens.ratios_by_loss(0.05, monotone=False)
    page.click("#monotone")
    assert "PaddleSlim" in page.find("#hint").text
    for threshold in (0.0, 0.05, 0.2):
        page.type(threshold)
        page.shows(sens, sens.ratios_by_loss(threshold, monotone=False))
    page.click("#language")
    assert "PaddleSlim" in page.find("#hint").text
    page.click("#monotone")
    page.shows(sens, sens.ratios_by_loss(0.2))


def test_the_flops_slider_gives_what_python_gives(page: Page, sens: Sensitivities) -> None:
    page.click("input[value=flops]")
    last = int(page.find("#slider").get_property("max"))
    for position in (0, 10, 24, last):
        page.slide(position)
        target = page.setting / 100
        assert target == pytest.approx(0.02 * (position + 1))
        page.shows(sens, sens.ratios_by_flops(target))
        assert page.figure("flops") <= (1 - target) * sens.costs.whole_flops * (1 + 1e-9)
    page.type(33)
    assert page.setting in (32, 34)
    page.shows(sens, sens.ratios_by_flops(page.setting / 100))
    assert console(page.browser) == []


def test_odd_curves_and_odd_costs(opened: Callable[..., Page]) -> None:
    sens = wavy(7, odd_costs(7))
    page = opened(sens)
    for threshold in (-0.02, -0.005, 0.0, 0.01, 0.03, 0.0625, 0.1):
        page.type(threshold)
        page.shows(sens, sens.ratios_by_loss(threshold))
    page.click("#monotone")
    for threshold in (-0.02, -0.005, 0.0, 0.03, 0.1):
        page.type(threshold)
        page.shows(sens, sens.ratios_by_loss(threshold, monotone=False))
    page.click("input[value=flops]")
    for position in (0, 7, int(page.find("#slider").get_property("max"))):
        page.slide(position)
        page.shows(sens, sens.ratios_by_flops(page.setting / 100))
    assert "no score" in page.text


@pytest.mark.parametrize("kind", ["yaml", "json"])
def test_the_ratios_can_be_saved_and_copied(
    page: Page, sens: Sensitivities, kind: str, tmp_path: Path
) -> None:
    wanted = {sens.paths[name]: ratio for name, ratio in sens.ratios_by_loss(0.07).items()}
    page.type(0.07)
    behaviour = {"behavior": "allow", "downloadPath": str(tmp_path)}
    page.browser.execute_cdp_cmd("Browser.setDownloadBehavior", behaviour)
    page.click(f"[data-save={kind}]")
    file = tmp_path / f"ratios.{kind}"
    WebDriverWait(page.browser, 10).until(lambda _: file.exists() and file.stat().st_size)
    assert read_ratio_file(file) == RatioFile(pytest.approx(wanted, abs=1e-9))
    write_ratio_file(tmp_path / "ours", wanted, kind)
    assert read_ratio_file(file) == read_ratio_file(tmp_path / "ours")
    allow(page, "granted")
    page.click(f"[data-copy={kind}]")
    WebDriverWait(page.browser, 10).until(lambda _: page.find("#copied").text)
    assert page.find("#copied").text == "Copied."
    clipboard = "const done = arguments[0]; navigator.clipboard.readText().then(done, done)"
    assert page.browser.execute_async_script(clipboard) == file.read_text(encoding="utf-8")


def test_where_the_clipboard_is_out_of_reach_the_text_is_shown(page: Page, sens: Sensitivities) -> None:
    allow(page, "denied")
    page.type(0.05)
    page.click("[data-copy=yaml]")
    WebDriverWait(page.browser, 10).until(lambda _: page.find("#copied").text)
    assert "by hand" in page.find("#copied").text
    wanted = {sens.paths[name]: ratio for name, ratio in sens.ratios_by_loss(0.05).items()}
    assert yaml.safe_load(page.find("#text").get_property("value")) == pytest.approx(wanted, abs=1e-9)


def allow(page: Page, setting: str) -> None:
    for name in ("clipboard-write", "clipboard-read"):
        permission = {"permission": {"name": name}, "setting": setting}
        page.browser.execute_cdp_cmd("Browser.setPermission", permission)


def test_the_header_says_what_was_measured(browser, tmp_path):
    with Journal.open(tmp_path / "sens.jsonl", header()) as journal:
        for name in PATHS:
            journal.append(point(name, 0.5, 0.08))
    place = write_report(tmp_path / "sens.jsonl", tmp_path / "page.html", progress=False)
    browser.get(place.as_uri())
    said = browser.find_element("id", "about").text
    assert all(
        word in said
        for word in (header().model, header().evaluator, f"criterion {header().criterion}", "dysens ")
    )
    # Two layers that lose 8 % each at a half: 5 % of each would add up to a tenth.
    assert page_data(Sensitivities.load(tmp_path / "sens.jsonl"))["threshold"] == 0.05
    layers = [f"{path}.{place}" for path in PATHS.values() for place in range(2)]
    points = [
        Point(path, path, ratio, None, loss) for path in layers for ratio, loss in ((0.1, 0.01), (0.5, 0.9))
    ]
    assert page_data(Sensitivities(points, 0.9))["threshold"] == 0.02


def test_rows_are_sorted_by_any_column(page: Page, sens: Sensitivities) -> None:
    page.type(0.05)
    model_order = page.column(0)
    for number, key in enumerate(("label", "channels", "ratio", "left", "loss")):
        head = f"th[data-key={key}]"
        for turn in (0, 1):
            page.click(f"{head} button")
            shown = page.find(head).get_attribute("aria-sort")
            assert shown == ("ascending" if (key == "label") == (turn == 0) else "descending")
            values = page.column(number)
            if key != "label":
                assert list(map(float, values)) == sorted(map(float, values), reverse=shown == "descending")
            assert sorted(page.column(0)) == sorted(model_order)
    page.type(0.3)  # the order follows what is chosen
    losses = list(map(float, page.column(4)))
    assert losses == sorted(losses)
    page.shows(sens, sens.ratios_by_loss(0.3))


def test_both_languages(page: Page, sens: Sensitivities) -> None:
    assert "Choose ratios" in page.text
    page.click("#language")
    assert page.find("html").get_attribute("lang") == "zh-CN"
    assert "选择剪枝率" in page.text
    assert "Choose ratios" not in page.text
    page.type(0.1)
    page.shows(sens, sens.ratios_by_loss(0.1))
    assert "相对损失 0.1" in page.find("#slider").get_attribute("aria-valuetext")
    page.click("#language")
    assert "Choose ratios" in page.text
    code = "return Object.keys(WORDS.en).filter(key => typeof WORDS.en[key] !== typeof WORDS.zh[key]).length"
    assert page.script(code + " + Object.keys(WORDS.zh).length - Object.keys(WORDS.en).length") == 0


def test_the_language_is_the_readers(page: Page) -> None:
    agent = {"userAgent": page.script("return navigator.userAgent"), "acceptLanguage": "zh-CN"}
    page.browser.execute_cdp_cmd("Emulation.setUserAgentOverride", agent)
    try:
        page.load(1200)
        assert "选择剪枝率" in page.text
    finally:
        page.browser.execute_cdp_cmd("Emulation.setUserAgentOverride", {**agent, "acceptLanguage": "en"})


def test_the_language_can_be_given(opened: Callable[..., Page]) -> None:
    page = opened(wavy(2), language="zh", title="我的 <模型>")
    assert page.find("h1").text == "我的 <模型>"
    assert "FLOPs 和参数量未知" in page.text


@pytest.mark.parametrize("dark", [False, True])
def test_the_theme_follows_the_system_and_the_button(page: Page, dark: bool) -> None:
    page.load(1200, dark)
    colour = "return getComputedStyle(document.body).backgroundColor"
    first = page.script(colour)
    assert page.find("html").get_attribute("data-theme") == ("dark" if dark else "light")
    page.click("#theme")
    second = page.script(colour)
    assert page.find("html").get_attribute("data-theme") == ("light" if dark else "dark")
    assert (
        brightness(first) < 60 < 200 < brightness(second)
        if dark
        else brightness(second) < 60 < 200 < brightness(first)
    )


def brightness(colour: str) -> float:
    return sum(float(part) for part in colour[4:-1].split(",")) / 3


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_contrast(page: Page, dark: bool) -> None:
    page.load(1200, dark)
    code = """
      const parts = (text) => text.match(/[\\d.]+/g).map(Number);
      const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
      const over = ([r, g, b, a = 1], under) => [r, g, b].map((v, i) => v * a + under[i] * (1 - a));
      const ground = (e) => {
        if (!e) return [255, 255, 255];
        const own = parts(getComputedStyle(e).backgroundColor);
        return own.length === 3 ? own : over(own, ground(e.parentElement));
      };
      return [...document.querySelectorAll("h1, h2, p, dt, small, b, button, .modes span, th, td, figcaption, figure span")]
        .filter(e => e.textContent.trim() && e.offsetParent && !e.closest(".off")).map(e => {
          const [a, b] = [light(parts(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
          return [(a + 0.05) / (b + 0.05), e.tagName + " " + e.textContent.slice(0, 30)];
        }).sort((x, y) => x[0] - y[0])[0]"""
    contrast, where = page.script(code)
    assert contrast >= 4.5, where


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_phone_needs_no_sideways_scrolling(opened: Callable[..., Page], language: str) -> None:
    page = opened(wavy(60, prefix="student.backbone.a_rather_long_name.stage."), language=language)
    for width in (360, 320, 768):
        page.load(width)
        inside = "return [document.documentElement.scrollWidth, document.body.scrollWidth, innerWidth]"
        assert max(page.script(inside)[:2]) <= width


def test_a_shown_loss_is_never_above_the_limit_by_rounding(page: Page) -> None:
    limit = 0.01876
    page.type(limit)
    shown = [float(text) for text in page.column(4)]
    assert max(shown) == limit
    page.type(0.05)
    assert {len(text) for text in page.column(4)} == {len("0.0500")}


def test_nothing_jumps_while_the_slider_moves(page: Page) -> None:
    for width in (360, 1200):
        page.load(width)
        height = "return ['choose', 'table', 'curves'].map(id => document.getElementById(id).getBoundingClientRect().height)"
        first = page.script(height)
        for position in (0, 50, 300, 1000):
            page.slide(position)
            assert page.script(height) == first


def test_the_keyboard_is_enough(page: Page, sens: Sensitivities) -> None:
    before = page.setting
    page.find("#slider").send_keys(Keys.ARROW_RIGHT * 40)
    assert page.setting > before
    page.shows(sens, sens.ratios_by_loss(page.setting))
    page.find("input[value=loss]").send_keys(Keys.ARROW_RIGHT)
    page.find("#slider").send_keys(Keys.HOME)
    page.shows(sens, sens.ratios_by_flops(0.02))
    unnamed = """return [...document.querySelectorAll("button, input, textarea, [role=region], svg[role=img]")].filter(e =>
      !(e.textContent.trim() || e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.labels?.length)).length"""
    assert page.script(unnamed) == 0


def test_without_costs_only_the_loss_is_offered_and_why(opened: Callable[..., Page]) -> None:
    sens = wavy(3)
    page = opened(sens)
    assert page.find("input[value=flops]").get_property("disabled")
    assert "FLOPs and parameters are unknown" in page.text
    assert page.find("#flops").text == "unknown"
    assert not page.find("#budget-card").is_displayed()
    page.type(0.03)
    page.shows(sens, sens.ratios_by_loss(0.03))


@pytest.mark.parametrize("groups", [1, 120])
def test_few_and_many_groups(opened: Callable[..., Page], groups: int) -> None:
    sens = wavy(groups)
    page = opened(sens)
    page.slide(400)
    page.shows(sens, sens.ratios_by_loss(page.setting))
    assert len(page.browser.find_elements(By.CSS_SELECTOR, "#curves figure")) == groups
    assert len(page.browser.find_elements(By.CSS_SELECTOR, "#heat tbody tr")) == groups


def test_nothing_scored_and_nothing_full(opened: Callable[..., Page]) -> None:
    points = [
        Point("a", "a.weight", 0.5, math.nan, 0.1),
        Point("b", "b.weight", 0.5, 0.7, 0.1, share=0.5),
        Point("b", "b.weight", 0.7, math.nan, 0.1, share=0.5),
    ]
    sens = Sensitivities(points)
    page = opened(sens)
    page.slide(1000)
    page.shows(sens, {})
    assert page.column(2) == ["0.000", "–"]
    assert "2 points saw only part of the data" in page.text
    assert "1 points have no score" in page.text


def test_hostile_names_stay_text(opened: Callable[..., Page]) -> None:
    sens = Sensitivities([Point("w", HOSTILE, 0.5, 0.7, 0.01)], 0.9)
    page = opened(sens, title=HOSTILE)
    assert page.script("return document.querySelectorAll('main b:not([id]), main script').length") == 0
    assert page.script("return DATA.groups[0].path") == HOSTILE
    page.type(0.02)
    assert yaml.safe_load(page.script("return ratiosAs('yaml')")) == {HOSTILE: 0.5}
    assert json.loads(page.script("return ratiosAs('json')")) == {HOSTILE: 0.5}
