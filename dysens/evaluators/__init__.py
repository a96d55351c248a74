"""How a model is scored. People write their own: subclass `Evaluator`."""

from dysens.evaluators._evaluator import (
    Evaluator,
    Measurements,
    checked_baseline,
    evaluate,
    metric_of,
    relative_loss,
)
from dysens.evaluators._metric import MetricEvaluator, UpdateCompute, UpdateEvaluator

__all__ = [
    "Evaluator",
    "Measurements",
    "MetricEvaluator",
    "UpdateCompute",
    "UpdateEvaluator",
    "checked_baseline",
    "evaluate",
    "metric_of",
    "relative_loss",
]
