"""Both READMEs say the same; the pages beside them say what every package is for."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from document_commands import commands

from dysens.cli import main

HOME = Path(__file__).parents[1]
ENGLISH, CHINESE = ((HOME / name).read_text(encoding="utf-8") for name in ("README.md", "README_cn.md"))
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def skeleton(text: str) -> list[str]:
    """The kinds of lines in their order: headings by level, rows of tables, items, pictures, with repeated kinds told once."""
    kinds = [re.match(r"#+ |\||- |!\[|    |```", line) for line in FENCE.sub("```", text).splitlines()]
    found = [kind[0] for kind in kinds if kind]
    return [kind for before, kind in zip(["", *found], found) if kind != before or kind == "## "]


def code(text: str) -> list[str]:
    """Every line of code and every command, without comments; they alone are in the reader's language."""
    blocks = [*FENCE.findall(text), *re.findall(r"^    .*", text, re.MULTILINE)]
    return [re.sub(r"\s*#.*", "", line) for block in blocks for line in block.splitlines()]


def tables(text: str) -> list[int]:
    """How many cells every row of every table has."""
    return [line.count("|") for line in text.splitlines() if line.startswith("|")]


def targets(text: str) -> list[str]:
    """Where links and pictures lead, but for the link to the other language; a page in Chinese stands for the same in English."""
    links = [target for target in re.findall(r"\]\(([^)]+)\)", text) if not target.startswith("README")]
    return [target.replace("docs/cn/", "docs/") for target in links]


@pytest.mark.parametrize("aspect", [skeleton, code, tables, targets], ids=lambda aspect: aspect.__name__)
def test_both_languages_have_the_same(aspect) -> None:
    assert aspect(CHINESE) == aspect(ENGLISH)


def test_a_readme_is_short() -> None:
    assert max(len(text.splitlines()) for text in (ENGLISH, CHINESE)) < 150


@pytest.mark.parametrize("page", ["docs/packages.md", "docs/cn/packages.md"])
def test_every_package_has_its_line(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (HOME / page).read_text(encoding="utf-8")
    given: dict = {}
    monkeypatch.setattr("setuptools.setup", lambda **arguments: given.update(arguments))
    runpy.run_path(str(HOME / "setup.py"))
    lists = [given["install_requires"], *given["extras_require"].values()]
    files = [*HOME.glob("configs/*/requirements-nodeps.txt"), HOME / "tests/requirements-nodeps.txt"]
    lists += [[line for line in file.read_text().splitlines() if line[:1] not in ("#", "")] for file in files]
    names = {
        re.split(r"[\[<>=~! ]", requirement)[0].replace("_", "-") for part in lists for requirement in part
    }
    rows = "\n".join(line.split("|")[1] for line in readme.splitlines() if line.startswith("|"))
    told = set(re.findall(r"[\w.-]+", rows.replace("_", "-")))
    assert len(names) > 30
    assert sorted(names - told) == []


def test_the_commands_about_the_demo_work(demo_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(demo_home)
    # The others prune PP-OCRv3, which the tests of its tools do.
    runnable = [
        words
        for name, *words in commands(ENGLISH)
        if name == "dysens" and not any(word.startswith("configs/") for word in words)
    ]
    assert len(runnable) >= 4
    assert [main(words) for words in runnable] == [0] * len(runnable)
    assert {"report.html", "ratios.yml"} <= {path.name for path in demo_home.iterdir()}
