"""Sweeps in VisualDL: every point as it comes, and the curves when they are complete.

    with LogWriter("vdl") as writer:
        sens = ds.sensitive(evaluator, observer=SweepLog(writer))
        log_sensitivities(writer, sens)

`visualdl --logdir vdl` then shows, under Scalars, ``sweep/loss`` and ``sweep/metric`` over the number of points, and for each
layer ``sensitivity/<layer>``, the loss over the share of channels removed in per mille (set Smoothing to 0, or a second line is
drawn beside the measured one); under Samples, the heat map and the curves.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, Protocol

from dysens.errors import MissingExtraError
from dysens.report._plot_data import curve_panels
from dysens.results import Point, Sensitivities

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PER_MILLE = 1000  # VisualDL's steps are whole numbers


class Writer(Protocol):
    """The part of VisualDL's ``LogWriter`` that is used; the ``vdl_writer`` of PaddleOCR is one."""

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Write a number."""

    def add_figure(self, tag: str, figure: Figure, step: int) -> None:
        """Write a picture."""


class SweepLog:
    """Writes points as they are measured: give it as ``observer`` to `DygraphSensitivity.sensitive` or `search`.

    A point that has no score is counted, but there is nothing to write.

    Args:
        writer: VisualDL's ``LogWriter``.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._count = 0

    def __call__(self, point: Point) -> None:
        """Write one point."""
        self._count += 1
        if math.isfinite(point.loss):
            self._writer.add_scalar("sweep/loss", point.loss, self._count)
        if point.metric is not None and math.isfinite(point.metric):
            self._writer.add_scalar("sweep/metric", point.metric, self._count)


def log_sensitivities(writer: Writer, sens: Sensitivities) -> None:
    """Write the loss curve of every layer, a heat map and the curves as a picture.

    VisualDL joins points in the order in which they were written, so curves are written whole, by rising ratio. Points without
    a score are in the pictures only.

    Args:
        writer: VisualDL's ``LogWriter``.
        sens: What a sweep measured.
    """
    from dysens.report._plots import heat_map, sensitivity_curves

    for panel in curve_panels(sens):
        for ratio, loss in zip(panel.ratios, panel.losses):
            writer.add_scalar(f"sensitivity/{_tag(panel.label)}", loss, round(ratio * PER_MILLE))
    writer.add_figure("sensitivity/heat map", heat_map(sens), 0)
    writer.add_figure("sensitivity/curves", sensitivity_curves(sens), 0)


def open_writer(folder: str | os.PathLike[str]) -> Any:
    """A ``LogWriter`` into a folder.

    Raises:
        MissingExtraError: VisualDL is not installed.
    """
    try:
        from visualdl import LogWriter
    except ImportError as error:
        raise MissingExtraError(
            f'VisualDL cannot be imported ({error}); install it with: pip install "dysens[vdl]"'
        ) from error
    return LogWriter(os.fspath(folder))


def _tag(label: str) -> str:
    """VisualDL refuses this one character."""
    return label.replace("%", "_")
