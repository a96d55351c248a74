"""How a model is scored. People write their own: subclass `Evaluator`."""

from dysens.evaluators._evaluators import (
    Evaluator,
    Measurements,
    MetricEvaluator,
    UpdateCompute,
    UpdateEvaluator,
    checked_baseline,
    evaluate,
    metric_of,
    relative_loss,
)

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
