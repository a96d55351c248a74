"""What a pruner of PaddleSlim's returns: a plan that was carried out, or is to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import paddle
from paddle import nn

from dysens.compat._arguments import check_type
from dysens.errors import InputError
from dysens.pruning import PruneOutcome

if TYPE_CHECKING:
    from dysens.compat._pruners import FilterPruner


class PruningPlan:
    """What goes, and by how much; carried out or still to be.

    Attributes:
        ratios: Ratio of each group.
        pruned_flops: Share of the FLOPs that the cut removed; None before it.
    """

    def __init__(self, pruner: FilterPruner, ratios: Mapping[str, float]) -> None:
        self._pruner = pruner
        self.ratios = dict(ratios)
        self.pruned_flops: float | None = None
        self._outcome: PruneOutcome | None = None

    def apply(
        self,
        model: nn.Layer,
        lazy: bool = False,
        opt: paddle.optimizer.Optimizer | None = None,
        prune_type: str = "conv",
    ) -> None:
        """Carry the plan out.

        Args:
            model: The model that the pruner was made for.
            lazy: Zero the filters and all that hangs on them; shapes stay.
            opt: The optimizer that the pruner was made for, if any.
            prune_type: Only "conv".
        """
        self._check(model, opt)
        check_type(prune_type)
        if lazy:
            self._pruner.zero(self.ratios)
        else:
            self._outcome = self._pruner.cut(self.ratios)
            self.pruned_flops = share_removed(self._outcome)

    def restore(self, model: nn.Layer, opt: paddle.optimizer.Optimizer | None = None) -> None:
        """Undo everything that the pruner has done to the model, as PaddleSlim does."""
        self._check(model, opt)
        self._pruner.restore()

    def _check(self, model: nn.Layer, opt: paddle.optimizer.Optimizer | None) -> None:
        if model is not self._pruner.model:
            raise InputError(
                "A plan is for the model that its pruner was made for; make a pruner for this one."
            )
        if opt is not None and opt is not self._pruner.opt:
            raise InputError(
                "The pruner does not know this optimizer; give it when the pruner is made: opt=..."
            )

    def __str__(self) -> str:
        if self._outcome is not None:
            return str(self._outcome)
        return "\n".join(f"{name}: {ratio:.4g}" for name, ratio in self.ratios.items()) or "nothing to prune"


def share_removed(outcome: PruneOutcome) -> float:
    """The share of the FLOPs that a cut removed."""
    return 1 - outcome.flops_after / outcome.flops_before
