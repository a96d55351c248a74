"""What a cut brought, as numbers and as a table."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from dysens.display import table_html
from dysens.pruning._plan import PrunePlan

_NOTHING = "nothing was cut"


@dataclass(frozen=True)
class PruneOutcome:
    """The cost of a model before and after a cut, and what was cut.

    Attributes:
        flops_before: FLOPs of the whole model (one multiply-add is one FLOP, as `paddle.flops` counts).
        flops_after: FLOPs of the cut model.
        params_before: Parameters of the whole model.
        params_after: Parameters of the cut model.
        plan: What was removed from which tensor.
        widths: Per group: name, path, channels before and after.
        counted_by_us: Layers that `paddle.flops` counts as zero, and that dysens counted.
        untried: What the proof could not try, as a sentence; empty if it tried all.
    """

    flops_before: int
    flops_after: int
    params_before: int
    params_after: int
    plan: PrunePlan
    widths: tuple[tuple[str, str, int, int], ...]
    counted_by_us: tuple[str, ...] = ()
    untried: str = ""

    @property
    def flops_removed(self) -> float:
        """The share of the FLOPs that is gone."""
        return 1 - self.flops_after / self.flops_before

    @property
    def params_removed(self) -> float:
        """The share of the parameters that is gone."""
        return 1 - self.params_after / self.params_before

    def to_frame(self) -> pd.DataFrame:
        """One row a group that was cut."""
        return pd.DataFrame(self.widths, columns=["param", "path", "channels before", "channels after"])

    @property
    def totals(self) -> str:
        """FLOPs and parameters before and after, a line each."""
        lines = [
            _line("FLOPs", self.flops_before, self.flops_after),
            _line("parameters", self.params_before, self.params_after),
        ]
        if self.counted_by_us:
            lines.append(
                f"(FLOPs of {', '.join(self.counted_by_us)} counted by dysens; paddle.flops gives 0 for them)"
            )
        if self.untried:
            lines.append(self.untried)
        return "\n".join(lines)

    def __str__(self) -> str:
        table = self.to_frame().to_string(index=False) if self.widths else _NOTHING
        return f"{table}\n{self.totals}"

    def _repr_html_(self) -> str:
        totals = self.totals.splitlines()
        return table_html(self.to_frame(), totals if self.widths else [_NOTHING, *totals])


def _line(what: str, before: int, after: int) -> str:
    share = f"-{(before - after) / before:.1%}" if before else ""
    return f"{what:<12} {before:>16,} -> {after:>16,}  {share}"
