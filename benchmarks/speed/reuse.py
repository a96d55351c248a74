"""Whether computing the beginning of the forward once for all ratios pays: sweeps with it and without, in turns."""

from __future__ import annotations

import time
from unittest.mock import patch

import numpy as np
import paddle
from store import Figures, sized
from subjects import ocr_det

from dysens import DygraphSensitivity
from dysens.compiled import EvaluatorScorer
from dysens.evaluators import Evaluator, UpdateEvaluator

IMAGES, SIDE, SCENES = sized((32, 128, 4), (8, 32, 1))


class Confidence:
    """How sure a classifier is: a score for a network without training."""

    def __init__(self) -> None:
        self._values: list[float] = []

    def update(self, outputs: paddle.Tensor, batch: object) -> None:
        self._values.append(float(paddle.nn.functional.softmax(outputs).max(axis=1).mean()))

    def compute(self) -> float:
        return float(np.mean(self._values))


def measure() -> Figures:
    """ResNet-18 and PP-OCRv3 det, the whole grid."""
    subject = ocr_det(SCENES)
    return {
        "ResNet-18": _compared(paddle.vision.models.resnet18(), [1, 3, SIDE, SIDE], _pictures()),
        "PP-OCRv3 det": _compared(subject.model, subject.shape, subject.evaluator),
    }


def _pictures() -> Evaluator:
    random = np.random.default_rng(0)
    images = random.standard_normal((IMAGES // 8, 8, 3, SIDE, SIDE)).astype("float32")
    return UpdateEvaluator([[paddle.to_tensor(batch)] for batch in images], Confidence)


def _compared(model: paddle.nn.Layer, shape: list[int], evaluator: Evaluator) -> Figures:
    model.eval()
    ds = DygraphSensitivity(model, shape)
    start = time.process_time()
    shared = ds.sensitive(evaluator, progress=False, fast="on")
    with_it = time.process_time() - start
    start = time.process_time()
    with patch.object(EvaluatorScorer, "expect", lambda scorer, work: None):
        alone = ds.sensitive(evaluator, progress=False, fast="on")
    without = time.process_time() - start
    apart = [abs(a.metric - b.metric) for a, b in zip(shared.points, alone.points)]
    print(with_it, without, max(apart), flush=True)
    return {"with": with_it, "without": without, "points": len(apart), "largest_difference": max(apart)}
