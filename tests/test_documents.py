"""Every Python block in README.md and docs/*.md runs as it stands, one file after the other from top to bottom."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from document_commands import commands

from dysens import Sensitivities  # before any block imports paddle
from dysens.cli import parser

HOME = Path(__file__).parents[1]
DOCUMENTS = sorted([*HOME.glob("README*.md"), *HOME.glob("docs/**/*.md")])
OTHERS_TOOLS = {"tools/train.py"}  # of PaddleDetection and PaddleOCR
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s#]+)[^)]*\)")


def blocks_of(document: Path) -> list[tuple[int, str]]:
    """The line at which each block starts, and its code."""
    text = document.read_text(encoding="utf-8")
    return [(text.count("\n", 0, match.start(1)), match[1]) for match in BLOCK.finditer(text)]


def named(document: Path) -> str:
    return document.relative_to(HOME).as_posix()


# README_cn.md has the code of README.md, word for word: tests/test_readme.py compares them, as a test below does for docs/cn.
CHINESE = [d for d in DOCUMENTS if d.parent.name == "cn"]
WITH_BLOCKS = [d for d in DOCUMENTS if blocks_of(d) and d.name != "README_cn.md" and d not in CHINESE]
# Readers of README.md have Paddle 3. The others are shared out so that both stacks take about as long.
ON_PADDLE3 = {"README.md"}
# 25 s: cli/test_configs.py goes the same way on the same config.
LATER = {"docs/recipes.md"}


def on_its_stack(document: Path) -> Any:
    stack = "test-all" if named(document) in LATER else "paddle3" if named(document) in ON_PADDLE3 else ""
    marks = [pytest.mark.once(stack)] if stack else []
    return pytest.param(document, id=named(document), marks=marks)


def run(document: Path, blocks: list[tuple[int, str]]) -> None:
    """Run blocks of a document one after the other, in the current folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for line, code in blocks:
        # Empty lines before the code make a traceback point at the line of the document.
        exec(compile("\n" * line + code, str(document), "exec"), names)


@pytest.mark.parametrize("document", [on_its_stack(d) for d in WITH_BLOCKS if d.name != "README.md"])
def test_code_blocks_run(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(document, blocks_of(document))


@pytest.mark.once("paddle3")
def test_the_readmes_blocks_run_and_its_example_again_where_it_ran_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It trains the same weights, so that its journal is continued: nothing is measured twice."""
    monkeypatch.chdir(tmp_path)
    readme = HOME / "README.md"
    run(readme, blocks_of(readme))
    first = measured("sens.jsonl")
    assert first
    run(readme, blocks_of(readme)[:1])
    assert measured("sens.jsonl") == first


def measured(journal: str) -> list[tuple[object, ...]]:
    """What was measured, and in how many seconds; a second model in one process has other parameter names."""
    return [(p.path, p.ratio, p.metric, p.loss, p.seconds) for p in Sensitivities.load(journal).points]


@pytest.mark.parametrize("document", CHINESE, ids=named)
def test_a_chinese_document_has_the_code_of_the_english_one(document: Path) -> None:
    english = {code for _, code in blocks_of(HOME / "docs" / document.name)}
    assert english.issuperset(code for _, code in blocks_of(document))


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_links_to_files_lead_somewhere(document: Path) -> None:
    targets = [target for target in LINK.findall(document.read_text(encoding="utf-8")) if "://" not in target]
    missing = [target for target in targets if not (document.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_commands_have_the_options_that_they_are_shown_with(document: Path) -> None:
    for program, *words in commands(document.read_text(encoding="utf-8")):
        if program == "dysens":
            parser().parse_args(words)
        elif words[0] not in OTHERS_TOOLS:
            runpy.run_path(str(HOME / words[0]))["parse"](words[1:])


def test_every_public_call_of_paddleslims_dygraph_pruners_has_its_place() -> None:
    slim = pytest.importorskip("paddleslim.dygraph.prune", reason="PaddleSlim is on the stack paddle26 only")
    from paddleslim.dygraph.prune.pruning_plan import PruningPlan

    document = (HOME / "docs/coming-from-paddleslim.md").read_text(encoding="utf-8")
    inner = {
        "status",
        "add",
        "contains",
        "extend",
        "imperative_apply",
        "lazy_apply",
    }  # PaddleSlim's own steps
    names = {*slim.__all__, *vars(slim.FilterPruner), *vars(PruningPlan)}
    public = {name for name in names if not name.startswith("_")} - inner
    assert not {name for name in public if not re.search(rf"\b{name}\b", document)}


def test_the_readme_has_a_block_to_run() -> None:
    assert len(blocks_of(HOME / "README.md")) >= 1
