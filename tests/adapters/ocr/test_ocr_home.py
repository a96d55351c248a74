"""Where PaddleOCR's code comes from. What must not be imported yet is tried in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dysens.adapters.ocr import load_ppocr
from dysens.errors import InputError

REPOSITORY = Path(__file__).parents[3]


def run(script: str, **environment: str) -> str:
    """What the script prints."""
    command = [sys.executable, "-W", "ignore", "-c", "import dysens\n" + script]
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY), **environment}
    return subprocess.run(
        command, env=variables, capture_output=True, text=True, check=True, timeout=300
    ).stdout


@pytest.fixture
def checkout(tmp_path):
    """A tree that looks like a checkout, but needs a package that nobody has."""
    (tmp_path / "ppocr" / "modeling").mkdir(parents=True)
    (tmp_path / "ppocr" / "utils").mkdir()
    for package in ("ppocr", "ppocr/modeling", "ppocr/utils"):
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "ppocr" / "utils" / "logging.py").write_text("import a_package_nobody_has\n")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "program.py").touch()
    return tmp_path


def test_same_home_is_loaded_once():
    ppocr = load_ppocr()
    assert load_ppocr(ppocr.home) is ppocr
    assert callable(ppocr.program.train)


def test_folder_that_is_no_checkout(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"the given folder .* is no PaddleOCR checkout"):
        load_ppocr(tmp_path)
    monkeypatch.setenv("PADDLEOCR_HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"PADDLEOCR_HOME .* is no PaddleOCR checkout"):
        load_ppocr()


def test_one_checkout_per_process(checkout):
    load_ppocr()
    with pytest.raises(InputError, match="already imported from"):
        load_ppocr(checkout)


def test_checkout_comes_before_the_wheel_and_missing_packages_are_named(checkout):
    script = """
from dysens.adapters.ocr import load_ppocr
from dysens.errors import MissingExtraError
try:
    load_ppocr()
except MissingExtraError as error:
    print(error)
"""
    printed = run(script, PADDLEOCR_HOME=str(checkout))
    assert str(checkout) in printed
    assert '"a_package_nobody_has"' in printed
    assert "pip install" in printed


def test_without_any_code_the_install_command_is_given():
    script = """
import dysens.adapters.ocr.ppocr as home
from dysens.errors import MissingExtraError
home.CODE_WHEEL = "a_package_nobody_has"
try:
    home.load_ppocr()
except MissingExtraError as error:
    print(error)
"""
    printed = run(script)
    assert "PADDLEOCR_HOME" in printed
    assert "pip install --no-deps -r configs/ocr/requirements-nodeps.txt" in printed


def test_ppocr_neither_prints_nor_configures_logging():
    script = """
import logging
root = logging.getLogger()
before = (root.level, list(root.handlers))
import paddle
after_paddle = (root.level, list(root.handlers))
from dysens.adapters.ocr import load_ppocr
load_ppocr()
assert (root.level, list(root.handlers)) == after_paddle
"""
    assert run(script) == ""
