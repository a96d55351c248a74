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


def run(script: str, *arguments: str) -> str:
    """What the script prints."""
    command = [sys.executable, "-W", "ignore", "-c", "import dysens\n" + script, *arguments]
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    variables.pop("PADDLEOCR_HOME", None)
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
    with pytest.raises(InputError, match=r"the given folder .* is not a PaddleOCR checkout"):
        load_ppocr(tmp_path)
    monkeypatch.setenv("PADDLEOCR_HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"PADDLEOCR_HOME .* is not a PaddleOCR checkout"):
        load_ppocr()


def test_one_checkout_per_process(checkout):
    load_ppocr()
    with pytest.raises(InputError, match="already imported from"):
        load_ppocr(checkout)


def test_what_is_missing_is_said_with_the_install_command(checkout):
    """First no code at all, then a checkout, which comes before the wheel, with a package missing."""
    script = """
import os, sys
import dysens.adapters.ocr._ppocr as home
from dysens.errors import MissingExtraError
wheel, home.CODE_WHEEL = home.CODE_WHEEL, "a_wheel_nobody_has"
for variables in ({}, {"PADDLEOCR_HOME": sys.argv[1]}):
    os.environ.update(variables)
    try:
        home.load_ppocr()
    except MissingExtraError as error:
        print(error)
    home.CODE_WHEEL = wheel
"""
    no_code, no_package = run(script, str(checkout)).splitlines()
    assert "set PADDLEOCR_HOME to its folder" in no_code
    assert f'"{checkout}" imports "a_package_nobody_has"' in no_package
    for printed in (no_code, no_package):
        assert 'pip install "dysens[ocr]" && pip install --no-deps unstructured-paddleocr==' in printed


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


def test_another_package_called_tools(tmp_path):
    """It does not get in PaddleOCR's way, and its owner goes on with it."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").touch()
    (tmp_path / "tools" / "mine.py").write_text("ANSWER = 42\n")
    script = """
import sys
sys.path.insert(0, sys.argv[1])
import tools, tools.mine
from dysens.adapters.ocr import load_ppocr
program = load_ppocr().program
import tools.mine as again
assert again is sys.modules["tools.mine"] and "tools.infer" not in sys.modules
print(callable(program.train), again.ANSWER, tools.__path__ == [sys.argv[1] + "/tools"])
"""
    assert run(script, str(tmp_path)).split() == ["True", "42", "True"]


def test_a_checkout_with_a_part_missing(checkout):
    (checkout / "ppocr" / "utils" / "logging.py").write_text("import tools.infer.utility\n")
    script = """
import sys
from dysens.adapters.ocr import load_ppocr
from dysens.errors import InputError
try:
    load_ppocr(sys.argv[1])
except InputError as error:
    print(error)
"""
    assert 'imports "tools.infer", which is a part of it but is not there' in run(script, str(checkout))
