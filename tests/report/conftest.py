"""The browser that the tests of the report's page share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.metadata import version

import pytest
from browsing import PROGRAMS, start_chromium
from selenium import webdriver


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """The page does not depend on Paddle, so one stack tests it: the default one, with Paddle 3."""
    if not version("paddlepaddle").startswith("3."):
        pytest.skip("the page does not depend on Paddle; it is tested on the stack with Paddle 3")
    if None in map(shutil.which, PROGRAMS):
        _without_browser()
    chromium = start_chromium(tmp_path_factory.mktemp("chromium"))
    try:
        yield chromium
    finally:
        chromium.quit()


def _without_browser() -> None:
    """Skip; but in CI only if .ci/run says why there is none."""
    why = os.environ.get("DYSENS_NO_BROWSER", "")
    if os.environ.get("CI") == "true" and not why:
        pytest.fail("chromium and chromedriver are not installed, and .ci/run does not say why.")
    pytest.skip(f"chromium and chromedriver are not installed{f': {why}' if why else ''}")
