"""A detector that is cheap to measure, and the tools as a user starts them."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from layout_size import HALF_SIZE

from dysens.data import make_layout_pages

ROOT = Path(__file__).parents[2]
LAYOUT = ROOT / "configs" / "det" / "picodet_lcnet_layout.yml"


def run_tool(name: str, *arguments: str) -> None:
    """Runs tools/<name>.py in this process."""
    runpy.run_path(str(ROOT / "tools" / f"{name}.py"))["main"]([str(each) for each in arguments])


def start_tool(name: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Starts tools/<name>.py in a process of its own."""
    command = [sys.executable, str(ROOT / "tools" / f"{name}.py"), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="session")
def layout_options(tmp_path_factory):
    """``-c`` and ``-o`` of the released layout detector on three small pages, with its files in a folder of its own."""
    folder = tmp_path_factory.mktemp("layout")
    make_layout_pages(folder / "pages", 3, seed=5)
    paths = [
        f"{role}.dataset_dir={folder / 'pages'}" for role in ("TrainDataset", "EvalDataset", "TestDataset")
    ]
    short = ["epoch=1", "TrainReader.batch_size=2", "LearningRate.base_lr=0.00001", f"save_dir={folder}"]
    return ["-c", LAYOUT, "-o", *paths, *HALF_SIZE, *short]


@pytest.fixture(scope="session")
def layout_folder(layout_options):
    """Where the tools put the files of that detector."""
    save_dir = next(each for each in layout_options if str(each).startswith("save_dir="))
    return Path(str(save_dir).removeprefix("save_dir=")) / "picodet_lcnet_layout_pruned"
