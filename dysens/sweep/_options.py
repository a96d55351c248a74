"""How a sweep or a search runs: what changes the time it takes, not what it measures; and the scorer for what a user hands in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Union

import paddle

from dysens.compiled import DEFAULT_CACHE_GIB, Consumers, EvaluatorScorer, FastForward, FunctionScorer, Scorer
from dysens.errors import InputError
from dysens.evaluators import Evaluator
from dysens.groups import ChannelGroup, Role
from dysens.pruning import plan_for, random_removal
from dysens.ratios import checked_number
from dysens.results import Point
from dysens.sweep._executors import Executor, pickled

Observer = Callable[[Point], object]
Built = tuple[paddle.nn.Layer, Union[Callable[[], Any], Evaluator]]
Build = Union[str, Callable[[], Built]]


@dataclass(frozen=True)
class RunOptions:
    """How a sweep or a search runs; `DygraphSensitivity.sensitive` and `search` take the same one by one.

    Attributes:
        workers: How many processes share a sweep or a search.
        build: With several workers, what gives each of them its model and evaluator (or eval_func), in that order:
            "package.module:function", or a function without arguments. The weights are this process's.
        fast: "auto" runs a compiled copy of the model where that gives the same outputs, by the fastest runtime that is
            installed, and the live model otherwise; "on" raises where it cannot; "paddle" and "openvino" take only that runtime;
            "off" runs the live model.
        cache_gib: How many GiB of an `Evaluator`'s data, and of outputs of layers, may be kept in memory.
        observer: Called with every `Point` as soon as it is known.
        executor: Where the workers run: processes of this machine if not given, or `dysens.Ray`.
        timeout: Seconds after which a worker that does not answer is taken to hang, and replaced; None for an hour, or longer
            where the points so far took long.

    Raises:
        InputError: There are less than one worker, or several without ``build``.

    Example:
        >>> RunOptions(fast="off").workers
        1
    """

    workers: int = 1
    build: Build | None = None
    fast: str = "auto"
    cache_gib: float = DEFAULT_CACHE_GIB
    observer: Observer | None = None
    executor: Executor | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.workers, bool) or not isinstance(self.workers, int) or self.workers < 1:
            raise InputError(
                f"Workers must be a whole number of processes, at least 1, not {self.workers!r:.80}."
            )
        if self.executor is not None and not isinstance(self.executor, Executor):
            raise InputError(f"The executor has to be one, such as dysens.Ray(), not {self.executor!r:.80}.")
        if self.timeout is not None and not checked_number("timeout", self.timeout) > 0:
            raise InputError(f"The timeout has to be a number of seconds over 0, not {self.timeout}.")
        if self.elsewhere and self.build is None:
            raise InputError(
                "Workers need models of their own: give build, a function that returns the model and its evaluator."
            )

    @property
    def elsewhere(self) -> bool:
        """Whether other processes measure than this one."""
        return self.workers > 1 or self.executor is not None

    def checked_build(self) -> Build:
        """What workers can call; said before they are started.

        Raises:
            InputError: They cannot.
        """
        build = self.build
        if isinstance(build, str):
            module, colon, function = build.partition(":")
            if not (module and colon and function):
                raise InputError(f'The argument build has to be "package.module:function", not "{build}".')
            return build
        if not callable(build):
            raise InputError(
                f'The argument build has to be "package.module:function" or a function without arguments, not {build!r:.80}.'
            )
        try:
            pickled(build)
        except InputError as error:
            raise InputError(
                f"The function build cannot be handed to another process: {error.__cause__}. Put it into a module of its own: "
                'build="module:function".'
            ) from error
        return build


def run_options(options: RunOptions | None, **arguments: Any) -> RunOptions:
    """Options that came as one object, as single arguments, or both.

    Args:
        options: The object, if there is one.
        arguments: The single arguments; one that has its default value counts as not given.

    Raises:
        InputError: An argument contradicts the object.
    """
    if options is None:
        return RunOptions(**arguments)
    if not isinstance(options, RunOptions):
        raise InputError(f"The options have to be a dysens.RunOptions, not {options!r:.80}.")
    defaults = {field.name: field.default for field in fields(RunOptions)}
    for name, value in arguments.items():
        there = getattr(options, name)
        if value != defaults[name] and value != there:
            raise InputError(f"{name} is {value!r:.80}, and {there!r:.80} in options: give it in one place.")
    return options


# Random shares of all groups at once, to compare a compiled copy with the live model by.
_CHECK_SEEDS = (1, 2, 3)


def scorer_of(
    model: paddle.nn.Layer,
    roles: Mapping[str, Role],
    groups: Sequence[ChannelGroup],
    eval_func: Callable[[], Any] | Evaluator,
    higher_is_better: bool = True,
    optimizer: paddle.optimizer.Optimizer | None = None,
    options: RunOptions | None = None,
    cores: int | None = None,
) -> Scorer:
    """The scorer behind a function or an `Evaluator`; the model and its optimizer are left as found by every score.

    Args:
        model: The live layer.
        roles: Its layers with weights.
        groups: What may be masked.
        eval_func: A function that scores the live model, or an `Evaluator`.
        higher_is_better: False if the function returns an error; an `Evaluator` says it itself.
        optimizer: Left as found too.
        options: How scoring may use the machine.
        cores: How many cores a compiled copy uses; all if not given.
    """
    options = options or RunOptions()
    if not callable(eval_func) and not isinstance(eval_func, Evaluator):
        raise InputError(f"The eval_func has to be a function or an Evaluator, not {eval_func!r:.80}.")
    checks = [plan_for(roles, random_removal(groups, seed), model) for seed in _CHECK_SEEDS] if groups else []
    consumers = Consumers(model, roles, groups)
    fast = FastForward(model, consumers, checks, options.fast, cores)
    if isinstance(eval_func, Evaluator):
        return EvaluatorScorer(model, eval_func, consumers, fast, options.cache_gib)
    return FunctionScorer(model, eval_func, higher_is_better, optimizer, fast)
