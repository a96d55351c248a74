"""PaddleOCR: from a config and weights to a network that dysens can measure, prune and hand back to training.

Example:
    >>> task = OcrTask(load_config("configs/ocr/ch_PP-OCRv3_det.yml"))  # doctest: +SKIP
    >>> task.model, task.evaluator, task.example_inputs  # doctest: +SKIP
"""

from dysens.adapters.ocr.config import load_config, override
from dysens.adapters.ocr.evaluators import DetCounts, DetEvaluator, OcrEvaluator, RecCounts, RecEvaluator
from dysens.adapters.ocr.export import Exported, InferenceModel, export, score_exported
from dysens.adapters.ocr.ppocr import Ppocr, load_ppocr
from dysens.adapters.ocr.released import find_weights, released_model, released_names
from dysens.adapters.ocr.task import OcrTask
from dysens.adapters.ocr.training import train
from dysens.adapters.ocr.weights import LoadedWeights, load_weights, reparameterize

__all__ = [
    "DetCounts",
    "DetEvaluator",
    "Exported",
    "InferenceModel",
    "LoadedWeights",
    "OcrEvaluator",
    "OcrTask",
    "Ppocr",
    "RecCounts",
    "RecEvaluator",
    "export",
    "find_weights",
    "load_config",
    "load_ppocr",
    "load_weights",
    "override",
    "released_model",
    "released_names",
    "reparameterize",
    "score_exported",
    "train",
]
