"""Where measuring runs: what every executor offers, and the one that stays in this process.

An executor starts workers, passes calls on to them, and tells when one is lost. It knows nothing of sweeps: what lives in a
worker is an object that a factory makes there, and a call is the name of a method and its arguments.
"""

from __future__ import annotations

import pickle
import platform
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from dysens.errors import DysensError, InputError, WorkerError

Factory = Callable[[], Any]
"""Makes, in a worker, the object whose methods are called."""


class WorkerLostError(WorkerError):
    """The process that should have answered is gone; what it was at can be given to another."""


class WorkerFailedError(WorkerError):
    """What a worker was asked for raised an exception there.

    Args:
        said: The exception in words.
        trace: Where it came from, line by line.
        host: On which machine.
    """

    def __init__(self, said: str, trace: str = "", host: str = "") -> None:
        super().__init__(said)
        self.trace = trace
        self.host = host


class Worker(ABC):
    """A process with an object in it, seen from the driver.

    Attributes:
        slot: Which of the workers it is, counted from 1; one that takes the place of another has the same slot.
    """

    slot: int

    @abstractmethod
    def call(self, method: str, *arguments: Any) -> Future[Any]:
        """Ask for something.

        Args:
            method: A method of the object.
            arguments: What it is called with.

        Returns:
            The answer to come. It raises `WorkerLostError` if the process is gone, and `WorkerFailedError` if the method, or
            making the object, raised something. In this process it raises that itself.
        """

    @abstractmethod
    def end(self) -> None:
        """End the process, whatever it is at. Ending it twice does no harm."""

    def last_words(self) -> str:
        """The end of what it printed, as far as that can still be read."""
        return ""


StartWorker = Callable[[int], Worker]


class Executor(ABC):
    """Starts workers: `Here`, `Processes`, `Ray`, or one of your own."""

    @abstractmethod
    def opened(self, factory: Factory, workers: int) -> AbstractContextManager[StartWorker]:
        """Get ready for one job.

        Args:
            factory: Makes the object that each worker holds.
            workers: How many there will be at a time, to share out what the machine has.

        Returns:
            To be used with ``with``: a function that starts a worker for a slot. No process is left behind at its end.
        """

    def why_waiting(self) -> str:
        """Why no worker has started yet, if that can be known: a sentence, or nothing."""
        return ""


class Here(Executor):
    """Runs everything in this process, one call after the other."""

    @contextmanager
    def opened(self, factory: Factory, workers: int = 1) -> Iterator[StartWorker]:
        """Make the object at once; there is only one, whatever the number of workers."""
        made = factory()
        yield lambda slot: _InThisProcess(slot, made)


class _InThisProcess(Worker):
    def __init__(self, slot: int, made: Any) -> None:
        self.slot = slot
        self._made = made

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        try:
            answer.set_result(getattr(self._made, method)(*arguments))
        except Exception as error:  # Ctrl-C goes its own way
            answer.set_exception(error)
        return answer

    def end(self) -> None:
        """Nothing was started."""


def pickled(factory: Factory) -> bytes:
    """What makes a worker's object, as bytes. Functions of the script that runs, and lambdas, go along as code.

    Raises:
        InputError: It holds something that no other process can have.
    """
    import cloudpickle  # type: ignore[import-untyped]

    try:
        return bytes(cloudpickle.dumps(factory))
    except Exception as error:  # whatever it holds may refuse in its own way
        raise InputError(f"It cannot be handed to another process: {in_words(error)}.") from error


def made_from(told: bytes) -> Any:
    """The object that a worker holds, from the bytes of its factory.

    Raises:
        InputError: The factory needs a module that is not there.
    """
    try:
        factory = pickle.loads(told)
    except ImportError as error:
        raise InputError(
            f"What is to be built cannot be read on {platform.node()}: {error}. Its code has to be there too."
        ) from error
    return factory()


def in_words(error: BaseException) -> str:
    """An exception as a worker tells it."""
    return str(error) if isinstance(error, DysensError) else f"{type(error).__name__}: {error}"


Answer = tuple[bool, Any]
"""Whether a call raised something, and the answer or what `WorkerFailedError` is made from: exceptions may not travel."""


def answer_of(call: Callable[[], Any]) -> Answer:
    """Make a call, in a worker."""
    try:
        return False, call()
    except Exception as error:
        traceback.print_exc()
        return True, (in_words(error), traceback.format_exc(), platform.node())


def settle(future: Future[Any], answer: Answer) -> None:
    """Pass an answer on, in the driver."""
    raised, value = answer
    if raised:
        future.set_exception(WorkerFailedError(*value))
    else:
        future.set_result(value)
