"""The program: finds the command, runs it, and turns what goes wrong into a sentence and an exit code."""

from __future__ import annotations

import logging
import os
import shlex
import sys
import traceback
import warnings
from argparse import Namespace
from collections.abc import Sequence

import dysens
from dysens.cli.command import Command
from dysens.cli.commands import COMMANDS
from dysens.cli.output import Output, results_apart
from dysens.cli.parsing import USAGE_ERROR
from dysens.errors import DysensError, nearest
from dysens.logs import shown_log

FAILED = 1
INTERRUPTED = 130  # what shells give for SIGINT
PIPE_CLOSED = 141  # and for SIGPIPE

PADDLE_MISSING = (
    "this needs Paddle, which is not installed: "
    'pip install "dysens[cpu]" (or "dysens[gpu]", or Paddle\'s own build).'
)


def main(words: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 for a mistake, 2 for words that make no command, 130 for Ctrl-C.

    Args:
        words: What stands after ``dysens``; from the command line if not given.
    """
    words = list(sys.argv[1:] if words is None else words)
    try:
        code = _dispatched(words)
        sys.stdout.flush()
    except BrokenPipeError:
        return _close_silently()
    return code


def _dispatched(words: list[str]) -> int:
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if words[:1] in (["-h"], ["--help"]):
        print(overview())
        return 0
    if words[:1] == ["--version"]:
        print(f"dysens {dysens.__version__}")
        return 0
    if not words:
        print(overview(), file=sys.stderr)
        return USAGE_ERROR
    command = COMMANDS.get(words[0])
    if command is None:
        print(f"error: {_no_command(words[0])}\n`dysens --help` lists the commands.", file=sys.stderr)
        return USAGE_ERROR
    try:
        options = command.parser().parse_all(words[1:])
    except SystemExit as end:  # argparse has shown help, or what is wrong
        return int(end.code or 0)
    return _run(command, options, words)


def overview() -> str:
    """The help of the program as a whole."""
    lines = [f"  {name:<9} {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: dysens COMMAND [options]",
            "",
            "Measure what each group of filters is worth, choose ratios, prune.",
            "",
            *lines,
            "",
            "example:",
            "  dysens sweep net:build --input-shape 1,3,224,224 -o sens.jsonl",
            "  dysens show sens.jsonl",
            "  dysens prune net:build sens.jsonl --flops 0.5 -o out/pruned",
            "",
            "dysens COMMAND --help   its options          dysens --version",
        ]
    )


def _no_command(word: str) -> str:
    if word.startswith("-"):
        return f'"{word}" stands before the command; options come after it: dysens COMMAND {word}'
    return f'there is no command "{word}"{nearest(word, COMMANDS) or "."}'


def _run(command: Command, options: Namespace, words: Sequence[str]) -> int:
    _hush_paddle(options.debug)
    level = logging.WARNING if options.quiet else logging.DEBUG if options.debug else logging.INFO
    try:
        with results_apart() as results, shown_log(level):
            command.run(options, Output(results, getattr(options, "json", False), options.quiet))
    except KeyboardInterrupt:
        print(_interrupted(command, options, words), file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return _close_silently()
    except Exception as error:
        if options.debug:
            traceback.print_exc()
        print(f"error: {_sentence(error, options.debug)}", file=sys.stderr)
        return FAILED
    return 0


def _hush_paddle(debug: bool) -> None:
    """Paddle warns, in Python and in C++, about things that nobody who types a command can do anything about."""
    if not debug:
        os.environ.setdefault("GLOG_minloglevel", "2")
        warnings.filterwarnings("ignore", category=UserWarning, module="paddle")


def _interrupted(command: Command, options: Namespace, words: Sequence[str]) -> str:
    if command.resumable is None:
        return "\nInterrupted."
    return f"\nInterrupted: {command.resumable(options)}. The same command goes on from there:\n  {_typed(words)}"


def _typed(words: Sequence[str]) -> str:
    """The command as it can be typed again."""
    as_module = os.path.basename(sys.argv[0]) == "__main__.py"
    return shlex.join([*(["python", "-m"] if as_module else []), "dysens", *words])


def _sentence(error: Exception, debug: bool) -> str:
    if isinstance(error, DysensError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and error.name == "paddle":
        return PADDLE_MISSING
    place = traceback.extract_tb(error.__traceback__)[-1]
    more = "" if debug else "\nThe same command with --debug shows how it came to that."
    return f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno}){more}"


def _close_silently() -> int:
    """Whoever read the output has seen enough; Python must not complain when it closes the pipe at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return PIPE_CLOSED
