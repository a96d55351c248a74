"""PaddleDetection: a config in; a live model, its evaluator, its inputs and its Trainer out.

Example:
    >>> from dysens.adapters import det
    >>> task = det.DetTask(det.load_config("configs/det/picodet_lcnet_layout.yml"))  # doctest: +SKIP
    >>> task.evaluator.name  # doctest: +SKIP
    'COCO bbox mAP on val/annotations.json, 40 images'
"""

from __future__ import annotations

from dysens.adapters.det.evaluator import Detections, DetEvaluator
from dysens.adapters.det.export import export, score_exported
from dysens.adapters.det.resuming import resumed_trainer
from dysens.adapters.det.task import DetTask
from dysens.adapters.det.weights import load_weights
from dysens.adapters.det.workspace import DetConfig, load_config

__all__ = [
    "DetConfig",
    "DetEvaluator",
    "DetTask",
    "Detections",
    "export",
    "load_config",
    "load_weights",
    "resumed_trainer",
    "score_exported",
]
