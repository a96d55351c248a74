"""PaddleSlim's sensitivity of static programs: `sensitivity` and `analysis_prune`, by its names, arguments and results."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from dysens.compat._functions import get_ratios_by_loss
from dysens.compat._static_pruner import check_static_criterion, criterion_of
from dysens.compat._static_state import Results, ScopeState
from dysens.costs import cost_of
from dysens.criteria import Criterion
from dysens.errors import DysensError, InputError
from dysens.evaluators import checked_baseline
from dysens.groups import ChannelGroup
from dysens.model import tensors_by_path
from dysens.programs import (
    LayerAnswers,
    NotServedError,
    Run,
    StaticNetwork,
    Watched,
    check_parameters,
    find_inference,
    in_dynamic_mode,
    in_static_mode,
    load_inference,
    load_program,
    prunable_filters,
    runs_answered,
    uses_pir,
)
from dysens.pruning import describe_costs
from dysens.ratios import checked_number
from dysens.results import same_baseline
from dysens.sweep import Measuring, RunOptions, checked_ratios

logger = logging.getLogger(__name__)

Curves = dict[str, dict[float, float]]


def sensitivity(
    program: Any,
    place: Any,
    param_names: Iterable[str],
    eval_func: Callable[..., Any],
    sensitivities_file: str | os.PathLike[str] | None = None,
    pruned_ratios: Iterable[float] | None = None,
    eval_args: Sequence[Any] | None = None,
    criterion: Any = "l1_norm",
) -> Curves:
    """Measure what each weight of a static program is worth: `paddleslim.prune.sensitivity`.

    The values are those of the current scope (`paddle.static.global_scope`), which is left as found.

    Args:
        program: The program that is scored, made for testing.
        place: Where pruned values are put.
        param_names: Names of weights of convolutions.
        eval_func: From a program to its score; higher is better.
        sensitivities_file: PaddleSlim's pickle. Points that it holds are not measured again; new ones are added one by one. A
            journal of the same name plus ".jsonl" lies beside it.
        pruned_ratios: Shares of filters to remove; 0.1, 0.2 ... 0.9 if not given.
        eval_args: Further arguments of eval_func.
        criterion: As for `Pruner`.

    Returns:
        Name to {ratio: loss}, with losses relative to the score of the whole program.

    Raises:
        InputError: An argument, the program, or what eval_func did cannot be used.
    """
    # By default as PaddleSlim has them, to the last bit.
    ratios = np.arange(0.1, 1, step=0.1).tolist() if pruned_ratios is None else list(pruned_ratios)
    scope = paddle.static.global_scope()
    return StaticSweep(
        program, scope, place, list(param_names), eval_func, list(eval_args or ()), criterion
    ).run(ratios, sensitivities_file)


@dataclass
class StaticSweep:
    """A sweep over weights of a program.

    Attributes:
        program: The program.
        scope: Where its values are.
        place: Where values are put.
        names: The weights.
        function: From the program, and the arguments, to its score.
        arguments: What the function gets besides.
        criterion: What ranks filters.
        example: Inputs to analyse with, by name; by default what the function feeds first.
    """

    program: Any
    scope: Any
    place: Any
    names: Sequence[str]
    function: Callable[..., Any]
    arguments: Sequence[Any]
    criterion: Any
    example: Mapping[str, np.ndarray] = field(default_factory=dict)

    def run(self, ratios: Sequence[float], file: str | os.PathLike[str] | None) -> Curves:
        """Measure every weight at every ratio that the file lacks."""
        checked = checked_ratios(ratios)
        check_static_criterion(self.criterion)
        check_parameters(self.program, self.names)
        if not callable(self.function):
            raise InputError(f"The eval_func has to be a function, not {self.function!r:.80}.")
        results = Results(file, checked)
        if results.has_all(self.names):
            return results.curves
        watched = Watched(self.program)
        with ScopeState(self.program, self.scope, self.place) as state:
            baseline = checked_baseline(self._scored(self.program, watched, state))
            network = StaticNetwork(
                self.program, self.scope, list(watched.fetched.values()), self.example or _rows(watched.feed)
            )
            state.watch(tensor.name for tensor in tensors_by_path(network.model).values())
            state.check(self._name)
            groups = self._groups(network)
            score = self._served(network, watched, baseline, state)
            if score is not None:
                try:
                    self._sweep(network, groups, checked, score, "auto", results)
                    return results.curves
                except NotServedError as error:
                    logger.info(
                        "A real Executor runs from now on, because of what %s does: %s.", self._name, error
                    )
            self._sweep(network, groups, checked, self._in_scope(network, state), "off", results)
        return results.curves

    @property
    def _name(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def _groups(self, network: StaticNetwork) -> list[ChannelGroup]:
        groups = []
        for name in self.names:
            group = network.group_of(name)
            if group is None:
                logger.warning('"%s" is not measured: %s.', name, network.reason(name))
            else:
                groups.append(group)
        if not groups:
            first = self.names[0] if self.names else None
            why = f'; "{first}": {network.reason(first)}' if first is not None else ""
            raise InputError(f"None of the {len(self.names)} parameters has filters that can be pruned{why}.")
        return groups

    def _scored(self, program: Any, answer: Callable[[Run], Any], state: ScopeState) -> Any:
        """What the function says of a program; whatever it raises becomes a sentence."""

        def careful(run: Run) -> Any:
            other = getattr(run.program, "_program", run.program)  # of a CompiledProgram
            if other is not None and run.program is not program and other is not self.program:
                state.remember(other)
            return answer(run)

        try:
            with in_static_mode(), paddle.static.scope_guard(self.scope), runs_answered(careful):
                return self.function(program, *self.arguments)
        except (DysensError, NotServedError):
            raise
        except Exception as error:
            said = " ".join(str(error).split()).rstrip(".")  # Paddle's own messages have many lines
            raise InputError(
                f"{self._name} raised {type(error).__name__}: {said:.600}. The program and its scope are as they were."
            ) from error

    def _served(
        self, network: StaticNetwork, watched: Watched, baseline: float, state: ScopeState
    ) -> Callable[[], Any] | None:
        """Scores by the live layer, if that gives what the program itself gives; None if not."""
        reason = watched.reason or ("" if watched.answer else "it does not run the program")
        answers = LayerAnswers(network.model, list(watched.fetched), self.program)
        if not reason:
            reason = answers.agree(watched)

        if reason:
            logger.info("A real Executor runs, because of what %s does: %s.", self._name, reason)
            return None
        expected: list[float] = [baseline]  # until the layer has scored the whole network once

        def score() -> Any:
            try:
                value = self._scored(answers.stand_in, answers, state)
            except InputError as error:
                if answers.reason:
                    raise NotServedError(answers.reason) from error
                raise
            if answers.reason:
                raise NotServedError(answers.reason)
            state.check(self._name)
            if expected:
                first = checked_baseline(value)
                if not same_baseline(first, expected.pop()):
                    raise NotServedError(f"the live layer scores {first:.6g} and the program {baseline:.6g}")
            return value

        score.__name__ = self._name
        return score

    def _in_scope(self, network: StaticNetwork, state: ScopeState) -> Callable[[], Any]:
        """Scores by the program itself, with the masks of the live layer written into the scope."""
        tensors = {tensor.name: tensor for tensor in tensors_by_path(network.model).values()}

        def score() -> Any:
            live = {name: tensor.numpy() for name, tensor in tensors.items()}
            state.write(live)
            try:
                value = self._scored(self.program, lambda run: run.really(), state)
                state.check(self._name)
            finally:
                state.restore()
            return value

        score.__name__ = self._name
        return score

    def _sweep(
        self,
        network: StaticNetwork,
        groups: Sequence[ChannelGroup],
        ratios: Sequence[float],
        score: Callable[[], Any],
        fast: str,
        results: Results,
    ) -> None:
        criterion: Criterion = criterion_of(self.criterion, network)
        tensors = tensors_by_path(network.model)
        choice = network.analysis.choice(tensors, criterion)
        distinct = list({id(next(iter(group.units.values()))): group for group in reversed(groups)}.values())[
            ::-1
        ]

        def costs() -> Any:
            return describe_costs(
                cost_of(network.model, network.view), network.analysis.roles, distinct, choice, tensors
            )

        with in_dynamic_mode():
            found = Measuring(
                network.model,
                None,
                network.analysis.roles,
                criterion,
                choice,
                costs,
                groups,
                ratios,
                results.journal,
                False,
                True,
            ).sweep(score, True, RunOptions(fast=fast, observer=results.add))
        assert found.baseline is not None
        results.finish(found.points, found.baseline)


def _rows(feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One row of what was fed, where all that was fed has rows."""
    lengths = {len(array) if array.ndim else 0 for array in feed.values()}
    several = len(lengths) == 1 and 0 not in lengths
    return {name: array[:1] for name, array in feed.items()} if several else dict(feed)


