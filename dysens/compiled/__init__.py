"""The exported forward of a live model, with masks as inputs, served where it was seen to agree."""

from dysens.compiled._batches import DEFAULT_CACHE_GIB, available_cores
from dysens.compiled._calls import Consumers
from dysens.compiled._copy import SYMPTOM, interpolation_rewritten, quietly
from dysens.compiled._evaluator_scorer import EvaluatorScorer, PartialEvaluation
from dysens.compiled._export import used_inputs
from dysens.compiled._forward import FastForward
from dysens.compiled._runtimes import is_installed
from dysens.compiled._scorer import FunctionScorer, Scorer, ServedWronglyError

__all__ = [
    "DEFAULT_CACHE_GIB",
    "SYMPTOM",
    "Consumers",
    "EvaluatorScorer",
    "FastForward",
    "FunctionScorer",
    "PartialEvaluation",
    "Scorer",
    "ServedWronglyError",
    "available_cores",
    "interpolation_rewritten",
    "is_installed",
    "quietly",
    "used_inputs",
]
