"""A detector that is cheap to measure, and the tools as a user starts them."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from dysens.data import make_layout_pages

ROOT = Path(__file__).parents[2]
LAYOUT = ROOT / "configs" / "det" / "picodet_lcnet_layout.yml"
# Half of the size that it was trained for: it still finds something, and a forward takes a quarter of the time.
HEIGHT, WIDTH = 416, 320
TRANSFORMS = (
    f"[{{Decode: {{}}}}, {{Resize: {{target_size: [{HEIGHT}, {WIDTH}], keep_ratio: false, interp: 2}}}}, {{NormalizeImage: "
    "{mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225], is_scale: true}}, {Permute: {}}]"
)


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
    sizes = [
        f"EvalReader.sample_transforms={TRANSFORMS}",
        f"TestReader.inputs_def.image_shape=[3, {HEIGHT}, {WIDTH}]",
        f"TrainReader.batch_transforms=[BatchRandomResize: {{target_size: [{HEIGHT}, {WIDTH}], random_size: false, "
        "random_interp: false, keep_ratio: false}, NormalizeImage: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, "
        "0.225], is_scale: true}, Permute: {}]",
    ]
    short = ["epoch=1", "TrainReader.batch_size=2", "LearningRate.base_lr=0.00001", f"save_dir={folder}"]
    return ["-c", LAYOUT, "-o", *paths, *sizes, *short]


@pytest.fixture(scope="session")
def layout_folder(layout_options):
    """Where the tools put the files of that detector."""
    save_dir = next(each for each in layout_options if str(each).startswith("save_dir="))
    return Path(str(save_dir).removeprefix("save_dir=")) / "picodet_lcnet_layout_pruned"
