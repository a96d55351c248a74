"""Measuring how much accuracy each group is worth: sweep, search, and the processes that share them."""

from dysens.sweep._estimate import TaylorCurves, taylor_curves
from dysens.sweep._measuring import Measuring
from dysens.sweep._options import Build, Built, RunOptions, run_options, scorer_of
from dysens.sweep._result import GroupRatio, SearchResult, SpotCheck
from dysens.sweep._statistics import LOOKS, Comparison
from dysens.sweep._sweep import Observer, checked_ratios
from dysens.sweep._worker import imported

__all__ = [
    "LOOKS",
    "Build",
    "Built",
    "Comparison",
    "GroupRatio",
    "Measuring",
    "Observer",
    "RunOptions",
    "SearchResult",
    "SpotCheck",
    "TaylorCurves",
    "checked_ratios",
    "imported",
    "run_options",
    "scorer_of",
    "taylor_curves",
]
