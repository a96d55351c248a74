"""What measures, in whatever process: a model and its evaluator, built once, that score it with units masked."""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import paddle

from dysens import __version__
from dysens.compiled import (
    EvaluatorScorer,
    PartialEvaluation,
    Scorer,
    ServedWronglyError,
    is_installed,
)
from dysens.criteria import GroupCriterion
from dysens.errors import InputError, nearest
from dysens.evaluators import Measurements, checked_baseline, metric_of
from dysens.groups import ChannelGroup, Role, roles_of
from dysens.model import fingerprint, tensors_by_path
from dysens.pruning import PrunePlan, plan_for
from dysens.results import Header
from dysens.sweep._examiner import Examiner
from dysens.sweep._executors import pickled
from dysens.sweep._options import Build, Built, RunOptions, scorer_of
from dysens.sweep._statistics import Estimate

logger = logging.getLogger(__name__)

Masked = tuple[str, np.ndarray]  # the layer path of a group, and the units that are masked
Look = tuple[str, np.ndarray, float]  # the same, and how much of the data to have seen


class Distrusted(NamedTuple):
    """An answer that takes back all earlier ones of this measurer: its compiled copy was found to be wrong.

    Attributes:
        baseline: What the live model scores.
    """

    baseline: float


class Scored(NamedTuple):
    """A masked model on all data."""

    metric: float
    seconds: float


class Examined(NamedTuple):
    """A masked model on part of the data.

    Attributes:
        estimate: Its loss.
        decided: Whether that settles the side of the target.
        seconds: What it took.
        pass_seconds: What all data take, by the clock of whoever measured.
    """

    estimate: Estimate
    decided: bool
    seconds: float
    pass_seconds: float


class Measurer:
    """Scores a model with units masked; groups are known by their layer path, which is the same in every process.

    Args:
        roles: The model's layers with weights.
        groups: What may be masked.
        scorer: Scores the model, and leaves it as found.
        examiner: For a search: looks at part of the data.
    """

    def __init__(
        self,
        roles: Mapping[str, Role],
        groups: Sequence[ChannelGroup],
        scorer: Scorer,
        examiner: Examiner | None = None,
    ) -> None:
        self._roles = roles
        self._groups = {group.path: group for group in groups}
        self._scorer = scorer
        self._examiner = examiner
        self._seen: dict[tuple[str, bytes], Measurements] = {}

    def expect(self, work: Sequence[tuple[str, np.ndarray, float]]) -> None:
        """Prepare for what is going to be measured: groups, units, and for how many measurements each stands."""
        self._scorer.expect([(self._plan(path, units), count) for path, units, count in work])

    def score(self, place: Masked, then: Masked | None = None) -> Scored | Distrusted:
        """The metric with these units masked; ``then`` is likely to be asked for next."""
        start = time.perf_counter()
        following = self._plan(*then) if then is not None else None
        try:
            metric = metric_of(self._scorer.score(self._plan(*place), following))
        except ServedWronglyError:
            return Distrusted(checked_baseline(self._scorer.score()))
        return Scored(metric, time.perf_counter() - start)

    def look(self, look: Look, then: Look | None = None) -> Examined | Distrusted:
        """See part of the data with these units masked, going on from the last look at them."""
        assert self._examiner is not None
        start = time.perf_counter()
        path, units, _ = look
        following = self._partial(*then) if then is not None else None
        try:
            found = self._examiner.examine(self._partial(*look), following)
        except ServedWronglyError:
            self._seen.clear()
            self._examiner.restart()
            return Distrusted(self._examiner.baseline)
        if found.decided:
            self._seen.pop((path, units.tobytes()), None)
        else:
            self._seen[path, units.tobytes()] = found.measured
        seconds = time.perf_counter() - start
        return Examined(found.estimate, found.decided, seconds, self._examiner.pass_seconds)

    def _plan(self, path: str, units: np.ndarray) -> PrunePlan:
        return plan_for(self._roles, self._groups[path].removal(units))

    def _partial(self, path: str, units: np.ndarray, share: float) -> PartialEvaluation:
        return PartialEvaluation(
            self._plan(path, units), self._seen.get((path, units.tobytes()), {}), share=share
        )


@dataclass(frozen=True)
class Job:
    """What a measurer in another process is made from.

    Attributes:
        build: Makes the model and what scores it.
        weights: The driver's weights and buffers, by their names in the state dict.
        groups: What may be masked.
        header: What the driver measures.
        options: How to use the machine.
        compensating: The criterion, if it compensates for what goes; what goes is chosen by the driver.
        target: For a search: the loss, and the confidence.
    """

    build: Build
    weights: Mapping[str, np.ndarray]
    groups: Sequence[ChannelGroup]
    header: Header
    options: RunOptions
    compensating: GroupCriterion | None = None
    target: tuple[float, float] | None = None


