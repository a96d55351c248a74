"""Results to look at: plots with matplotlib, the page of a sweep, the card of a model, VisualDL."""

from typing import TYPE_CHECKING

from dysens._lazy import lazy_exports

if TYPE_CHECKING:
    from dysens.report._card import card_page, write_card
    from dysens.report._card_data import CARD_HTML, CARD_JSON, Card, CardSample, CardState, read_card, sample
    from dysens.report._compare import write_comparison
    from dysens.report._live import shown_live, watch
    from dysens.report._page import write_report
    from dysens.report._plot_data import (
        BudgetPoint,
        Panel,
        budget_points,
        curve_panels,
        layer_label,
        loss_table,
        predicted_budget_points,
        width_table,
    )
    from dysens.report._plots import flops_against_loss, heat_map, sensitivity_curves, widths
    from dysens.report._visualdl import SweepLog, log_sensitivities, open_writer

__all__ = [
    "CARD_HTML",
    "CARD_JSON",
    "BudgetPoint",
    "Card",
    "CardSample",
    "CardState",
    "Panel",
    "SweepLog",
    "budget_points",
    "card_page",
    "curve_panels",
    "flops_against_loss",
    "heat_map",
    "layer_label",
    "log_sensitivities",
    "loss_table",
    "open_writer",
    "predicted_budget_points",
    "read_card",
    "sample",
    "sensitivity_curves",
    "shown_live",
    "watch",
    "width_table",
    "widths",
    "write_card",
    "write_comparison",
    "write_report",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "_card": ["card_page", "write_card"],
        "_card_data": ["CARD_HTML", "CARD_JSON", "Card", "CardSample", "CardState", "read_card", "sample"],
        "_compare": ["write_comparison"],
        "_live": ["shown_live", "watch"],
        "_page": ["write_report"],
        "_plot_data": [
            "BudgetPoint",
            "Panel",
            "budget_points",
            "curve_panels",
            "layer_label",
            "loss_table",
            "predicted_budget_points",
            "width_table",
        ],
        "_plots": ["flops_against_loss", "heat_map", "sensitivity_curves", "widths"],
        "_visualdl": ["SweepLog", "log_sensitivities", "open_writer"],
    },
)
