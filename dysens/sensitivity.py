"""The main class: from a live layer to sensitivities, ratios, and the same layer pruned."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Optional

import numpy as np
import paddle

from dysens.compiled import DEFAULT_CACHE_GIB
from dysens.compress import (
    ELIMINATION,
    CompressOptions,
    CompressOutcome,
    Elimination,
    Subject,
    compress,
    error_curves,
)
from dysens.costs import Costs, cost_of
from dysens.criteria import Criterion, GroupCriterion, check_criterion, compensates, criterion_name
from dysens.engines import EngineChoice, engine_for
from dysens.errors import InputError
from dysens.evaluators import Evaluator
from dysens.flags import flag
from dysens.groups import (
    FILTERS,
    ChannelGroup,
    Choice,
    GroupList,
    GroupNames,
    Unprunable,
    explain_group,
    filters_by_path,
    groups_with,
    matching,
    merge_removals,
    roles_of,
    skip_reasons,
)
from dysens.model import Preserved, tensors_by_path, view_of
from dysens.pruning import (
    Cuts,
    PruneOutcome,
    PrunePlan,
    describe_costs,
    difference,
    group_now,
    plan_for,
    translated,
)
from dysens.ratios import ratios_by_flops, ratios_by_params
from dysens.results import LossCurve, Sensitivities, curves_of, recounted
from dysens.sweep import (
    Build,
    Executor,
    Forecast,
    Measuring,
    Observer,
    RunOptions,
    SearchResult,
    TaylorCurves,
    checked_ratios,
    run_options,
    taylor_curves,
)

Names = Iterable[str]
Chooser = Callable[[Mapping[str, LossCurve], Costs, float, Optional[int]], dict[str, float]]


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
        engine: EngineChoice = "auto",
        train_inputs: Any = None,
        data: Any = None,
        fold: bool = True,
        layers: str = FILTERS,
    ) -> None:
        """Find the model's channel groups and prove them; the model is left unchanged.

        Args:
            model: The live layer.
            input_shape: A shape, several shapes, or example inputs: tensors, lists, dicts, a tuple of positional arguments.
            criterion: "fpgm", "l1", "l2", "random", a function from a weight with filters along axis 0 to their scores, a
                `dysens.GroupCriterion`, such as `dysens.Variance`, which looks at data, or "elimination", which needs ``data``.
            skip_vars: Weights whose filters must stay: parameter names, layer paths, or glob patterns of either.
            optimizer: Its state is cut and restored along with the model.
            engine: "auto" and "native" probe the live layer; "paddleslim" asks PaddleSlim (Paddle 2.6 only); or an engine
                of your own, see `dysens.engines.Engine`.
            train_inputs: Example arguments of the training forward, given like ``input_shape``. Then only groups are
                offered that the training forward survives too.
            data: For the criterion "elimination": unlabelled data, as `compress` takes them.
            fold: With the criterion "elimination", whether removed units are folded into the remaining ones.
            layers: "filters" looks for groups of 4-D weights, as sensitivity scripts do; "all" also for hidden units of linear
                and recurrent layers, heads of attention, and channels of 1-D and 3-D convolutions.
        """
        if not isinstance(model, paddle.nn.Layer):
            raise InputError(f"The model has to be a paddle.nn.Layer, not a {type(model).__name__}.")
        if not paddle.in_dynamic_mode():
            raise InputError(
                "Paddle is in static mode, and dysens runs live layers: call paddle.disable_static() first."
            )
        if (criterion == ELIMINATION) != (data is not None):
            raise InputError(
                'The argument data and the criterion "elimination" belong together: give both, or neither (compress takes data '
                "of its own)."
            )
        if criterion != ELIMINATION:
            check_criterion(criterion)  # before the work begins
        self._model = model
        self._criterion = criterion
        self._optimizer = optimizer
        self._views = [view_of(input_shape, _float_type(model))]
        if train_inputs is not None:
            self._views.append(view_of(train_inputs, _float_type(model), training=True))
        find = engine_for(engine, layers)
        self._known = {tensor.name: path for path, tensor in filters_by_path(model, layers).items()}
        if not self._known:
            more = (
                f'; {flag("layers")}="all" looks at linear layers and other convolutions too'
                if layers == FILTERS
                else ""
            )
            raise InputError(
                f"{type(model).__name__} has no 4-D weight, so there are no filters to prune{more}."
            )
        skipped = matching(skip_vars, self._known, "skip_vars")
        self._analysis = analysis = find(model, self._views)
        left_out = groups_with(analysis.groups, skipped)
        reasons = {**analysis.reasons, **skip_reasons(left_out, skipped)}
        self._roles = analysis.roles
        if criterion == ELIMINATION:
            criterion = self._criterion = Elimination.of_data(model, analysis, self._views, data, fold)
        if isinstance(criterion, GroupCriterion):
            self._roles = criterion.compensate(analysis.roles)
        self._groups = GroupList(group for group in analysis.groups if group not in left_out)
        self._unprunable = Unprunable(
            {n: reasons[path] for n, path in self._known.items() if path in reasons}
        )
        self._names = GroupNames(self._groups, self._known, self._unprunable)
        self._cuts = Cuts(model, optimizer, self._views[0], analysis.untried)

    @property
    def groups(self) -> GroupList:
        """The proven groups in parameter order; prints as a table."""
        return self._groups

    @property
    def unprunable(self) -> Unprunable:
        """Parameter name to the reason why its filters stay, for every 4-D weight that is in no group."""
        return self._unprunable

    def explain(self, name: str) -> str:
        """Describe which layers move together with a weight and why, or why its filters stay.

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
        executor: Executor | None = None,
        timeout: float | None = None,
        options: RunOptions | None = None,
    ) -> Sensitivities:
        """Measure how much each group loses at each ratio. The model is masked, never reshaped, and left unchanged.

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
                "package.module:function", or a function without arguments. They get the weights of this process.
            fast: "auto" serves the model's forward from a compiled copy where that gives the same outputs (on CPU, 3 to 15
                times faster), by the fastest runtime that is installed, and runs the live model otherwise; "on" raises where it
                cannot; "paddle" and "openvino" take only that runtime; "off" runs the live model.
            cache_gib: How many GiB of an `Evaluator`'s data, and of outputs of layers, may be kept in memory.
            observer: Called with every `Point` as soon as it is known: `dysens.report.SweepLog`, or a function.
            executor: Where the workers run: processes of this machine if not given, or `dysens.Ray` for a cluster.
            timeout: Seconds after which a worker that does not answer is replaced; None for an hour, or longer where points
                take long.
            options: The last seven in one object, instead of one by one.
        """
        run = run_options(
            options,
            workers=workers,
            build=build,
            fast=fast,
            cache_gib=cache_gib,
            observer=observer,
            executor=executor,
            timeout=timeout,
        )
        measuring = self._measuring(ratios, target_vars, skip_vars, sen_file, force, progress)
        return measuring.sweep(eval_func, higher_is_better, run)

    def forecast(
        self,
        eval_func: Callable[[], Any] | Evaluator,
        ratios: Iterable[float] | None = None,
        sen_file: str | os.PathLike[str] | None = None,
        target_vars: Names | None = None,
        skip_vars: Names = (),
        higher_is_better: bool = True,
        options: RunOptions | None = None,
    ) -> Forecast:
        """What `sensitive` would take with the same arguments: points, seconds, memory, disk.

        Scores the whole model and two points, of which the second is timed. Nothing is written.

        Args:
            eval_func: See `sensitive`.
            ratios: See `sensitive`.
            sen_file: The journal that it would go on with; what it holds is not counted again.
            target_vars: See `sensitive`.
            skip_vars: See `sensitive`.
            higher_is_better: See `sensitive`.
            options: How it would run.
        """
        measuring = self._measuring(ratios, target_vars, skip_vars, sen_file, False, False)
        return measuring.forecast(eval_func, higher_is_better, options or RunOptions())

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
        workers: int = 1,
        build: Build | None = None,
        fast: str = "auto",
        cache_gib: float = DEFAULT_CACHE_GIB,
        observer: Observer | None = None,
        executor: Executor | None = None,
        timeout: float | None = None,
        options: RunOptions | None = None,
    ) -> SearchResult:
        """Find each group's largest ratio within a target loss, with far fewer measurements than a sweep takes.

        Losses are taken to rise with the ratio; a few spot checks test whether they do.

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
                than the standard error of all data counts as decided by its sign: all data could not decide it either.
            spot_checks: For how many groups to measure a ratio beyond the answer.
            workers: How many processes share the search, a group each at a time.
            build: See `sensitive`.
            fast: See `sensitive`.
            cache_gib: See `sensitive`.
            observer: Called with every `Point` as soon as it is measured; one on part of the data has a ``share`` below 1, and
                comes again when more of them were seen.
            executor: See `sensitive`.
            timeout: See `sensitive`.
            options: The last seven in one object, instead of one by one.
        """
        run = run_options(
            options,
            workers=workers,
            build=build,
            fast=fast,
            cache_gib=cache_gib,
            observer=observer,
            executor=executor,
            timeout=timeout,
        )
        measuring = self._measuring(ratios, target_vars, skip_vars, sen_file, force, progress)
        return measuring.search(evaluator, higher_is_better, run, target_loss, confidence, spot_checks)

    def estimate(
        self,
        loader: Iterable[Any] | Evaluator,
        loss_fn: Callable[..., Any] | None = None,
        ratios: Iterable[float] | None = None,
        target_vars: Names | None = None,
        skip_vars: Names = (),
    ) -> TaylorCurves:
        """A cheap first look at every group and ratio, from one pass over some data.

        With a loss, it is how much the training loss would rise. Without one (and so without labels), it is the error of the
        outputs once units are eliminated and folded into the others, see `dysens.compress`.

        Args:
            loader: Batches such as ``[image, label]``; a few are enough. Or an `Evaluator`.
            loss_fn: From outputs and labels, ``loss_fn(outputs, *batch[1:])``, to a scalar; with an `Evaluator` it gets the
                outputs and the whole batch.
            ratios: As for `sensitive`.
            target_vars: As for `sensitive`.
            skip_vars: As for `sensitive`.
        """
        groups = self._whole_groups(target_vars, skip_vars)
        if loss_fn is None:
            elimination = Elimination.of_data(self._model, self._analysis, self._views, loader)
            return error_curves(elimination, groups, checked_ratios(ratios))
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
        return self._recounted(sens, ratios_by_flops, target, align, "FLOPs")

    def ratios_by_params(
        self, sens: Sensitivities, target: float, align: int | None = None
    ) -> dict[str, float]:
        """The same for a share of the parameters."""
        return self._recounted(sens, ratios_by_params, target, align, "parameters")

    def costs(self) -> Costs:
        """What the model costs at any ratios of its groups, as plain data; a journal holds it too."""
        self._cuts.require_whole("costs are those of")
        cost = cost_of(self._model, self._views[0])
        return describe_costs(cost, self._roles, self._groups, self._choice(), tensors_by_path(self._model))

    def prune_vars(self, ratios: Mapping[str, float], axis: int | Iterable[int] = 0) -> PruneOutcome:
        """Cut the model in place, with gradients, optimizer state and layer attributes.

        Args:
            ratios: Share of filters to remove, by parameter name or layer path of a group.
            axis: PaddleSlim's argument; filters lie on axis 0, and only 0 is taken.
        """
        if axis != 0 and list(axis if isinstance(axis, Iterable) else [axis]) != [0]:
            raise InputError(f"The axis is {axis}; dysens removes filters, and those are on axis 0.")
        chosen = self._names.ratios(ratios)
        again = next((name for name in chosen if name in self._cuts.removed), None)
        if again is not None:
            raise InputError(f'"{again}" has been cut already; call restore() first to cut it differently.')
        if self._cuts.removed and compensates(self._criterion):
            raise InputError(
                f"The criterion {criterion_name(self._criterion)} compensates with what it saw of the whole model, and that "
                "is cut already: cut all groups in one go, or call restore() first."
            )
        units = self._units(chosen)
        return self._carried_out(chosen, units, self._plan(units))

    def restore(self) -> None:
        """Undo every `prune_vars`: weights, gradients and optimizer state are again what they were, bit for bit."""
        self._cuts.restore()

    def pruned(self, ratios: Mapping[str, float]) -> Preserved[PruneOutcome]:
        """Have the model cut for the length of a ``with`` block."""
        return self._cuts.for_a_while(lambda: self.prune_vars(ratios))

    def verify(self, ratios: Mapping[str, float]) -> float:
        """The largest relative difference between the masked and the cut model, in the outputs or in any layer on the way."""
        plan = self._plan(self._units(self._names.ratios(ratios)))
        return difference(self._model, self._views, plan).amount

    def compress(
        self,
        data: Any,
        flops: float | None = None,
        params: float | None = None,
        latency: float | None = None,
        max_loss: float | None = None,
        evaluator: Evaluator | Callable[[], Any] | None = None,
        samples: int = 64,
        align: int | None = 8,
        skip_vars: Names = (),
        target_vars: Names | None = None,
        sens: Sensitivities | None = None,
        runtime: Any = "paddle",
        progress: bool = True,
        workers: int = 1,
        build: Build | None = None,
        executor: Executor | None = None,
        timeout: float | None = None,
    ) -> CompressOutcome:
        """Cut the model in place to a budget, with as little loss as possible and without training; `restore` undoes it.

        From one pass over unlabelled data follow which units the others can best replace (elimination), how they do it
        (folding), and what it costs. Several allocations of the budget are compared as a whole by the error of the network's
        outputs; the best one is scored if there is an evaluator.

        Args:
            data: An iterable of the model's arguments, a loader whose batches begin with them, or an `Evaluator`, which then
                scores too. They should look like the data that matter; labels are not needed.
            flops: Share of the FLOPs to remove, 0.5 for half of them.
            params: Share of the parameters to remove.
            latency: Share of the time to remove, measured on the exported model.
            max_loss: Relative loss of score that is allowed. With a budget, less is removed where it would cost more; without
                one, as much as it allows.
            evaluator: Scores the result: an `Evaluator`, or a function that scores the live model (higher is better).
            samples: How many samples to take from the data; a quarter of them is held out to compare on.
            align: Leave a multiple of so many channels in every group that is cut; odd widths are not faster.
            skip_vars: Weights whose filters must stay: parameter names, layer paths, or glob patterns of either.
            target_vars: Cut only these groups, given alike.
            sens: A sweep of the model, if there is one: then its losses are one more way to allocate.
            runtime: What times the exported model: "paddle", "openvino", "onnxruntime", or a function or command that is given
                the folder of the exported model and returns (prints) milliseconds.
            progress: Show a progress bar.
            workers: How many processes calibrate and compare cuts, see `sensitive`; the result is that of one process.
            build: With several workers, what gives each of them the model (and an evaluator, which is not used here).
            executor: See `sensitive`.
            timeout: See `sensitive`.

        Raises:
            InputError: Data or options cannot be used.
            UnreachableError: The budget is out of reach; the message says what is not.
        """
        self._cuts.require_whole("compress begins with")
        subject = Subject(
            self._model,
            self._analysis.roles,
            self._names.selected(target_vars, skip_vars),
            self._views,
            self._optimizer,
        )
        scoring = data if evaluator is None and isinstance(data, Evaluator) else evaluator
        options = CompressOptions(
            flops,
            params,
            latency,
            max_loss,
            scoring,
            samples,
            align,
            sens,
            runtime,
            progress,
            RunOptions(workers, build, executor=executor, timeout=timeout),
        )
        decision = compress(subject, data, options)
        return decision.outcome(self._carried_out(decision.ratios, decision.units, decision.plan))

    def compressed(self, data: Any, **options: Any) -> Preserved[CompressOutcome]:
        """Have the model compressed for the length of a ``with`` block; takes what `compress` takes."""
        return self._cuts.for_a_while(lambda: self.compress(data, **options))

    # What the methods above share

    def _carried_out(
        self, ratios: Mapping[str, float], units: Mapping[str, np.ndarray], plan: PrunePlan
    ) -> PruneOutcome:
        """Cut the model; `restore` undoes it."""
        widths = tuple(
            (group.name, group.path, group.channels, group.channels_left(units[group.name]))
            for group in self._groups
            if group.name in units
        )
        removed = {name: ratio for name, ratio in ratios.items() if len(units[name])}
        return self._cuts.make(plan, widths, removed)

    def _measuring(
        self,
        ratios: Iterable[float] | None,
        target_vars: Names | None,
        skip_vars: Names,
        sen_file: str | os.PathLike[str] | None,
        force: bool,
        progress: bool,
    ) -> Measuring:
        groups = self._whole_groups(target_vars, skip_vars)
        return Measuring(
            self._model,
            self._optimizer,
            self._roles,
            self._criterion,
            self._choice(),
            self.costs,
            groups,
            checked_ratios(ratios),
            sen_file,
            force,
            progress,
        )

    def _whole_groups(self, target_vars: Names | None, skip_vars: Names) -> list[ChannelGroup]:
        self._cuts.require_whole("this measures")
        return self._names.selected(target_vars, skip_vars)

    def _choice(self) -> Choice:
        """From the weights as they are now: they may have been loaded or trained since this object was made."""
        return self._analysis.choice(tensors_by_path(self._model), self._criterion)

    def _units(self, ratios: Mapping[str, float]) -> dict[str, np.ndarray]:
        """The units that go, by group name."""
        groups = [group for group in self._groups if group.name in ratios]
        if self._cuts.removed:
            roles = roles_of(self._model)
            groups = [group_now(group, self._cuts.plans, roles) for group in groups]
        choose = self._choice()
        return {group.name: choose(group, ratios[group.name]) for group in groups}

    def _plan(self, units: Mapping[str, np.ndarray]) -> PrunePlan:
        removal = merge_removals(g.removal(units[g.name]) for g in self._groups if g.name in units)
        if self._cuts.removed:
            # Groups were found on the whole model; what is left of it has other indices.
            roles = roles_of(self._model)
            return plan_for(roles, translated(removal, self._cuts.plans, roles), self._model)
        return plan_for(self._roles, removal, self._model)

    def _recounted(
        self, sens: Sensitivities, choose: Chooser, target: float, align: int | None, what: str
    ) -> dict[str, float]:
        self._cuts.require_whole("ratios are chosen for")
        curves = curves_of(sens, {group.name: group.path for group in self._groups})
        costs = self.costs()

        def removed(ratios: Mapping[str, float]) -> float:
            with self.pruned(ratios) as outcome:
                return outcome.flops_removed if what == "FLOPs" else outcome.params_removed

        return recounted(lambda aim: choose(curves, costs, aim, align), removed, target, what)


def _float_type(model: paddle.nn.Layer) -> str:
    """The type that the first parameter holds, for tensors made from shapes."""
    kinds = (p.dtype for p in model.parameters() if p.is_floating_point())
    return str(next(kinds, "float32")).rpartition(".")[2]
