"""What compressing brought: before and after, widths, what was tried, where the time went."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from dysens.display import table_html
from dysens.pruning import PruneOutcome


@dataclass(frozen=True)
class Trial:
    """One joint cut that was measured as a whole.

    Attributes:
        allocation: How its ratios were chosen.
        budget: The share of the cost that it was asked to remove.
        removed: The share that it is predicted to remove.
        output_error: Squared difference to the whole network's outputs on held-back data, relative to their variance.
        score: The evaluator's, if it was asked.
        milliseconds: Of the exported model, if it was timed.
        of: What the budget is a share of.
    """

    allocation: str
    budget: float
    removed: float
    output_error: float
    score: float | None = None
    milliseconds: float | None = None
    of: str = "FLOPs"


@dataclass(frozen=True)
class CompressOutcome(PruneOutcome):
    """What `DygraphSensitivity.compress` did. Has all of `PruneOutcome`, and more.

    Attributes:
        allocation: How the ratios were chosen that won.
        reason: Why it won, by what was compared, in a sentence.
        ratios: The share of units that went, by group name.
        output_error: Of the cut network on held-back data, see `Trial`.
        score_before: The evaluator's score of the whole network; None without an evaluator.
        score_after: The same of the cut one.
        ms_before: Milliseconds of the exported whole network; None if it could not be exported or was not timed.
        ms_after: The same of the cut one.
        proof: The largest relative difference between the masked and folded, and the cut and folded network.
        tried: All joint cuts that were compared.
        seconds: By stage.
        notes: What the user should know, in sentences.
    """

    allocation: str = ""
    reason: str = ""
    ratios: Mapping[str, float] = field(default_factory=dict)
    output_error: float = 0.0
    score_before: float | None = None
    score_after: float | None = None
    ms_before: float | None = None
    ms_after: float | None = None
    proof: float = 0.0
    tried: tuple[Trial, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def summary(self) -> pd.DataFrame:
        """Before and after, a row each for what was measured."""
        rows = [
            ("score", _number(self.score_before), _number(self.score_after), ""),
            ("output error", "0", _number(self.output_error), ""),
            (
                "FLOPs",
                f"{self.flops_before:,}",
                f"{self.flops_after:,}",
                _change(self.flops_before, self.flops_after),
            ),
            (
                "parameters",
                f"{self.params_before:,}",
                f"{self.params_after:,}",
                _change(self.params_before, self.params_after),
            ),
            (
                "milliseconds",
                _number(self.ms_before),
                _number(self.ms_after),
                _change(self.ms_before, self.ms_after),
            ),
        ]
        return pd.DataFrame([row for row in rows if row[1]], columns=["", "before", "after", "change"])

    def trials(self) -> pd.DataFrame:
        """A row per joint cut that was compared."""
        several = len({trial.of for trial in self.tried}) > 1
        rows: list[dict[str, Any]] = [
            {
                "allocation": trial.allocation,
                "budget": f"{trial.budget:.1%}",
                "of": trial.of if several else "",
                "removed": f"{trial.removed:.1%}",
                "output error": _number(trial.output_error),
                "score": _number(trial.score),
                "ms": _number(trial.milliseconds),
            }
            for trial in self.tried
        ]
        frame = pd.DataFrame(
            rows, columns=["allocation", "budget", "of", "removed", "output error", "score", "ms"]
        )
        return frame.loc[:, [column for column in frame if (frame[column] != "").any()]]

    def __str__(self) -> str:
        parts = [
            self.summary().to_string(index=False),
            self.to_frame().to_string(index=False) if self.widths else "nothing was cut",
            f"tried:\n{self.trials().to_string(index=False)}",
            *self._lines(),
        ]
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        tables = [
            table_html(self.summary()),
            table_html(self.to_frame()),
            table_html(self.trials(), self._lines()),
        ]
        return "".join(tables)

    def _lines(self) -> list[str]:
        took = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in self.seconds.items())
        lines = [
            self.reason,
            f"masked and cut network differ by {self.proof:.2g} at most",
            f"seconds: {took}",
        ]
        if self.counted_by_us:
            lines.append(
                f"FLOPs of {', '.join(self.counted_by_us)} counted by dysens; paddle.flops gives 0 for them"
            )
        return [*lines, *self.notes]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if math.isfinite(value) else str(value)


def _change(before: float | None, after: float | None) -> str:
    return f"{(after - before) / before:+.1%}" if before and after is not None else ""
