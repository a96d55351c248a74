"""Measuring how much accuracy each group is worth: sweep, search, and the processes that share them."""

from dysens.sweep._estimate import TaylorCurves, taylor_curves
from dysens.sweep._examiner import Examiner
from dysens.sweep._executors import (
    Executor,
    Here,
    StartWorker,
    Worker,
    WorkerFailedError,
    WorkerLostError,
)
from dysens.sweep._forecast import Forecast
from dysens.sweep._measurer import Greeting, built, imported, load_weights, weights_of
from dysens.sweep._measuring import Measuring, opened_pool
from dysens.sweep._options import Build, Built, Observer, RunOptions, run_options, scorer_of
from dysens.sweep._pool import Pool, Task, Work
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
    "Examiner",
    "Executor",
    "Forecast",
    "Greeting",
    "GroupRatio",
    "Here",
    "Measuring",
    "Observer",
    "Pool",
    "Processes",
    "Ray",
    "RunOptions",
    "SearchResult",
    "SpotCheck",
    "StartWorker",
    "Task",
    "TaylorCurves",
    "Work",
    "Worker",
    "WorkerFailedError",
    "WorkerLostError",
    "built",
    "checked_ratios",
    "imported",
    "load_weights",
    "opened_pool",
    "run_options",
    "scorer_of",
    "taylor_curves",
    "weights_of",
]
