"""argparse with help that fits a screen, a suggestion where a word is misspelt, and options spelt as the program spells them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar, NoReturn

from dysens.errors import nearest
from dysens.flags import DYSENS, Spelling

WIDTH = 80
USAGE_ERROR = 2


class CommandParser(argparse.ArgumentParser):
    """The options of one command of ``dysens``, or, as a subclass, of one of tools/.

    Attributes:
        spelling: How the program writes the names of options.
        aliases: Other spellings of an option, by its name in Python.
        repeats: Whether the values of a list stand behind each other, and not only with commas.
    """

    spelling: ClassVar[Spelling] = DYSENS
    aliases: ClassVar[Mapping[str, Sequence[str]]] = {
        "sen_file": ["-o"],
        "output": ["-o"],
        "evaluator": ["-e"],
    }
    repeats: ClassVar[bool] = False

    def __init__(self, **settings: Any) -> None:
        settings = {"formatter_class": _OneLineEach, **settings}
        # Without abbreviations: what works today must not become ambiguous with a new option.
        super().__init__(allow_abbrev=False, add_help=False, **settings)
        self.add_argument("-h", "--help", action="help", help="show this")

    def option(self, name: str, **settings: Any) -> None:
        """Add an option.

        Args:
            name: Its name in Python; the program spells it.
            settings: As `argparse.ArgumentParser.add_argument` takes them.
        """
        flags = [*self.aliases.get(name, ()), self.spelling.flag(name)]
        flags.sort(key=lambda flag: flag.startswith("--"))
        self.add_argument(*flags, dest=name, **settings)

    def list_option(self, name: str, read: Callable[[str], list[Any]], **settings: Any) -> None:
        """Add an option with several values, which may also be given several times."""
        nargs = {"nargs": "+"} if self.repeats else {}
        self.option(name, type=read, action=_ExtendAll, **nargs, **settings)

    def reject(self, unknown: Sequence[str]) -> NoReturn:
        """End the program: there is no such option."""
        known = [name for action in self._actions for name in action.option_strings]
        word = unknown[0].partition("=")[0]
        if word.startswith("-"):
            hint = nearest(word, known) or "."
        else:
            hint = "; several values of an option are written with commas: --ratios 0.25,0.5"
        self.error(f'there is no place for "{word}"{hint}')

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The options; ends the program with a sentence if there is one that does not exist."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.reject(unknown)
        return options

    def error(self, message: str) -> NoReturn:
        """End the program: the words make no command."""
        self.exit(USAGE_ERROR, f"error: {message}\n`{self.prog} --help` lists the options.\n")


class _ExtendAll(argparse.Action):
    """Puts the lists that words were read as behind each other."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Called once for every time that the option is given."""
        lists = values if self.nargs == "+" else [values]
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or ()), *chain.from_iterable(lists)])


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
    """Numbers with commas or spaces between them."""
    return [number(part) for part in names(text)]


def names(text: str) -> list[str]:
    """Names with commas or spaces between them."""
    return [part for part in re.split(r"[,\s]+", text) if part]


def shape(text: str) -> list[int]:
    """A shape such as ``1,3,224,224``."""
    try:
        return [int(side) for side in text.replace("x", ",").split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}" is no shape such as 1,3,224,224.') from None
