"""What a command of the command line consists of."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass

from dysens.cli.options import add_common
from dysens.cli.output import Output
from dysens.cli.parsing import CommandParser


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        name: What is typed after ``dysens``.
        summary: What it does, in a line.
        arguments: What its usage line shows after the name.
        example: Commands that work, a line each.
        add_options: Tells the parser what it takes.
        run: Does it; a mistake of the user is a `DysensError`.
        resumable: From the options, in words what is kept if it is interrupted; the same command then goes on from there.
    """

    name: str
    summary: str
    arguments: str
    example: str
    add_options: Callable[[CommandParser], None]
    run: Callable[[Namespace, Output], None]
    resumable: Callable[[Namespace], str] | None = None

    def parser(self) -> CommandParser:
        """Reads the words after the name."""
        description = f"{self.summary[0].upper()}{self.summary[1:]}."
        parser = CommandParser(self.name, self.arguments, description, self.example)
        self.add_options(parser)
        add_common(parser)
        return parser
