"""How a sweep or a search runs: what changes the time it takes, not what it measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Union

import paddle

from dysens.compiled import DEFAULT_CACHE_GIB
from dysens.errors import InputError
from dysens.evaluators import Evaluator
from dysens.sweep._sweep import Observer

Built = tuple[paddle.nn.Layer, Union[Callable[[], Any], Evaluator]]
Build = Union[str, Callable[[], Built]]


@dataclass(frozen=True)
class RunOptions:
    """How a sweep or a search runs; `DygraphSensitivity.sensitive` and `search` take the same one by one.

    Attributes:
        workers: How many processes share a sweep.
        build: With several workers, what gives each of them its model and evaluator (or eval_func), in that order:
            "package.module:function", or a function that can be pickled.
        fast: "auto" runs a compiled copy of the model where that gives the same outputs, and the live model otherwise; "on"
            raises where it cannot; "off" runs the live model.
        cache_gib: How many GiB of an `Evaluator`'s data, and of outputs of layers, may be kept in memory.
        observer: Called with every `Point` as soon as it is known.

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

    def __post_init__(self) -> None:
        if isinstance(self.workers, bool) or not isinstance(self.workers, int) or self.workers < 1:
            raise InputError(
                f"Workers must be a whole number of processes, at least 1, not {self.workers!r:.80}."
            )
        if self.workers > 1 and self.build is None:
            raise InputError(
                "Workers need models of their own: give build, a function that returns the model and its evaluator."
            )


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
        raise InputError(f"options has to be a dysens.RunOptions, not {options!r:.80}.")
    defaults = {field.name: field.default for field in fields(RunOptions)}
    for name, value in arguments.items():
        there = getattr(options, name)
        if value != defaults[name] and value != there:
            raise InputError(f"{name} is {value!r:.80}, and {there!r:.80} in options: give it in one place.")
    return options
