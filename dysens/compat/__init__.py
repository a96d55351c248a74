"""PaddleSlim's names and arguments over dysens: an existing script changes one import line."""

from dysens.compat._functions import get_ratios_by_loss, load_sensitivities, merge_sensitive
from dysens.compat._pruners import FPGMFilterPruner, L1NormFilterPruner, L2NormFilterPruner

__all__ = [
    "FPGMFilterPruner",
    "L1NormFilterPruner",
    "L2NormFilterPruner",
    "get_ratios_by_loss",
    "load_sensitivities",
    "merge_sensitive",
]
