"""dysens: sensitivity analysis and verified structured pruning of live Paddle models."""

import logging
import zlib  # noqa: F401  before Paddle: libpaddle 2.6 exports its own zlib, and a later user of the real one would crash
from typing import TYPE_CHECKING

from dysens._lazy import lazy_exports

if TYPE_CHECKING:
    from dysens.compat import get_ratios_by_loss, load_sensitivities, merge_sensitive
    from dysens.criteria import GroupCriterion, Variance
    from dysens.errors import DysensError
    from dysens.evaluators import Evaluator, MetricEvaluator
    from dysens.pruning import load_pruned, save_pruned
    from dysens.results import Sensitivities
    from dysens.sensitivity import DygraphSensitivity
    from dysens.sweep import Ray, RunOptions

__version__ = "0.2.0"

# Paddle, as it is imported, takes the root logger for its own and shows everybody's remarks from INFO on. Who calls dysens from
# Python gets its warnings; for the rest: logging.getLogger("dysens").setLevel("INFO").
if logging.getLogger(__name__).level == logging.NOTSET:
    logging.getLogger(__name__).setLevel(logging.WARNING)

__all__ = [
    "DygraphSensitivity",
    "DysensError",
    "Evaluator",
    "GroupCriterion",
    "MetricEvaluator",
    "Ray",
    "RunOptions",
    "Sensitivities",
    "Variance",
    "get_ratios_by_loss",
    "load_pruned",
    "load_sensitivities",
    "merge_sensitive",
    "save_pruned",
]

# `import dysens` alone must not load Paddle.
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "dysens.compat": ["get_ratios_by_loss", "load_sensitivities", "merge_sensitive"],
        "dysens.criteria": ["GroupCriterion", "Variance"],
        "dysens.errors": ["DysensError"],
        "dysens.evaluators": ["Evaluator", "MetricEvaluator"],
        "dysens.pruning": ["load_pruned", "save_pruned"],
        "dysens.results": ["Sensitivities"],
        "dysens.sensitivity": ["DygraphSensitivity"],
        "dysens.sweep": ["Ray", "RunOptions"],
    },
)
