"""What a model costs: FLOPs, parameters, milliseconds; also at ratios that have not been cut."""

from typing import TYPE_CHECKING

from dysens._lazy import lazy_exports

if TYPE_CHECKING:
    from dysens.costs._measured import (
        Array,
        Cost,
        Inputs,
        Predictor,
        cost_of,
        count_params,
        cpu_config,
        file_size,
        median_seconds,
        model_files,
    )
    from dysens.costs._model import Costs, GroupCosts, Losing, Term, Width, lost

__all__ = [
    "Array",
    "Cost",
    "Costs",
    "GroupCosts",
    "Inputs",
    "Losing",
    "Predictor",
    "Term",
    "Width",
    "cost_of",
    "count_params",
    "cpu_config",
    "file_size",
    "lost",
    "median_seconds",
    "model_files",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "_measured": [
            "Array",
            "Cost",
            "Inputs",
            "Predictor",
            "cost_of",
            "count_params",
            "cpu_config",
            "file_size",
            "median_seconds",
            "model_files",
        ],
        "_model": ["Costs", "GroupCosts", "Losing", "Term", "Width", "lost"],
    },
)