def analysis_prune(
    eval_function: Callable[..., Any],
    model_dir: str | os.PathLike[str],
    model_filename: str | None,
    params_filename: str | None,
    analysis_file: str | os.PathLike[str],
    pruned_ratios: Iterable[float],
    target_loss: float | None = None,
    criterion: Any = "l1_norm",
    input_shape: Any = None,
) -> dict[str, float]:
    """Measure the convolutions of an exported model: `paddleslim.auto_compression.analysis.analysis_prune`.

    Args:
        eval_function: Called with a program, an Executor, the names of the inputs and the list to fetch; returns the score,
            higher is better.
        model_dir: The folder of the model.
        model_filename: Its program, such as "inference.pdmodel" or "inference.json".
        params_filename: Its weights, such as "inference.pdiparams".
        analysis_file: PaddleSlim's pickle, as `sensitivity` has it.
        pruned_ratios: Shares of filters to remove.
        target_loss: The relative loss that each weight may cost; without it, ratios are not chosen.
        criterion: As for `Pruner`.
        input_shape: Shape of the input, or shapes of all, to find groups with; by default what eval_function feeds first.

    Returns:
        The ratio of every weight at the target loss; empty without one.

    Raises:
        InputError: Files, arguments, or what eval_function did cannot be used.
    """
    if target_loss is not None:
        get_ratios_by_loss(
            {}, checked_number("target_loss", target_loss)
        )  # refused before anything is measured
    if model_filename is None and params_filename is None and not Path(model_dir).is_dir():
        files = find_inference(model_dir, prefer_pir=uses_pir())
    else:
        files = find_inference(model_dir, model_filename, params_filename, prefer_pir=uses_pir())
    load_inference(model_dir, model_filename, params_filename)  # says in words what is wrong with files
    loaded = load_program(files)
    place = paddle.device._convert_to_place(paddle.device.get_device())
    with in_static_mode():
        exe = paddle.static.Executor(place)
    sweep = StaticSweep(
        loaded.program,
        loaded.scope,
        None,
        prunable_filters(loaded.program),
        eval_function,
        [exe, loaded.feed_names, loaded.fetch_targets],
        criterion,
        _examples(loaded.feed_names, input_shape),
    )
    sensitivities = sweep.run(list(pruned_ratios), analysis_file)
    logger.info("finish analysis: %s", sensitivities)
    if target_loss is None:
        return {}
    ratios = get_ratios_by_loss(sensitivities, target_loss)
    logger.info("you can set prune_params_name: %s in ChannelPrune", list(ratios))
    logger.info("you can set pruned_ratio: %s in ChannelPrune", list(ratios.values()))
    return ratios


def _examples(names: Sequence[str], input_shape: Any) -> dict[str, np.ndarray]:
    if input_shape is None:
        return {}
    listed = isinstance(input_shape, (list, tuple)) and input_shape
    shapes = [input_shape] if listed and isinstance(input_shape[0], int) else input_shape
    if not listed or not all(map(_is_shape, shapes)):
        raise InputError(
            f"The input_shape is {input_shape!r:.80}; it has to be a shape, such as [1, 3, 224, 224], or a list of them."
        )
    if len(shapes) > len(names):
        raise InputError(
            f"The input_shape has {len(shapes)} shapes, and the program takes {len(names)} inputs."
        )
    drawn = np.random.default_rng(0)
    return {name: drawn.uniform(-1, 1, shape).astype("float32") for name, shape in zip(names, shapes)}


def _is_shape(sides: Any) -> bool:
    whole = isinstance(sides, (list, tuple)) and all(isinstance(side, int) and side > 0 for side in sides)
    return whole and bool(sides)