class Greeting(NamedTuple):
    """What a measurer says first.

    Attributes:
        host: Its machine.
        pid: Its process.
        threads: How many CPU threads it has.
        versions: Of what it runs on.
        header: What it measures: weights, evaluator, baseline.
    """

    host: str
    pid: int
    threads: int
    versions: Mapping[str, str]
    header: Header

    @classmethod
    def here(cls, header: Header) -> Greeting:
        """That of this process."""
        return cls(platform.node(), os.getpid(), threads_here(), versions(), header)

    def differences(self, header: Header) -> list[str]:
        """Why it must not take part in measuring what the header describes, a clause each."""
        others = {name: (ours, self.versions.get(name, "none")) for name, ours in versions().items()}
        clauses = [
            f"{name} is {theirs} there and {ours} here"
            for name, (ours, theirs) in others.items()
            if ours != theirs
        ]
        return clauses + header.differences(self.header)


def threads_here() -> int:
    """How many CPU threads a worker was started with."""
    return int(os.environ.get("OMP_NUM_THREADS", "1"))


def versions() -> dict[str, str]:
    """What has to be the same wherever points of one sweep are measured."""
    return {
        "dysens": __version__,
        "Paddle": paddle.__version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }


class RemoteMeasurer(Measurer):
    """A measurer in a process of its own, which builds the model anew and takes over the driver's weights.

    Args:
        job: What it is made from.

    Raises:
        InputError: Build gives something else than the network that is measured.
    """

    def __init__(self, job: Job) -> None:
        model, eval_func = built(job.build)
        load_weights(model, job.weights)
        names = {path: tensor.name for path, tensor in tensors_by_path(model).items()}
        other = next((group for group in job.groups if group.path not in names), None)
        if other is not None:
            raise InputError(
                f'The network that build makes has no weight "{other.path}"; is it the same network?'
            )
        # Automatic names may have shifted; the layer path is what the groups are known by.
        groups = [replace(group, name=names[group.path]) for group in job.groups]
        roles: Mapping[str, Role] = roles_of(model)
        if job.compensating is not None:
            roles = job.compensating.compensate(roles)
        better = job.header.higher_is_better
        options = _options_here(job.options)
        scorer = scorer_of(model, roles, groups, eval_func, better, options=options, cores=threads_here())
        examiner = Examiner(scorer, *job.target) if job.target is not None else None
        baseline = examiner.baseline if examiner is not None else checked_baseline(scorer.score())
        here = replace(
            job.header,
            weights=fingerprint(model),
            # What a function is called says nothing: build makes one of its own.
            evaluator=scorer.name if isinstance(scorer, EvaluatorScorer) else job.header.evaluator,
            higher_is_better=scorer.higher_is_better,
            baseline=baseline,
            paths={},
            costs=None,
        )
        self._greeting = Greeting.here(here)
        super().__init__(roles, groups, scorer, examiner)

    def greet(self) -> Greeting:
        """Who it is, and what it measures."""
        return self._greeting


def _options_here(options: RunOptions) -> RunOptions:
    """Those of the driver, as far as this machine has what they ask for."""
    if is_installed(options.fast):
        return options
    logger.warning(
        "%s is not installed on %s: another runtime is taken there.", options.fast, platform.node()
    )
    return replace(options, fast="auto")


def weights_of(model: paddle.nn.Layer) -> dict[str, np.ndarray]:
    """All parameters and persistent buffers, as arrays that any process can have."""
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def load_weights(model: paddle.nn.Layer, weights: Mapping[str, np.ndarray]) -> None:
    """Put what `weights_of` took into another model of the same network.

    Raises:
        InputError: It is another network.
    """
    mine = model.state_dict()
    odd: list[Any] = sorted(set(mine) ^ set(weights))
    odd += [name for name in mine if name in weights and tuple(mine[name].shape) != weights[name].shape]
    if odd:
        raise InputError(
            f'The network that build makes differs from the one that is measured at "{odd[0]}"; is it the same network?'
        )
    for name, tensor in mine.items():
        tensor.set_value(np.array(weights[name]))  # a copy: what came by way of an executor may be read-only


def checked_criterion(criterion: GroupCriterion) -> GroupCriterion:
    """A criterion that compensates, if workers can have it."""
    try:
        pickled(lambda: criterion)
    except InputError as error:
        raise InputError(
            f"Workers have to compensate as the criterion {criterion.name} does, and it cannot be handed to another process: "
            f"{error.__cause__}. Sweep with it in one process."
        ) from error
    return criterion


def built(build: Build) -> Built:
    """The model and what scores it.

    Raises:
        InputError: Build gives something else.
    """
    function = imported(build) if isinstance(build, str) else build
    made: Any = function()
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], paddle.nn.Layer)):
        raise InputError(
            f"build has to return the model and its evaluator (or eval_func), not {made!r:.80}: return model, evaluator"
        )
    return made[0], made[1]


def imported(name: str, what: str = "build") -> Callable[..., Any]:
    """The function that "package.module:function" names.

    Args:
        name: The name.
        what: What the function is for, for messages.

    Raises:
        InputError: There is no such function.
    """
    module_name, _, function_name = name.partition(":")
    if not (module_name and function_name):
        raise InputError(f'{what} has to be "package.module:function", not "{name}".')
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise InputError(f'{what} "{name}" cannot be imported: {error}.') from error
    if not callable(getattr(module, function_name, None)):
        hint = nearest(function_name, dir(module)) or "."
        raise InputError(
            f'{what} "{name}" does not exist: {module_name} has no function "{function_name}"{hint}'
        )
    function: Callable[..., Any] = getattr(module, function_name)
    return function
