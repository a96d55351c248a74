"""The notebooks carry what they showed when they were run for real, and run again from a clean kernel."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
LARGEST = 400_000  # bytes; larger ones are slow to open where people look at repositories
MACHINE = re.compile(r"/(?:home|root|tmp|usr|work|Users)/|site-packages|\.venvs")


def named(notebook: Path) -> str:
    return notebook.stem


def read(notebook: Path) -> nbformat.NotebookNode:
    return nbformat.read(notebook, as_version=4)


def outputs_of(content: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [output for cell in content.cells if cell.cell_type == "code" for output in cell.outputs]


def texts_of(output: nbformat.NotebookNode) -> list[str]:
    """What an output says in words, without its pictures."""
    data = output.get("data", {})
    return [output.get("text", ""), *(text for kind, text in data.items() if kind.startswith("text/"))]


def test_there_are_four() -> None:
    assert [notebook.stem[:2] for notebook in NOTEBOOKS] == ["01", "02", "03", "04"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=named)
def test_the_committed_notebook_was_run_from_top_to_bottom(notebook: Path) -> None:
    content = read(notebook)
    nbformat.validate(content)
    counts = [cell.execution_count for cell in content.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert notebook.stat().st_size < LARGEST


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=named)
def test_the_committed_notebook_shows_pictures_and_no_noise(notebook: Path) -> None:
    outputs = outputs_of(read(notebook))
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 2
    assert not [
        output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"
    ]
    words = [text for output in outputs for text in texts_of(output)]
    assert not [text for text in words if MACHINE.search(text) or "\r" in text]


# 90 CPU seconds: README's and the documents' blocks make the calls of 01 and 03, cli/test_configs.py goes the way of PP-OCR,
# programs/test_commands.py that of an exported model.
@pytest.mark.once("test-all")
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=named)
def test_the_notebook_runs_from_a_clean_kernel(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DYSENS_NOTEBOOK", "small")
    content = read(notebook)
    NotebookClient(content, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert sum("image/png" in output.get("data", {}) for output in outputs_of(content)) >= 2
