"""dysens: how much accuracy each filter group of a live Paddle model is worth, and a proven cut of it."""

import zlib  # noqa: F401  before Paddle: libpaddle 2.6 exports its own zlib, and a later user of the real one would crash
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dysens.criteria import GroupCriterion
    from dysens.errors import DysensError
    from dysens.pruning.checkpoint import load_pruned, save_pruned
    from dysens.pruning.variance import Variance
    from dysens.results.sensitivities import Sensitivities
    from dysens.results.slim_functions import get_ratios_by_loss, load_sensitivities, merge_sensitive
    from dysens.sensitivity import DygraphSensitivity
    from dysens.sweep.evaluators import Evaluator
    from dysens.sweep.metric_evaluators import MetricEvaluator
    from dysens.sweep.options import RunOptions

__version__ = "0.1.0"

__all__ = [
    "DygraphSensitivity",
    "DysensError",
    "Evaluator",
    "GroupCriterion",
    "MetricEvaluator",
    "RunOptions",
    "Sensitivities",
    "Variance",
    "get_ratios_by_loss",
    "load_pruned",
    "load_sensitivities",
    "merge_sensitive",
    "save_pruned",
]

# Names are looked up on first use: `import dysens` alone must not load Paddle.
_HOMES = {
    "DygraphSensitivity": "dysens.sensitivity",
    "DysensError": "dysens.errors",
    "Evaluator": "dysens.sweep.evaluators",
    "GroupCriterion": "dysens.criteria",
    "MetricEvaluator": "dysens.sweep.metric_evaluators",
    "RunOptions": "dysens.sweep.options",
    "Sensitivities": "dysens.results.sensitivities",
    "Variance": "dysens.pruning.variance",
    "get_ratios_by_loss": "dysens.results.slim_functions",
    "load_pruned": "dysens.pruning.checkpoint",
    "load_sensitivities": "dysens.results.slim_functions",
    "merge_sensitive": "dysens.results.slim_functions",
    "save_pruned": "dysens.pruning.checkpoint",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dysens' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
