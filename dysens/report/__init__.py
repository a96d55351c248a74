"""Results to look at: plots with matplotlib, a page, VisualDL."""

from typing import TYPE_CHECKING

from dysens._lazy import lazy_exports

if TYPE_CHECKING:
    from dysens.report._page import write_report
    from dysens.report._plot_data import (
        BudgetPoint,
        Panel,
        budget_points,
        curve_panels,
        layer_label,
        loss_table,
        predicted_budget_points,
        shortened,
        width_table,
    )
    from dysens.report._plots import flops_against_loss, heat_map, sensitivity_curves, widths
    from dysens.report._visualdl import SweepLog, log_sensitivities, open_writer

__all__ = [
    "BudgetPoint",
    "Panel",
    "SweepLog",
    "budget_points",
    "curve_panels",
    "flops_against_loss",
    "heat_map",
    "layer_label",
    "log_sensitivities",
    "loss_table",
    "open_writer",
    "predicted_budget_points",
    "sensitivity_curves",
    "shortened",
    "width_table",
    "widths",
    "write_report",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "_page": ["write_report"],
        "_plot_data": [
            "BudgetPoint",
            "Panel",
            "budget_points",
            "curve_panels",
            "layer_label",
            "loss_table",
            "predicted_budget_points",
            "shortened",
            "width_table",
        ],
        "_plots": ["flops_against_loss", "heat_map", "sensitivity_curves", "widths"],
        "_visualdl": ["SweepLog", "log_sensitivities", "open_writer"],
    },
)
