"""What a search found: a ratio per group, how sure it is, and what it took."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from dysens.display import table_html


@dataclass(frozen=True)
class GroupRatio:
    """The answer for one group.

    Attributes:
        name: The group's name.
        path: Its layer path.
        ratio: The largest ratio of the grid within the target; 0 if there is none.
        beyond: The next ratio, which is not; None if the whole grid is within the target. The true answer lies between.
        loss: The loss at ``ratio``.
        interval: Where the loss on all data lies, at the stated confidence.
        share: The share of the data that the group's points took, on average.
        passes: How many passes over the data the group took.
        told: Whether the data tell that the loss at ``ratio`` is within the target: it is further from it than chance in the
            choice of so few samples explains. Otherwise the ratio is where they lean.
    """

    name: str
    path: str
    ratio: float
    beyond: float | None
    loss: float
    interval: tuple[float, float]
    share: float
    passes: float
    told: bool = True


@dataclass(frozen=True)
class SpotCheck:
    """A ratio beyond the answer, measured to see whether losses rise with the ratio.

    Attributes:
        name: The group's name.
        ratio: What was measured.
        loss: Its loss.
        rises: Whether it is beyond the target, as the search takes for granted.
    """

    name: str
    ratio: float
    loss: float
    rises: bool


@dataclass(frozen=True)
class SearchResult:
    """The ratios for a target loss; prints as a table.

    Attributes:
        groups: The answers, in parameter order.
        target_loss: The loss that each group may cost.
        confidence: How likely, per point, all data would decide as the part did that was seen.
        baseline: The score of the whole model.
        spot_checks: Where losses were checked to rise with the ratio.
        samples: How many samples there are; None if a function scores them.
    """

    groups: tuple[GroupRatio, ...]
    target_loss: float
    confidence: float
    baseline: float
    spot_checks: tuple[SpotCheck, ...]
    samples: int | None = None

    @property
    def ratios(self) -> dict[str, float]:
        """Group name to ratio, for `prune_vars`; groups that cannot be pruned within the target are left out.

        On the data that there are, every one of them is within the target. Those that are `untold` may not be on others: the
        search has warned of them, and `told_ratios` leaves them out.
        """
        return {group.name: group.ratio for group in self.groups if group.ratio > 0}

    @property
    def told_ratios(self) -> dict[str, float]:
        """The ratios without those of groups for which there are too few samples to tell."""
        return {group.name: group.ratio for group in self.groups if group.ratio > 0 and group.told}

    @property
    def untold(self) -> tuple[GroupRatio, ...]:
        """The groups for which the data cannot tell whether the loss is within the target."""
        return tuple(group for group in self.groups if not group.told)

    @property
    def passes(self) -> float:
        """How many passes over the data the search took, spot checks and baseline not counted."""
        return sum(group.passes for group in self.groups)

    def to_frame(self) -> pd.DataFrame:
        """A row per group."""
        return pd.DataFrame(
            [
                {
                    "param": group.name,
                    "path": group.path,
                    "ratio": group.ratio,
                    "beyond": group.beyond,
                    "loss": group.loss,
                    "loss_low": group.interval[0],
                    "loss_high": group.interval[1],
                    "told": group.told,
                    "share": group.share,
                    "passes": group.passes,
                }
                for group in self.groups
            ]
        )

    @property
    def summary(self) -> str:
        """How it was found and how far it can be trusted, in some lines."""
        wrong = [check for check in self.spot_checks if not check.rises]
        lines = [
            f"target loss {self.target_loss:g} against {self.baseline:.6g}, confidence {self.confidence:g} per point, "
            f"{self.passes:.1f} passes over the data",
            f"losses taken to rise with the ratio: {len(self.spot_checks) - len(wrong)} of {len(self.spot_checks)} spot checks "
            "agree",
        ]
        lines += [f"  {check.name} loses only {check.loss:.4f} at {check.ratio:g}" for check in wrong]
        if self.untold:
            lines.append(
                f"{self.samples} samples cannot tell a loss of {self.target_loss:g} for {len(self.untold)} of {len(self.groups)} "
                "groups (told is False): their ratios are estimates, which told_ratios leaves out; use more data or a larger "
                "target"
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        return f"{self.to_frame().to_string(index=False, float_format='%.4g')}\n{self.summary}"

    def _repr_html_(self) -> str:
        return table_html(self.to_frame(), self.summary.splitlines())
