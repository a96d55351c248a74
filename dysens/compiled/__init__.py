"""The exported forward of a live model, with masks as inputs, served where it was seen to agree."""

from dysens.compiled._batches import DEFAULT_CACHE_GIB
from dysens.compiled._evaluator_scorer import EvaluatorScorer, PartialEvaluation
from dysens.compiled._forward import FastForward
from dysens.compiled._lanes import available_cores
from dysens.compiled._masks import Consumers
from dysens.compiled._paddle_workarounds import SYMPTOM, interpolation_rewritten
from dysens.compiled._scorer import FunctionScorer, Scorer, ServedWronglyError
from dysens.compiled._steps import SYMBOLIC, needed

__all__ = [
    "DEFAULT_CACHE_GIB",
    "SYMBOLIC",
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
    "needed",
]
