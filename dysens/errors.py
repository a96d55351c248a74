"""Every error that dysens raises on purpose: a sentence that says what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from textwrap import shorten

# How much of another package's message a sentence takes over.
_LONGEST = 300


class DysensError(Exception):
    """Base of all errors of this package."""


class InputError(DysensError, ValueError):
    """Something handed in cannot be used as it is."""


class ForwardError(DysensError, RuntimeError):
    """The network's forward does not run with the given inputs."""


class ProofError(DysensError, RuntimeError):
    """A cut does not give the outputs that the mask promised."""


class UnreachableError(DysensError, ValueError):
    """No choice of ratios reaches the wanted budget."""


class JournalError(DysensError, RuntimeError):
    """A sensitivity file cannot be read, written or continued."""


class UnsafePickleError(DysensError, ValueError):
    """A pickle asks for something other than plain sensitivities."""


class WorkerError(DysensError, RuntimeError):
    """A process that took part in a sweep failed."""


class MissingExtraError(DysensError, ImportError):
    """An optional package is needed; the message has the install command."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A clause that suggests the known name closest to ``name``, or nothing. Leading dashes do not count.

    Example:
        >>> nearest("conv2d_0.w0", ["conv2d_0.w_0", "linear_0.w_0"])
        '; did you mean "conv2d_0.w_0"?'
    """
    names = {each.lstrip("-"): each for each in known}
    close = get_close_matches(name.lstrip("-"), list(names), n=1, cutoff=0.6)
    return f'; did you mean "{names[close[0]]}"?' if close else ""


def in_a_sentence(error: Exception) -> str:
    """The message of a Paddle error, without stack traces and decoration."""
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [line for line in lines if line and not line.startswith(("[Hint", "-----", "Error Message"))]
    message = telling[-1] if telling else repr(error)
    if len(message) > _LONGEST:  # whole sentences, if there are any
        head, end, _ = message[:_LONGEST].rpartition(". ")
        message = head + end.strip() or shorten(message, _LONGEST, placeholder=" ...")
    return f"{type(error).__name__}: {message}"


def yaml_problem(error: Exception) -> str:
    """What is wrong with a YAML text, and in which line, without the excerpt that the parser prints."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None)
    if mark is None or not problem:
        return " ".join(str(error).split())
    return f"{problem} (line {mark.line + 1}, column {mark.column + 1})"
