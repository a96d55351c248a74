"""The front door: hand in a live layer, get sensitivities, ratios, and the same layer pruned."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import paddle

from dysens.cost import cost_of
from dysens.criteria import Criterion, UnitCriterion, check_criterion, criterion_name
from dysens.engines import engine_named
from dysens.errors import InputError, UnreachableError, nearest
from dysens.fingerprint import fingerprint
from dysens.groups.explain import explain_group
from dysens.groups.group import ChannelGroup, Choice, merge_removals
from dysens.groups.listing import GroupList, Unprunable, groups_with, matching, skip_reasons
from dysens.groups.roles import filters_by_path, roles_of, tensors_by_path
from dysens.inputs import view_of
from dysens.interrupts import run_through
from dysens.live import ModelState, Preserved, isolate, preserved
from dysens.pruning.apply import cut, history
from dysens.pruning.budget import describe_costs
from dysens.pruning.costs import Costs
from dysens.pruning.outcome import PruneOutcome
from dysens.pruning.plan import PrunePlan, plan_for, translated
from dysens.pruning.proof import difference
from dysens.ratios import ratios_by_flops, ratios_by_params
from dysens.results.points import Header
from dysens.results.sensitivities import Sensitivities
from dysens.sweep.batches import DEFAULT_CACHE_GIB
from dysens.sweep.estimate import TaylorCurves, taylor_curves
from dysens.sweep.evaluators import Evaluator
from dysens.sweep.examining import Examiner
from dysens.sweep.found import SearchResult
from dysens.sweep.journaling import check_journal, open_journal
from dysens.sweep.metrics import checked_baseline
from dysens.sweep.runner import Sweep, checked_ratio, checked_ratios
from dysens.sweep.scorers import Means, scorer_of
from dysens.sweep.scoring import Scorer
from dysens.sweep.search import Search
from dysens.sweep.sharing import Observer
from dysens.sweep.worker import Build
from dysens.sweep.workers import run_in_workers

logger = logging.getLogger("dysens")

Names = Iterable[str]
# How often a budget that the real count misses by a little is asked for again, slightly higher.
_BUDGET_TRIES = 6


class DygraphSensitivity:
    """Sensitivity analysis and pruning of a live `paddle.nn.Layer`.

    Example:
        >>> import paddle
        >>> ds = DygraphSensitivity(paddle.vision.models.LeNet(), input_shape=[1, 1, 28, 28])
        >>> [group.path for group in ds.groups]
        ['features.0.weight', 'features.3.weight']
    """

    def __init__(
        self,
        model: paddle.nn.Layer,
        input_shape: Any,
        criterion: Criterion = "fpgm",
        skip_vars: Names = (),
        optimizer: paddle.optimizer.Optimizer | None = None,
        engine: str = "auto",
        train_inputs: Any = None,
    ) -> None:
        """Find the model's channel groups and prove them; the model is left as found.

        Args:
            model: The live layer.
            input_shape: A shape, several shapes, or example inputs: tensors, lists, dicts, a tuple of positional arguments.
            criterion: "fpgm", "l1", "l2", "random", a function from a weight with filters along axis 0 to their scores, or
                a `dysens.Variance`, which looks at data.
            skip_vars: Weights whose filters must stay: parameter names, layer paths, or glob patterns of either.
            optimizer: Its state is cut and restored along with the model.
            engine: "auto" and "native" probe the live layer; "paddleslim" asks PaddleSlim (Paddle 2.6 only).
            train_inputs: Example arguments of the training forward, given like ``input_shape``. Then only groups are
                offered that the training forward survives too.
        """
        if not isinstance(model, paddle.nn.Layer):
            raise InputError(f"model has to be a paddle.nn.Layer, not a {type(model).__name__}.")
        if not paddle.in_dynamic_mode():
            raise InputError(
                "Paddle is in static mode, and dysens runs live layers: call paddle.disable_static() first."
            )
        check_criterion(criterion)  # before the work begins
        self._model = model
        self._criterion = criterion
        self._optimizer = optimizer
        self._engine = engine
        self._views = [view_of(input_shape, _float_type(model))]
        if train_inputs is not None:
            self._views.append(view_of(train_inputs, _float_type(model), training=True))
        self._known = {tensor.name: path for path, tensor in filters_by_path(model).items()}
        if not self._known:
            raise InputError(f"{type(model).__name__} has no 4-D weight, so there are no filters to prune.")
        skipped = matching(skip_vars, self._known, "skip_vars")
        self._analysis = analysis = engine_named(engine)(model, self._views)
        left_out = groups_with(analysis.groups, skipped)
        reasons = {**analysis.reasons, **skip_reasons(left_out, skipped)}
        self._roles = (
            criterion.informed(analysis.roles) if isinstance(criterion, UnitCriterion) else analysis.roles
        )
        self._groups = GroupList(group for group in analysis.groups if group not in left_out)
        self._unprunable = Unprunable(
            {n: reasons[path] for n, path in self._known.items() if path in reasons}
        )
        self._stages = len(history(model))  # cuts that others made before
        self._cuts = _Cuts()

    @property
    def groups(self) -> GroupList:
        """The proven groups in parameter order; prints as a table."""
        return self._groups

    @property
    def unprunable(self) -> Unprunable:
        """Parameter name to the reason why its filters stay, for every 4-D weight that is in no group."""
        return self._unprunable

    def explain(self, name: str) -> str:
        """Say in words which layers move together with a weight and why, or why its filters stay.

        Args:
            name: A 4-D weight, by parameter name or layer path.
        """
        path = next(iter(matching(name, self._known, "explain()")))
        group = next(iter(groups_with(self._groups, {path})), None)
        if group is not None:
            return explain_group(group, path)
        by_path = {known: parameter for parameter, known in self._known.items()}
        return f"{path} is not pruned: {self._unprunable[by_path[path]]}."

    def sensitive(
        self,
        eval_func: Callable[[], Any] | Evaluator,
        ratios: Iterable[float] | None = None,
        sen_file: str | os.PathLike[str] | None = None,
        target_vars: Names | None = None,
        skip_vars: Names = (),
        progress: bool = True,
        higher_is_better: bool = True,
        force: bool = False,
        workers: int = 1,
        build: Build | None = None,
        fast: str = "auto",
        cache_gib: float = DEFAULT_CACHE_GIB,
        observer: Observer | None = None,
    ) -> Sensitivities:
        """Measure how much each group is worth. The model is masked, never reshaped, and left as found.

        Args:
            eval_func: Scores the live model and returns a number; or an `Evaluator`.
            ratios: Shares of filters to remove; 0.1, 0.2 ... 0.9 if not given.
            sen_file: Journal to write to and to continue; a PaddleSlim file is continued in a journal beside it.
            target_vars: Sweep only these groups: parameter names, layer paths, or glob patterns of either.
            skip_vars: Do not sweep these.
            progress: Show a progress bar.
            higher_is_better: False if eval_func returns an error (an `Evaluator` says it itself).
            force: Continue a journal even if it was made with other weights, criterion, evaluator or baseline.
            workers: How many processes share the sweep. (Others, started by hand with the same ``sen_file``, may join.)
            build: With several workers, what gives each of them its model and evaluator (or eval_func), in that order:
                "package.module:function", or a function that can be pickled.
            fast: "auto" serves the model's forward from a compiled copy where that gives the same outputs (on CPU, 3 to 15
                times faster), and runs the live model otherwise; "on" raises where it cannot; "off" runs the live model.
            cache_gib: How many GiB of an `Evaluator`'s data, and of outputs of layers, may be kept in memory.
            observer: Called with every `Point` as soon as it is known: `dysens.report.visualdl.SweepLog`, or a function.
        """
        wanted, groups = checked_ratios(ratios), self._whole_groups(target_vars, skip_vars)
        if workers > 1 and isinstance(self._criterion, UnitCriterion):
            raise InputError(
                f"the criterion {self._criterion} has looked at data here: sweep with it in one process."
            )
        if workers > 1 and build is None:
            raise InputError(
                "workers need models of their own: give build, a function that returns the model and its evaluator."
            )
        if sen_file is not None:
            check_journal(sen_file)
        means = Means(self._means_of_running(fast), cache_gib)
        scorer = scorer_of(
            self._model, self._roles, groups, eval_func, higher_is_better, self._optimizer, means
        )
        baseline = checked_baseline(scorer.score())
        header = self._header(scorer, baseline, groups)
        journal = open_journal(sen_file, header, force) if sen_file is not None else None
        if journal is not None:
            baseline = journal.header.baseline
        sweep = Sweep(self._roles, groups, self._choice(), wanted, scorer, baseline)
        if workers > 1 and build is not None:
            points = run_in_workers(sweep, header, journal, workers, build, progress, means, observer)
        else:
            points = sweep.run(journal, progress, observer)
        return Sensitivities(points, baseline, scorer.higher_is_better, str(sen_file or ""), header.costs)

    def search(
        self,
        evaluator: Evaluator | Callable[[], Any],
        target_loss: float = 0.02,
        ratios: Iterable[float] | None = None,
        sen_file: str | os.PathLike[str] | None = None,
        target_vars: Names | None = None,
        skip_vars: Names = (),
        progress: bool = True,
        higher_is_better: bool = True,
        force: bool = False,
        confidence: float = 0.95,
        spot_checks: int = 3,
        fast: str = "auto",
        cache_gib: float = DEFAULT_CACHE_GIB,
        observer: Observer | None = None,
    ) -> SearchResult:
        """Find each group's largest ratio within a target loss, with far fewer measurements than a sweep takes.

        Losses are taken to rise with the ratio; a few spot checks tell whether they do.

        Args:
            evaluator: Scores batch by batch, so that a point can stop when the data seen decide it. A function that returns
                the score works too, without stopping.
            target_loss: The relative loss that each group may cost.
            ratios: The grid of ratios; 0.1, 0.2 ... 0.9 if not given.
            sen_file: Journal to write to; full points that it holds are not measured again.
            target_vars: Search only these groups: parameter names, layer paths, or glob patterns of either.
            skip_vars: Do not search these.
            progress: Show a progress bar.
            higher_is_better: False if a function returns an error (an `Evaluator` says it itself).
            force: Continue a journal even if it was made with other weights, criterion, evaluator or baseline.
            confidence: How likely, per point, all data would decide as the part that was seen. A loss nearer to the target
                than the standard error of all data counts as decided where it leans: they could not tell either.
            spot_checks: For how many groups to measure a ratio beyond the answer.
            fast: See `sensitive`.
            cache_gib: See `sensitive`.
            observer: Called with every `Point` as soon as it is measured; one on part of the data has a ``share`` below 1, and
                comes again when more of them were seen.
        """
        wanted, groups = checked_ratios(ratios), self._whole_groups(target_vars, skip_vars)
        if sen_file is not None:
            check_journal(sen_file)
        means = Means(self._means_of_running(fast), cache_gib)
        scorer = scorer_of(
            self._model, self._roles, groups, evaluator, higher_is_better, self._optimizer, means
        )
        examiner = Examiner(scorer, target_loss, confidence)
        header = self._header(scorer, examiner.baseline, groups)
        journal = open_journal(sen_file, header, force) if sen_file is not None else None
        search = Search(self._roles, groups, self._choice(), wanted, examiner, spot_checks, journal, observer)
        return search.run(progress)

    def estimate(
        self,
        loader: Iterable[Any] | Evaluator,
        loss_fn: Callable[..., Any],
        ratios: Iterable[float] | None = None,
        target_vars: Names | None = None,
        skip_vars: Names = (),
    ) -> TaylorCurves:
        """A cheap first look: how much the training loss would rise, for every group and ratio, from one pass.

        Args:
            loader: Batches such as ``[image, label]``; a few are enough. Or an `Evaluator`.
            loss_fn: From outputs and labels, ``loss_fn(outputs, *batch[1:])``, to a scalar; with an `Evaluator` it gets the
                outputs and the whole batch.
            ratios: As for `sensitive`.
            target_vars: As for `sensitive`.
            skip_vars: As for `sensitive`.
        """
        groups = self._whole_groups(target_vars, skip_vars)
        return taylor_curves(self._model, groups, self._choice(), checked_ratios(ratios), loader, loss_fn)

    def ratios_by_flops(
        self, sens: Sensitivities, target: float, align: int | None = None
    ) -> dict[str, float]:
        """Ratios that remove this share of the FLOPs at the least predicted loss.

        Args:
            sens: What a sweep measured.
            target: Share of the FLOPs to remove, 0.5 for half of them.
            align: Leave a multiple of so many channels in every group that is cut.
        """
        return self._ratios_for("FLOPs", sens, target, align)

    def ratios_by_params(
        self, sens: Sensitivities, target: float, align: int | None = None
    ) -> dict[str, float]:
        """The same for a share of the parameters."""
        return self._ratios_for("parameters", sens, target, align)

    def costs(self) -> Costs:
        """What the model costs at any ratios of its groups, as plain data; a journal holds it too."""
        if self._cuts.removed:
            raise InputError(
                "the model is cut, and costs are told of the whole one: call restore() first, or make a new "
                "DygraphSensitivity of the cut model."
            )
        cost = cost_of(self._model, self._views[0])
        return describe_costs(cost, self._roles, self._groups, self._choice(), tensors_by_path(self._model))

    def prune_vars(self, ratios: Mapping[str, float], axis: int | Iterable[int] = 0) -> PruneOutcome:
        """Cut the model in place, with gradients, optimizer state and layer attributes.

        Args:
            ratios: Share of filters to remove, by parameter name or layer path of a group.
            axis: PaddleSlim's argument; filters lie on axis 0, and only 0 is taken.
        """
        if axis != 0 and list(axis if isinstance(axis, Iterable) else [axis]) != [0]:
            raise InputError(f"axis is {axis}; dysens removes filters, and those are on axis 0.")
        chosen = self._chosen(ratios)
        again = next((name for name in chosen if name in self._cuts.removed), None)
        if again is not None:
            raise InputError(f'"{again}" has been cut already; call restore() first to cut it differently.')
        if self._cuts.removed and isinstance(self._criterion, UnitCriterion):
            raise InputError(
                f"the criterion {self._criterion} has looked at the whole model: cut all groups in one go, or make a new one."
            )
        units = self._units(chosen)
        plan = self._plan(units)
        before = cost_of(self._model, self._views[0])
        widths = tuple(
            (group.name, group.path, group.channels, group.channels_left(units[group.name]))
            for group in self._groups
            if group.name in units
        )
        with preserved(self._model, self._optimizer, gradients=True, also=[self._cuts]) as state:
            # Training goes on, and must not reach what restore() will need.
            isolate(self._model, self._optimizer)
            cut(self._model, plan, self._optimizer)
            after = cost_of(self._model, self._views[0])
            outcome = PruneOutcome(
                before.flops, after.flops, before.params, after.params, plan, widths, after.counted_by_us
            )
            self._cuts.before = self._cuts.before or state
            really = {name: ratio for name, ratio in chosen.items() if len(units[name])}
            self._cuts.removed = {**self._cuts.removed, **really}
            state.keep()
        return outcome

    def restore(self) -> None:
        """Undo every `prune_vars`: weights, gradients and optimizer state are again what they were, bit for bit."""
        if self._cuts.before is not None:
            run_through(self._cuts.before.restore)

    def pruned(self, ratios: Mapping[str, float]) -> Preserved[PruneOutcome]:
        """Have the model cut for the length of a ``with`` block."""
        return Preserved(
            lambda: ModelState(self._model, self._optimizer, gradients=True, also=[self._cuts]),
            lambda _: self.prune_vars(ratios),
        )

    def verify(self, ratios: Mapping[str, float]) -> float:
        """The largest relative difference between the masked and the cut model, in the outputs or in any layer on the way."""
        return difference(self._model, self._views, self._plan(self._units(self._chosen(ratios)))).amount

    # What the methods above share

    def _means_of_running(self, fast: str) -> str:
        """The value of ``fast`` that is possible: a compiled copy masks channels, but no bias in it can take over means."""
        if not isinstance(self._criterion, UnitCriterion):
            return fast
        if fast == "on":
            raise InputError(
                f'the criterion {self._criterion} shifts biases, which fast="on" cannot do: take "off".'
            )
        logger.info(
            "the live model runs: the criterion %s shifts biases, and a compiled copy does not",
            self._criterion,
        )
        return "off"

    def _header(self, scorer: Scorer, baseline: float, groups: Iterable[ChannelGroup]) -> Header:
        return Header(
            type(self._model).__name__,
            fingerprint(self._model),
            criterion_name(self._criterion),
            scorer.name,
            baseline,
            scorer.higher_is_better,
            {group.name: group.path for group in groups},
            self.costs(),
        )

    def _whole_groups(self, target_vars: Names | None, skip_vars: Names) -> list[ChannelGroup]:
        if self._cuts.removed:
            raise InputError(
                "the model is cut, and a sweep measures the whole one: call restore() first, or make a new "
                "DygraphSensitivity of the cut model."
            )
        return self._selected(target_vars, skip_vars)

    def _choice(self) -> Choice:
        """From the weights as they are now: they may have been loaded or trained since this object was made."""
        return self._analysis.choice(tensors_by_path(self._model), self._criterion)

    def _selected(self, target_vars: Names | None, skip_vars: Names) -> list[ChannelGroup]:
        skipped = groups_with(self._groups, matching(skip_vars, self._known, "skip_vars"))
        targets = self._groups
        if target_vars is not None:
            targets = GroupList(groups_with(self._groups, matching(target_vars, self._known, "target_vars")))
        chosen = [group for group in targets if group not in skipped]
        if not chosen:
            raise InputError(
                "target_vars and skip_vars leave no group to sweep; ds.groups lists what there is."
            )
        return chosen

    def _chosen(self, ratios: Mapping[str, float]) -> dict[str, float]:
        """Ratios by group name; any weight that makes a group's channels may stand for the group."""
        names = {}
        for group in self._groups:
            for _, piece in group.scored:
                names[piece.tensor] = group.name
        names.update({name: names[path] for name, path in self._known.items() if path in names})
        chosen: dict[str, float] = {}
        for name, ratio in ratios.items():
            if name not in names:
                raise InputError(self._why_not(name, names))
            value = checked_ratio(ratio, name)
            if chosen.setdefault(names[name], value) != value:
                raise InputError(f'"{name}" is cut together with "{names[name]}", but their ratios differ.')
        return chosen

    def _why_not(self, name: str, names: Mapping[str, str]) -> str:
        by_path = {path: n for n, path in self._known.items()}
        reason = self._unprunable.get(by_path.get(name, name))
        if reason is not None:
            return f'"{name}" cannot be pruned: {reason}.'
        return (
            f'"{name}" names no group of this model{nearest(str(name), names) or "; ds.groups lists them."}'
        )

    def _units(self, ratios: Mapping[str, float]) -> dict[str, np.ndarray]:
        """The units that go, by group name."""
        groups = [group for group in self._groups if group.name in ratios]
        choose = self._choice()
        return {group.name: choose(group, ratios[group.name]) for group in groups}

    def _plan(self, units: Mapping[str, np.ndarray]) -> PrunePlan:
        removal = merge_removals(g.removal(units[g.name]) for g in self._groups if g.name in units)
        if self._cuts.removed:
            # Groups were found on the whole model; what is left of it has other indices.
            roles = roles_of(self._model)
            return plan_for(
                roles, translated(removal, history(self._model)[self._stages :], roles), self._model
            )
        return plan_for(self._roles, removal, self._model)

    def _ratios_for(
        self, what: str, sens: Sensitivities, target: float, align: int | None
    ) -> dict[str, float]:
        if self._cuts.removed:
            raise InputError(
                "the model is cut already; call restore() first to choose ratios for the whole one."
            )
        named = sens.renamed({group.path: group.name for group in self._groups})
        # Automatic names repeat from network to network: where a layer path is known, it has to be the same.
        groups = [g for g in self._groups if g.name in named and named.paths.get(g.name, g.path) == g.path]
        if not groups:
            raise InputError(
                "these sensitivities know none of this model's groups; were they measured on another model?"
            )
        curves = {group.name: named[group.name] for group in groups}
        choose, costs = (ratios_by_flops if what == "FLOPs" else ratios_by_params), self.costs()
        aim = target
        for _ in range(_BUDGET_TRIES):
            ratios = choose(curves, costs, aim, align)
            removed = self._share_removed(what, ratios)
            if removed >= target:
                return ratios
            aim += target - removed + 1e-4
        raise UnreachableError(
            f"no ratios remove {target:.1%} of the {what}; the closest found remove {removed:.1%}."
        )

    def _share_removed(self, what: str, ratios: Mapping[str, float]) -> float:
        with self.pruned(ratios) as outcome:
            if what == "FLOPs":
                return 1 - outcome.flops_after / outcome.flops_before
            return 1 - outcome.params_after / outcome.params_before


class _Cuts:
    """What `prune_vars` has done and `restore` would undo."""

    def __init__(self) -> None:
        self.before: ModelState | None = None
        self.removed: dict[str, float] = {}


def _float_type(model: paddle.nn.Layer) -> str:
    """The type that the first parameter holds, for tensors made from shapes."""
    kinds = (p.dtype for p in model.parameters() if p.is_floating_point())
    return str(next(kinds, "float32")).rpartition(".")[2]
