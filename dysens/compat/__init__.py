"""PaddleSlim's names and arguments over dysens: an existing script changes one import line."""

from dysens.compat._functions import get_ratios_by_loss, load_sensitivities, merge_sensitive
from dysens.compat._pruners import FPGMFilterPruner, L1NormFilterPruner, L2NormFilterPruner
from dysens.compat._static_pruner import Pruner
from dysens.compat._static_sensitivity import analysis_prune, sensitivity

__all__ = [
    "FPGMFilterPruner",
    "L1NormFilterPruner",
    "L2NormFilterPruner",
    "Pruner",
    "analysis_prune",
    "get_ratios_by_loss",
    "load_sensitivities",
    "merge_sensitive",
    "sensitivity",
]
