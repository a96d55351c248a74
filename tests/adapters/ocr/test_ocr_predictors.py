"""PaddleOCR's own predictors read what dysens exports: the same boxes and strings as of the live network."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import paddle
import pytest

from dysens.adapters.ocr import OcrTask, cut_characters, load_ppocr, preset_characters
from dysens.data import Fonts, find_fonts, write_lines
from dysens.sensitivity import DygraphSensitivity

# The wheel is of PaddleOCR 2.10, whose predictors cannot read the programs that Paddle 3 saves. Those of a 3.x checkout can.
pytestmark = pytest.mark.skipif(
    not paddle.__version__.startswith("2.") and "PADDLEOCR_HOME" not in os.environ,
    reason="PaddleOCR 2's predictors read no programs of Paddle 3",
)


class Live:
    """A live network with the face of a predictor, and of its one input and output."""

    def __init__(self, network: paddle.nn.Layer) -> None:
        self.network = network
        self.name = "live"
        self.calls = 0

    def copy_from_cpu(self, images: np.ndarray) -> None:
        self.images = paddle.to_tensor(images)

    def run(self) -> None:
        self.calls += 1
        self.network.eval()
        with paddle.no_grad():
            outputs = paddle.utils.flatten(self.network(self.images))
        self.output = outputs[0].numpy()

    def copy_to_cpu(self) -> np.ndarray:
        return self.output

    def try_shrink_memory(self) -> None:
        """Nothing to give back."""


def predictor(kind: str, folder: Path, dictionary: str = "") -> Any:
    """`TextDetector` or `TextRecognizer` of PaddleOCR on a folder."""
    load_ppocr()
    module = importlib.import_module(f"tools.infer.predict_{kind}")
    arguments = importlib.import_module("tools.infer.utility").init_args().parse_args([])
    arguments.use_gpu = False
    arguments.rec_batch_num = 2
    setattr(arguments, f"{kind}_model_dir", str(folder))
    if dictionary:
        arguments.rec_char_dict_path = dictionary
    return (module.TextDetector if kind == "det" else module.TextRecognizer)(arguments)


def use_live(found: Any, network: paddle.nn.Layer) -> Live:
    """Let PaddleOCR's pre- and post-processing work on a live network."""
    live = Live(network)
    found.predictor = found.input_tensor = live
    found.output_tensors = [live]
    return live


def test_boxes_of_a_pruned_detector(config, images, tmp_path):
    task = OcrTask(config("ch_PP-OCRv3_det"))
    ds = DygraphSensitivity(task.model, [1, 3, 64, 64])
    ds.prune_vars({ds.groups[-1].path: 0.25, ds.groups[len(ds.groups) // 2].path: 0.25})
    task.export(tmp_path)
    pictures = [cv2.imread(str(path)) for path in sorted((images / "det_eval").glob("*.png"))[:3]]
    found = predictor("det", tmp_path)
    exported = [found(picture)[0] for picture in pictures]
    live = use_live(found, task.model)
    assert sum(map(len, exported)) >= 3
    for boxes, picture in zip(exported, pictures):
        np.testing.assert_array_equal(boxes, found(picture)[0])
    assert live.calls == 3


def test_strings_of_a_recogniser_with_fewer_characters(config, tmp_path):
    lines = write_lines(tmp_path / "lines", 6, seed=5, fonts=Fonts(find_fonts().latin))
    named = [line.split("\t") for line in lines.read_text().splitlines()]
    pictures = [cv2.imread(str(tmp_path / "lines" / name)) for name, _ in named]
    task = OcrTask(config("ch_PP-OCRv3_rec"))
    cut_characters(task, preset_characters("ascii"), tmp_path / "ascii")
    task.export(tmp_path / "ascii" / "inference")
    found = predictor("rec", tmp_path / "ascii" / "inference", str(tmp_path / "ascii" / "dictionary.txt"))
    exported = found(pictures)[0]
    live = use_live(found, task.model)
    expected = found(pictures)[0]
    assert live.calls == 3
    assert [text for text, _ in exported] == [text for text, _ in expected]
    assert [score for _, score in exported] == pytest.approx([score for _, score in expected], abs=1e-3)
    read = sum(
        text.replace(" ", "") == label.replace(" ", "") for (text, _), (_, label) in zip(exported, named)
    )
    assert read >= 3, exported  # and most of it is what is written there
