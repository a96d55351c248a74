"""Measuring how much accuracy each group is worth: sweep, search, and the processes that share them."""

from dysens.sweep._estimate import TaylorCurves, taylor_curves
from dysens.sweep._executors import (
    Executor,
    Here,
    StartWorker,
    Worker,
    WorkerFailedError,
    WorkerLostError,
)
from dysens.sweep._measurer import imported
from dysens.sweep._measuring import Measuring
from dysens.sweep._options import Build, Built, Observer, RunOptions, run_options, scorer_of
from dysens.sweep._processes import Processes
from dysens.sweep._ray import Ray
from dysens.sweep._result import GroupRatio, SearchResult, SpotCheck
from dysens.sweep._statistics import LOOKS, Comparison
from dysens.sweep._sweep import checked_ratios

__all__ = [
    "LOOKS",
    "Build",
    "Built",
    "Comparison",
    "Executor",
    "GroupRatio",
    "Here",
    "Measuring",
    "Observer",
    "Processes",
    "Ray",
    "RunOptions",
    "SearchResult",
    "SpotCheck",
    "StartWorker",
    "TaylorCurves",
    "Worker",
    "WorkerFailedError",
    "WorkerLostError",
    "checked_ratios",
    "imported",
    "run_options",
    "scorer_of",
    "taylor_curves",
]
