"""From loss curves to pruning ratios: by a loss, by a budget of cost; and the files that hold ratios.

    ratios = ratios_by_loss(sens, 0.05)
    write_ratio_file("ratios.yml", ratios)
    read_ratio_file("ratios.yml").ratios

Nothing here needs a network or Paddle.
"""

from __future__ import annotations

from dysens.ratios._budget import ratios_by_flops, ratios_by_params, ratios_for_budget
from dysens.ratios._by_loss import (
    Curve,
    Segment,
    monotone_envelope,
    predicted_curve,
    predicted_loss,
    ratios_by_loss,
    scatter,
    threshold_segments,
)
from dysens.ratios._files import (
    RatioFile,
    ratio_file_text,
    ratios_of_pruner,
    read_ratio_file,
    write_ratio_file,
)
from dysens.ratios._target import Target, by_path, checked_number, ratio_key

__all__ = [
    "Curve",
    "RatioFile",
    "Segment",
    "Target",
    "by_path",
    "checked_number",
    "monotone_envelope",
    "predicted_curve",
    "predicted_loss",
    "ratio_file_text",
    "ratio_key",
    "ratios_by_flops",
    "ratios_by_loss",
    "ratios_by_params",
    "ratios_for_budget",
    "ratios_of_pruner",
    "read_ratio_file",
    "scatter",
    "threshold_segments",
    "write_ratio_file",
]
