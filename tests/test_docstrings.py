"""Examples in docstrings run, so that a renamed name shows in them too."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "dysens"
MODULES = [
    ".".join(["dysens", *file.relative_to(PACKAGE).with_suffix("").parts])
    for file in sorted(PACKAGE.rglob("*.py"))
    if file.name not in ("__init__.py", "__main__.py") and ">>>" in file.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_run(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert doctest.testmod(import_module(module)).failed == 0
