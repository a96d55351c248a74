"""argparse with help that fits a screen, and with a suggestion where a word is misspelt."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import NoReturn

from dysens.errors import nearest

WIDTH = 80
USAGE_ERROR = 2


class CommandParser(argparse.ArgumentParser):
    """The options of one command.

    Args:
        command: Its name, such as "sweep".
        arguments: What the usage line shows after it.
        description: What it does.
        example: Commands that work, a line each.
    """

    def __init__(self, command: str, arguments: str, description: str, example: str) -> None:
        indented = "\n".join(f"  {line}" for line in example.splitlines())
        super().__init__(
            prog=f"dysens {command}",
            usage=f"dysens {command} {arguments}",
            description=description,
            epilog=f"example:\n{indented}",
            formatter_class=_OneLineEach,
            allow_abbrev=False,  # what works today must not become ambiguous with a new option
            add_help=False,
        )
        self.add_argument("-h", "--help", action="help", help="show this")

    def parse_all(self, words: Sequence[str]) -> argparse.Namespace:
        """The options; ends the program with a sentence if there is one that does not exist."""
        options, unknown = self.parse_known_args(words)
        if unknown:
            known = [name for action in self._actions for name in action.option_strings]
            word = unknown[0].partition("=")[0]
            if word.startswith("-"):
                hint = nearest(word, known) or "."
            else:
                hint = "; several values of an option are written with commas: --ratios 0.25,0.5"
            self.error(f'there is no place for "{word}"{hint}')
        return options

    def error(self, message: str) -> NoReturn:
        """End the program: the words make no command."""
        self.exit(USAGE_ERROR, f"error: {message}\n`{self.prog} --help` lists the options.\n")


class _OneLineEach(argparse.RawDescriptionHelpFormatter):
    """An option with its value on the line of its help, and the same on every terminal, so that 80 columns are enough."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=WIDTH)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {action.metavar}"


def one_of(names: Sequence[str]) -> Callable[[str], str]:
    """An argument that is one of these names; ``choices`` of argparse would not suggest one."""

    def read(text: str) -> str:
        if text not in names:
            hint = nearest(text, names) or f"; there are {', '.join(names)}."
            raise argparse.ArgumentTypeError(f'"{text}" is not known{hint}')
        return text

    return read


def number(text: str) -> float:
    """A number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}" is not a number.') from None


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f'"{text}" is not a whole number of at least 1.')
    return int(text)


def numbers(text: str) -> list[float]:
    """Numbers with commas between them."""
    return [number(part) for part in _parts(text)]


def names(text: str) -> list[str]:
    """Names with commas between them."""
    return _parts(text)


def shape(text: str) -> list[int]:
    """A shape such as ``1,3,224,224``."""
    try:
        return [int(side) for side in text.replace("x", ",").split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}" is no shape such as 1,3,224,224.') from None


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
