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
from typing import Any

import dysens
from dysens.cli._analysis import GROUPS, PLOT, RATIOS, REPORT, SEARCH, SWEEP, WATCH
from dysens.cli._characters import CHARACTERS
from dysens.cli._compress import COMPRESS
from dysens.cli._files import CONVERT, MERGE, SHOW
from dysens.cli._options import Command, add_common
from dysens.cli._produce import DEMO, EVAL, EXPORT, PRUNE, TRAIN
from dysens.cli._terminal import (
    USAGE_ERROR,
    CommandParser,
    Output,
    interrupts_first,
    loading_said,
    results_apart,
)
from dysens.errors import DysensError, nearest
from dysens.flags import DYSENS, spelled
from dysens.progress import shown_log

# In the order in which they are usually needed.
COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        *(COMPRESS, GROUPS, SWEEP, SEARCH, SHOW, PLOT, REPORT, WATCH, RATIOS, PRUNE),
        *(TRAIN, EVAL, EXPORT, CHARACTERS, MERGE, CONVERT, DEMO),
    )
}

FAILED = 1
INTERRUPTED = 130  # what shells give for SIGINT
PIPE_CLOSED = 141  # and for SIGPIPE

PADDLE_MISSING = (
    "This needs Paddle, which is not installed: "
    'pip install "dysens[cpu]" (or "dysens[gpu]", or Paddle\'s own build).'
)


def main(words: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 for an error, 2 for invalid usage, 130 for Ctrl-C.

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
    if words[0] not in COMMANDS:
        print(f"error: {_no_command(words[0])}\n`dysens --help` lists the commands.", file=sys.stderr)
        return USAGE_ERROR
    try:
        options = parser().parse_args(words)
    except SystemExit as end:  # argparse has shown help, or what is wrong
        return int(end.code or 0)
    return _run(COMMANDS[words[0]], options, words)


def parser() -> CommandParser:
    """Reads what stands after ``dysens``; every command has a parser of its own in it."""
    whole = _Program(prog="dysens", usage="dysens COMMAND [options]")
    commands = whole.add_subparsers(dest="command", metavar="COMMAND", parser_class=CommandParser)
    for command in COMMANDS.values():
        own = commands.add_parser(command.name, **command.settings())
        command.add_options(own)
        add_common(own)
        own.set_defaults(parser=own)
    return whole


class _Program(CommandParser):
    """The parser of the program as a whole."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The options of a command; the command itself refuses what it does not know."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            getattr(options, "parser", self).reject(unknown)
        return options


def overview() -> str:
    """The help of the program as a whole."""
    lines = [f"  {name:<10} {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: dysens COMMAND [options]",
            "",
            "Make a model smaller; measure how sensitive each group of filters is; prune.",
            "",
            *lines,
            "",
            "example:",
            "  dysens compress config.yml --flops 50% --train --export -o out",
            "  dysens sweep net:build --input-shape 1,3,224,224 -o sens.jsonl",
            "  dysens prune net:build sens.jsonl --flops 0.5 -o out/pruned",
            "",
            "dysens COMMAND --help   its options          dysens --version",
        ]
    )


def _no_command(word: str) -> str:
    if word.startswith("-"):
        return f'"{word}" comes before the command; options follow it: dysens COMMAND {word}'
    return f'There is no command "{word}"{nearest(word, COMMANDS) or "."}'


def _run(command: Command, options: Namespace, words: Sequence[str]) -> int:
    hush_paddle(options.debug)
    options.typed = typed_again(words, "dysens")  # goes into cards
    level = logging.WARNING if options.quiet else logging.DEBUG if options.debug else logging.INFO
    try:
        with (
            interrupts_first(),
            loading_said(not options.quiet),
            results_apart(options.debug) as results,
            shown_log(level),
            spelled(DYSENS),
        ):
            command.run(options, Output(results, getattr(options, "json", False), options.quiet))
    except KeyboardInterrupt:
        instead = command.goes_on(options) if command.goes_on else None
        kept = command.kept(options) if command.kept else None
        print(interrupted(options.typed, kept, instead), file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return _close_silently()
    except Exception as error:
        if options.debug:
            traceback.print_exc()
        print(f"error: {_sentence(error, options.debug)}", file=sys.stderr)
        return FAILED
    return 0


def hush_paddle(debug: bool) -> None:
    """Silence Paddle's warnings, in Python and in C++, that a user of a command can do nothing about."""
    if not debug:
        os.environ.setdefault("GLOG_minloglevel", "2")
        warnings.filterwarnings("ignore", category=UserWarning, module="paddle")
        logging.getLogger("matplotlib").setLevel(logging.WARNING)  # it logs every font list that it builds


def interrupted(command: str, kept: str | None, instead: str | None = None) -> str:
    """The message after Ctrl-C.

    Args:
        command: As it can be typed again.
        kept: In words, what is not lost; None if there is nothing to continue from.
        instead: What goes on from there, if not the same command; empty if all is done.
    """
    if kept is None:
        return f"\nInterrupted. To begin again:\n  {command}"
    if instead == "":
        return f"\nInterrupted: {kept}."
    if instead is not None:
        return f"\nInterrupted: {kept}. To continue:\n  {instead}"
    return f"\nInterrupted: {kept}. The same command continues from there:\n  {command}"


def typed_again(words: Sequence[str], program: str) -> str:
    """A command as it can be typed again."""
    as_module = os.path.basename(sys.argv[0]) == "__main__.py"
    return shlex.join([*(["python", "-m"] if as_module else []), program, *words])


def _sentence(error: Exception, debug: bool) -> str:
    if isinstance(error, DysensError):
        text = str(error)
        return text[:1].upper() + text[1:] if text.startswith("the ") else text
    if isinstance(error, ModuleNotFoundError) and error.name == "paddle":
        return PADDLE_MISSING
    place = traceback.extract_tb(error.__traceback__)[-1]
    more = "" if debug else "\nThe same command with --debug shows the stack trace."
    return f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno}){more}"


def _close_silently() -> int:
    """Redirect standard output after its reader closed the pipe, so that Python does not complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return PIPE_CLOSED
