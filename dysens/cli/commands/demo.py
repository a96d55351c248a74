"""``dysens demo``: the whole story on a small network."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from dysens.cli.command import Command
from dysens.cli.output import Output
from dysens.cli.parsing import CommandParser
from dysens.errors import DysensError


def _add_options(parser: CommandParser) -> None:
    parser.add_argument(
        "--output", type=Path, default=Path("output/demo"), metavar="DIR", help="for the files (output/demo)"
    )
    parser.add_argument("--quick", action="store_true", help="train and sweep less, to see that it runs")


def _run(options: Namespace, out: Output) -> None:
    from dysens.demo import main

    with out.printing():
        code = main(["--output", str(options.output), *(["--quick"] if options.quick else [])])
    if code:
        raise DysensError("the demo failed; see above.")


COMMAND = Command(
    "demo",
    "train, sweep, prune and fine-tune a small network on digits",
    "[options]",
    "dysens demo --output output/demo",
    _add_options,
    _run,
)
