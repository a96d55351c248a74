"""What a user's callback does with a program and an Executor: watched, answered by a live layer, or run for real."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import paddle

from dysens.errors import InputError
from dysens.programs._layer import ProgramLayer
from dysens.programs._load import in_dynamic_mode
from dysens.programs._static_forward import Array, fetch_key, in_static_mode, is_old

# Arguments of Executor.run that say nothing about what is computed.
_IRRELEVANT = (
    "self",
    "program",
    "feed",
    "fetch_list",
    "feed_var_name",
    "fetch_var_name",
    "use_program_cache",
)


_ROWS = 4  # enough to compare


class NotServedError(Exception):
    """A callback did something with a program that only a real program can answer; in words, what."""


@dataclass(frozen=True)
class Run:
    """One call of ``Executor.run``.

    Attributes:
        arguments: By name, as they were given.
        really: Runs it.
    """

    arguments: Mapping[str, Any]
    really: Callable[[], Any]

    @property
    def program(self) -> Any:
        """What is to be run."""
        return self.arguments.get("program")

    def feeds(self, dtypes: Mapping[str, str]) -> dict[str, Array]:
        """What is fed, as arrays of the types that the program asks for.

        Raises:
            NotServedError: It is fed in another way.
        """
        feed = self.arguments.get("feed")
        if not isinstance(feed, Mapping):
            raise NotServedError("it feeds no dictionary")
        arrays = {}
        for name, value in feed.items():
            if hasattr(value, "lod") and value.lod():
                raise NotServedError(f'it feeds sequences as "{name}"')
            listed = isinstance(value, (list, tuple))
            arrays[name] = array = np.asarray(value, dtypes.get(name) if listed else None)
            if name in dtypes and str(array.dtype) != dtypes[name]:
                raise NotServedError(f'it feeds {array.dtype} as "{name}"')
        return arrays

    def fetches(self) -> list[Any]:
        """What is fetched: names, variables or values.

        Raises:
            NotServedError: It is fetched in another way.
        """
        others = {
            name: value
            for name, value in self.arguments.items()
            if name not in _IRRELEVANT and value is not None and value is not False
        }
        others.pop("return_numpy", None)
        if self.arguments.get("return_numpy") is False:
            raise NotServedError("it wants tensors of the Executor")
        if others:
            raise NotServedError(f"it calls the Executor with {', '.join(others)}")
        fetched = self.arguments.get("fetch_list")
        if fetched is None or isinstance(fetched, str) or not len(fetched):
            raise NotServedError("it fetches nothing by a list")
        return list(fetched)


@contextmanager
def runs_answered(answer: Callable[[Run], Any]) -> Iterator[None]:
    """Let a function answer every call of ``Executor.run``; it may run it for real."""
    kind = paddle.static.Executor
    original = kind.run
    signature = inspect.signature(original)

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return original(*args, **kwargs)  # which says what is wrong
        return answer(Run(bound.arguments, lambda: original(*args, **kwargs)))

    kind.run = run
    try:
        yield
    finally:
        kind.run = original


@dataclass
class Watched:
    """What a callback did with the program: the first call, and all that it fetched.

    Attributes:
        program: The program.
        fetched: All that was fetched, each once.
        feed: What was fed first.
        answer: What came out then, by what was fetched.
        reason: Why a live layer cannot answer; empty if it may.
    """

    program: Any
    fetched: dict[Any, Any] = field(default_factory=dict)
    feed: dict[str, Array] = field(default_factory=dict)
    answer: dict[Any, Any] = field(default_factory=dict)
    reason: str = ""

    def first_rows(self) -> tuple[dict[str, Array], dict[Any, Array]]:
        """Some rows of what was fed and of what came out, where all of that has rows; else all of it."""
        arrays = [*self.feed.values(), *self.answer.values()]
        lengths = {len(array) if array.ndim else 0 for array in arrays}
        if len(lengths) != 1 or min(lengths) <= _ROWS:
            return self.feed, self.answer
        feed = {name: array[:_ROWS] for name, array in self.feed.items()}
        return feed, {key: array[:_ROWS] for key, array in self.answer.items()}

    def __call__(self, run: Run) -> Any:
        """Run it for real, and take note."""
        found = run.really()
        if run.program is not self.program:
            return found
        try:
            feed, fetched = run.feeds({}), run.fetches()
            if not is_old(self.program) and any(isinstance(each, str) for each in fetched):
                raise NotServedError("it fetches by name, which does not say a value of a PIR program")
            keys = [fetch_key(each) for each in fetched]
        except NotServedError as error:
            self.reason = self.reason or str(error)
            return found
        if not self.answer:
            self.feed = {name: np.array(array) for name, array in feed.items()}
            self.answer = dict(zip(keys, map(np.array, found)))
        self.fetched.update(zip(keys, fetched))
        return found


class StandIn:
    """Is given to a callback in place of a program, and notices when it is looked at instead of being run."""

    def __init__(self, program: Any) -> None:
        object.__setattr__(self, "_program", program)
        object.__setattr__(self, "_looks", [])

    def __getattribute__(self, name: str) -> Any:
        if name in ("_program", "_looks"):
            return object.__getattribute__(self, name)
        self._looks.append(name)
        return getattr(self._program, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._looks.append(name)
        raise NotServedError(f"it sets {name} of the program")

    def __str__(self) -> str:
        self._looks.append("str")
        return str(self._program)

    __repr__ = __str__


class LayerAnswers:
    """Answers ``Executor.run(stand_in, feed, fetch_list)`` with the outputs of a live layer.

    Args:
        model: The layer, whose first outputs are what is fetched.
        fetched: The keys of those, in order.
        program: What it stands for.
    """

    def __init__(self, model: ProgramLayer, fetched: Sequence[Any], program: Any) -> None:
        self.stand_in = StandIn(program)
        self._model = model
        self._places = {key: place for place, key in enumerate(fetched)}
        self._dtypes = {feed.name: feed.dtype for feed in model.feeds}
        self._declined = ""

    @property
    def reason(self) -> str:
        """Why a real program is needed; empty if it is not."""
        looks = self.stand_in._looks
        return self._declined or (f"it looks at the program ({looks[0]})" if looks else "")

    def __call__(self, run: Run) -> Any:
        """The outputs that are asked for.

        Raises:
            NotServedError: The layer cannot give them.
        """
        if run.program is not self.stand_in:
            return run.really()
        try:
            feed = run.feeds(self._dtypes)
            places = [self._places.get(fetch_key(each)) for each in run.fetches()]
            missing = [name for name in self._dtypes if name not in feed]
            if None in places or missing:
                raise NotServedError("it fetches or feeds something else than before")
            return self.outputs(feed, [place for place in places if place is not None])
        except NotServedError as error:
            self._declined = str(error)
            raise

    def outputs(self, feed: Mapping[str, Array], places: Sequence[int]) -> list[Array]:
        """Outputs of the layer as it is now, by their places."""
        with in_dynamic_mode(), paddle.no_grad():
            found = self._model(*[paddle.to_tensor(feed[name]) for name in self._dtypes])
            several = found if isinstance(found, (list, tuple)) else [found]
            return [several[place].numpy() for place in places]

    def agree(self, watched: Watched) -> str:
        """Compare with what the program itself gave: in words what differs, empty if nothing does."""
        if not set(self._dtypes) <= set(watched.feed):
            return "not all inputs of the network were fed at first"
        return self._agree(*watched.first_rows()) and self._agree(watched.feed, watched.answer)

    def _agree(self, feed: Mapping[str, Array], answer: Mapping[Any, Array]) -> str:
        places = [self._places[key] for key in answer]
        for mine, real in zip(self.outputs(feed, places), answer.values()):
            if mine.shape != real.shape or mine.dtype != real.dtype:
                return f"an output is {mine.dtype}{list(mine.shape)} and not {real.dtype}{list(real.shape)}"
            if not np.allclose(
                mine, real, 1e-3, 1e-5 * max(float(np.abs(real).max(initial=0)), 1.0), equal_nan=True
            ):
                return "outputs differ"
        return ""


def served_callback(function: Callable[..., Any], model: ProgramLayer) -> Callable[[], Any]:
    """A function in the form of PaddleSlim's ``eval_function`` as one that scores a live layer as it is now.

    It is called with a program, an Executor, the names of the inputs and the list to fetch; the layer answers its runs.

    Args:
        function: The function.
        model: An imported inference model.

    Raises:
        InputError: (when it is called) It does more with the program than running it.
    """
    outputs = list(model.fetch_names)

    def score() -> Any:
        answers = LayerAnswers(model, outputs, None)
        with in_static_mode():
            executor = paddle.static.Executor(paddle.CPUPlace())
            names = [feed.name for feed in model.feeds]
            try:
                with runs_answered(answers):
                    value = function(answers.stand_in, executor, names, list(outputs))
            except (NotServedError, AttributeError) as error:
                if not answers.reason:
                    raise
                raise InputError(_only_runs(function, answers.reason)) from error
        if answers.reason:
            raise InputError(_only_runs(function, answers.reason))
        return value

    return functools.update_wrapper(
        score, function, ("__module__", "__name__", "__qualname__", "__doc__"), ()
    )


def _only_runs(function: Callable[..., Any], reason: str) -> str:
    name = getattr(function, "__name__", "The function")
    return (
        f"{name} has to run the program that it is given and nothing else here: {reason}. dysens.compat.analysis_prune gives "
        "such functions a real program."
    )
