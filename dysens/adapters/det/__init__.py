"""PaddleDetection: a config in; a live model, its evaluator, its inputs and its Trainer out."""

from dysens.adapters.det._data import Detections, DetEvaluator
from dysens.adapters.det._export import export, score_exported
from dysens.adapters.det._labelled import labelled_evaluator
from dysens.adapters.det._ppdet import DetConfig, load_config
from dysens.adapters.det._task import DetTask, resumed_trainer
from dysens.adapters.det._weights import load_weights

__all__ = [
    "DetConfig",
    "DetEvaluator",
    "DetTask",
    "Detections",
    "export",
    "labelled_evaluator",
    "load_config",
    "load_weights",
    "resumed_trainer",
    "score_exported",
]
