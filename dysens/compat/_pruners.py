"""PaddleSlim's pruners and plans: its calls, passed on to `DygraphSensitivity`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import paddle
from paddle import nn

from dysens.compat._functions import (
    arguments,
    check_axis,
    check_type,
    is_slims,
    journal_of,
    present,
    ratios_of_groups,
)
from dysens.errors import InputError
from dysens.model import isolate, preserved, run_through
from dysens.pruning import PruneOutcome, zero
from dysens.ratios import ratios_by_loss
from dysens.results import Sensitivities, write_status
from dysens.sensitivity import DygraphSensitivity

logger = logging.getLogger(__name__)


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


Curves = dict[str, dict[float, float]]

# "impretive" is PaddleSlim's spelling.
_WAYS = ("impretive", "lazy", None)
# A loss threshold is searched this finely.
_BISECTIONS = 20
_CLOSE_ENOUGH = 1e-4


class FilterPruner:
    """What PaddleSlim's filter pruners have in common. Use one of those below.

    Args:
        model: The live layer.
        inputs: A shape, several shapes, or a list of example arguments.
        sen_file: Sensitivities that are already known, in any format that dysens or PaddleSlim writes.
        opt: The model's optimizer.
        skip_leaves: Has no effect: channels that reach the outputs always stay.
        prune_type: Only "conv".
        num_head: Only -1.
        input_dtype: The type of inputs that are given as shapes.
    """

    criterion: ClassVar[str]

    def __init__(
        self,
        model: nn.Layer,
        inputs: Any,
        sen_file: str | os.PathLike[str] | None = None,
        opt: paddle.optimizer.Optimizer | None = None,
        skip_leaves: bool = True,
        prune_type: str = "conv",
        *,
        num_head: int = -1,
        input_dtype: str = "float32",
    ) -> None:
        check_type(prune_type, num_head)
        if not skip_leaves:
            logger.warning(
                "The argument skip_leaves=False has no effect: channels that reach the model's outputs always stay."
            )
        self.model = model
        self.inputs = inputs
        self.opt = opt
        self.plan: PruningPlan | None = None
        self._front_door = DygraphSensitivity(
            model, arguments(inputs, input_dtype), self.criterion, optimizer=opt
        )
        self._undo: list[Callable[[], None]] = []
        self._sensitivities: Curves = {}
        if sen_file is not None:
            self._learn(Sensitivities.load(sen_file))

    def sensitive(
        self,
        eval_func: Callable[[], Any] | None = None,
        sen_file: str | os.PathLike[str] | None = None,
        target_vars: Iterable[str] | None = None,
        skip_vars: Iterable[str] | None = (),
    ) -> Curves:
        """Compute sensitivities, or give back those that are known if called without arguments.

        Args:
            eval_func: Scores the live model; a higher score is better.
            sen_file: Where results go and where an earlier sweep goes on. Without ``eval_func`` it is only read.
            target_vars: Sweep only the groups of these parameters.
            skip_vars: Leave out the groups of these parameters.

        Returns:
            Name to {ratio: loss}.
        """
        if eval_func is not None:
            found = self._front_door.sensitive(
                eval_func,
                sen_file=None if sen_file is None else journal_of(Path(sen_file)),
                target_vars=None if target_vars is None else present(target_vars, self.model, "target_vars"),
                skip_vars=present(skip_vars or (), self.model, "skip_vars"),
            )
            self._learn(found)
            if sen_file is not None and is_slims(Path(sen_file)):
                write_status(sen_file, self._sensitivities)
        elif sen_file is not None:
            self._learn(Sensitivities.load(sen_file))
        return {name: dict(losses) for name, losses in self._sensitivities.items()}

    def _learn(self, found: Sensitivities) -> None:
        """Join what was found with what was known."""
        paths = {group.path: group.name for group in self._front_door.groups}
        for name, losses in found.renamed(paths).to_dict().items():
            self._sensitivities[name] = {**self._sensitivities.get(name, {}), **losses}

    def _get_ratios_by_loss(
        self, sensitivities: Mapping[str, Mapping[float, float]], loss: float, skip_vars: Iterable[str] = ()
    ) -> dict[str, float]:
        """The highest ratio of each parameter whose loss stays at ``loss``; without those that have none."""
        skipped = set(skip_vars or ())
        curves = {name: losses for name, losses in sensitivities.items() if name not in skipped}
        return ratios_by_loss(curves, loss, monotone=False)

    def get_ratios_by_sensitivity(
        self, pruned_flops: float, align: int | None = None, dims: int = 0, skip_vars: Iterable[str] = ()
    ) -> tuple[dict[str, float], float]:
        """Ratios under one loss threshold for all groups that remove a share of the FLOPs.

        `DygraphSensitivity.ratios_by_flops` finds ratios that lose less.

        Args:
            pruned_flops: The share to remove.
            align: Leave a multiple of so many filters in each group.
            dims: Only 0.
            skip_vars: Groups that stay whole.

        Returns:
            The ratios, and the share of the FLOPs that they remove: the wanted one or a little more, or the most that
            there is.
        """
        check_axis(dims)
        if not 0 < pruned_flops < 1:
            raise InputError(
                f"The argument pruned_flops is {pruned_flops}; it is a share of the FLOPs, between 0 and 1."
            )
        if not self._sensitivities:
            raise InputError(
                "No sensitivities are known yet; call sensitive() first, or give the pruner a sen_file."
            )
        skipped = list(skip_vars or ())

        def at(loss: float) -> tuple[dict[str, float], float]:
            ratios = self._chosen(self._get_ratios_by_loss(self._sensitivities, loss, skipped))
            ratios = ratios if align is None else self._aligned(ratios, align)
            with self._front_door.pruned(ratios) as outcome:
                return ratios, share_removed(outcome)

        low, high = 0.0, 1.0
        best = at(high)
        if best[1] < pruned_flops:
            logger.warning("No more than %.1f %% of the FLOPs can be removed.", 100 * best[1])
            return best
        for _ in range(_BISECTIONS):
            if best[1] - pruned_flops < _CLOSE_ENOUGH:
                break
            middle = (low + high) / 2
            found = at(middle)
            if found[1] < pruned_flops:
                low = middle
            else:
                high, best = middle, found
        return best

    def _aligned(self, ratios: Mapping[str, float], align: int) -> dict[str, float]:
        sizes = {group.name: group.channels for group in self._front_door.groups}
        left = {n: max(align, round((1 - ratio) * sizes[n] / align) * align) for n, ratio in ratios.items()}
        return {n: max(0.0, (sizes[n] - count) / sizes[n]) for n, count in left.items()}

    def sensitive_prune(
        self, pruned_flops: float, skip_vars: Iterable[str] = (), align: int | None = None
    ) -> PruningPlan:
        """Restore the model, choose ratios for a share of the FLOPs, and cut."""
        self.restore()
        ratios, _ = self.get_ratios_by_sensitivity(pruned_flops, align, 0, skip_vars)
        return self.prune_vars(ratios, 0)

    def prune_var(
        self,
        var_name: str,
        pruned_axis: int | Iterable[int],
        pruned_ratio: float,
        apply: str | None = "impretive",
    ) -> PruningPlan:
        """Prune the group of one parameter; see `prune_vars`."""
        return self.prune_vars({var_name: pruned_ratio}, pruned_axis, apply)

    def prune_vars(
        self, ratios: Mapping[str, float], axis: int | Iterable[int], apply: str | None = "impretive"
    ) -> PruningPlan:
        """Prune the groups of several parameters.

        Args:
            ratios: Ratio by name. Parameters that lead no group are passed over, so that all of a model's may be given;
                where several belong to one group, the one that names it decides.
            axis: Only 0, or [0].
            apply: "impretive" (PaddleSlim's spelling) cuts, "lazy" zeroes, None does nothing yet: see `PruningPlan.apply`.
        """
        check_axis(axis)
        if apply not in _WAYS:
            raise InputError(
                f'The argument apply is "{apply}"; it has to be "impretive" (PaddleSlim\'s spelling), "lazy" or None.'
            )
        plan = PruningPlan(self, self._chosen(ratios))
        if apply is not None:
            plan.apply(self.model, lazy=apply == "lazy")
        self.plan = plan
        return plan

    def _chosen(self, ratios: Mapping[str, float]) -> dict[str, float]:
        return ratios_of_groups(ratios, self.model, self._front_door.groups)

    def restore(self) -> None:
        """Undo everything that was pruned."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def cut(self, ratios: Mapping[str, float]) -> PruneOutcome:
        """Cut the groups in place."""
        outcome = self._front_door.prune_vars(ratios)
        if self._front_door.restore not in self._undo:  # it undoes all cuts at once
            self._undo.append(self._front_door.restore)
        return outcome

    def zero(self, ratios: Mapping[str, float]) -> None:
        """Zero what a cut would remove; shapes stay."""
        with self._front_door.pruned(ratios) as outcome:
            entries = outcome.plan.cuts
        with preserved(self.model, self.opt, gradients=True) as state:
            isolate(self.model, self.opt)  # training goes on, and must not reach what restore() will need
            zero(self.model, entries)
            state.keep()
        self._undo.append(lambda: run_through(state.restore))


class FPGMFilterPruner(FilterPruner):
    """Removes the filters nearest to the geometric median of all."""

    criterion = "fpgm"


class L1NormFilterPruner(FilterPruner):
    """Removes the filters with the smallest mean absolute weight."""

    criterion = "l1"


class L2NormFilterPruner(FilterPruner):
    """Removes the shortest filters."""

    criterion = "l2"
