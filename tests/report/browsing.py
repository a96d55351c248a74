"""A real browser and real sensitivities for the report's page.

`python tests/report/browsing.py` makes docs/images/report_*.png; with the card.json of a compressed model, docs/images/card.png;
with pages (a card, a report, a comparison, the address of `dysens watch`), pictures of each in all its looks, in output/looks/.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from dysens.report import read_card, write_card, write_report
from dysens.results import Point, Sensitivities

HOME = Path(__file__).parents[2]
IMAGES = HOME / "docs" / "images"
PROGRAMS = ("chromium", "chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",  # CI runs as root, and Chromium has no sandbox there
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--lang=en",
)


def start_chromium(home: Path) -> webdriver.Chrome:
    """Headless Chromium with an empty profile in ``home``."""
    program, driver = map(shutil.which, PROGRAMS)
    options = webdriver.ChromeOptions()
    options.binary_location = str(program)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={home / 'profile'}"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=Service(driver))


def set_screen(
    browser: webdriver.Chrome, width: int, height: int = 900, dark: bool = False, paper: bool = False
) -> None:
    """The size of the window, what the reader's system prefers, and whether the page is laid out as for a printer."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    media = {"media": "print" if paper else "screen", "features": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)


def console(browser: webdriver.Chrome) -> list[str]:
    """What the console says since it was last asked."""
    return [entry["message"] for entry in browser.get_log("browser")]


def golden_sensitivities(name: str) -> Sensitivities:
    """PaddleSlim's sensitivities of a trained network, with what the network costs."""
    sys.path.insert(0, str(HOME / "tests"))
    from golden import INPUT_SHAPE, golden_results, trained

    from dysens import DygraphSensitivity

    costs = DygraphSensitivity(trained(name), INPUT_SHAPE).costs()
    results = golden_results(name)
    curves = results["criteria"]["fpgm"]["sensitivities"]
    points = [
        Point(param, costs.group(param).path, float(ratio), None, loss)
        for param, losses in curves.items()
        for ratio, loss in losses.items()
    ]
    return Sensitivities(points, results["baseline"], source=f"{name}.jsonl", costs=costs)


def picture_of_card(path: Path) -> None:
    """The picture in README, of the card of a compressed model. Without times: they say more of the machine than of the model."""
    card = read_card(path)
    states = tuple(replace(state, milliseconds=None) for state in card.states)
    with TemporaryDirectory() as folder:
        page = write_card(folder, replace(card, states=states))
        browser = start_chromium(Path(folder))
        try:
            set_screen(browser, 1085, 1060)
            browser.get(page.as_uri())
            browser.save_screenshot(str(IMAGES / "card.png"))
        finally:
            browser.quit()


def pictures_of_report() -> None:
    """Pictures of a report, for docs/report.md."""
    with TemporaryDirectory() as folder:
        page = write_report(
            golden_sensitivities("mobilenet_v1"), Path(folder, "report.html"), title="MobileNetV1 on digits"
        )
        browser = start_chromium(Path(folder))
        try:
            for name, width, height, dark, script in (
                ("light", 1120, 1400, False, "document.querySelector('input[value=flops]').click()"),
                ("phone", 390, 1180, False, ""),
                ("phone_zh", 390, 1180, True, "document.getElementById('language').click()"),
            ):
                set_screen(browser, width, height, dark)
                browser.get(page.as_uri())
                browser.execute_script(script)
                browser.save_screenshot(str(IMAGES / f"report_{name}.png"))
        finally:
            browser.quit()


# Width, dark or not, and whether it is printed: A4 has 794 dots.
LOOKS = {
    "desktop": (1120, False, False),
    "dark": (1120, True, False),
    "phone": (390, False, False),
    "phone_dark": (390, True, False),
    "print": (794, True, True),
}


def pictures_of_page(page: str) -> None:
    """The whole page on a desktop, on a phone and on paper, light and dark, English and Chinese."""
    address = page if page.startswith("http://") else Path(page).resolve().as_uri()
    name = "live" if page.startswith("http://") else Path(page).stem
    folder = HOME / "output" / "looks"
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as profile:
        browser = start_chromium(Path(profile))
        try:
            for look, (width, dark, paper) in LOOKS.items():
                for language in ("en", "zh"):
                    set_screen(browser, width, dark=dark)
                    browser.get(address)
                    if language == "zh":
                        browser.find_element("id", "language").click()
                    whole = browser.execute_script("return document.documentElement.scrollHeight")
                    set_screen(browser, width, whole, dark, paper)
                    browser.save_screenshot(str(folder / f"{name}_{look}_{language}.png"))
        finally:
            browser.quit()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        picture_of_card(Path(name)) if name.endswith(".json") else pictures_of_page(name)
    if not sys.argv[1:]:
        pictures_of_report()
