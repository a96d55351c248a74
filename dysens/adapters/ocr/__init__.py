"""PaddleOCR: from a config and weights to a network that dysens can measure, prune and hand back to training."""

from dysens.adapters.ocr._characters import (
    CharactersCut,
    cut_characters,
    preset_characters,
    wanted_characters,
)
from dysens.adapters.ocr._config import load_config, override
from dysens.adapters.ocr._evaluators import (
    DetCounts,
    OcrEvaluator,
    RecCounts,
    TextDetEvaluator,
    TextRecEvaluator,
)
from dysens.adapters.ocr._export import InferenceModel, export, score_exported
from dysens.adapters.ocr._fine_tuning import FineTuning, fine_tuning_of
from dysens.adapters.ocr._labelled import labelled_evaluator
from dysens.adapters.ocr._ppocr import Ppocr, load_ppocr
from dysens.adapters.ocr._released import find_weights, released_model, released_names
from dysens.adapters.ocr._task import OcrTask
from dysens.adapters.ocr._training import train
from dysens.adapters.ocr._weights import LoadedWeights, load_weights, reparameterize

__all__ = [
    "CharactersCut",
    "DetCounts",
    "FineTuning",
    "InferenceModel",
    "LoadedWeights",
    "OcrEvaluator",
    "OcrTask",
    "Ppocr",
    "RecCounts",
    "TextDetEvaluator",
    "TextRecEvaluator",
    "cut_characters",
    "export",
    "find_weights",
    "fine_tuning_of",
    "labelled_evaluator",
    "load_config",
    "load_ppocr",
    "load_weights",
    "override",
    "preset_characters",
    "released_model",
    "released_names",
    "reparameterize",
    "score_exported",
    "train",
    "wanted_characters",
]
