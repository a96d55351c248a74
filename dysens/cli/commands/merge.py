"""``dysens merge``: several files of one network as one."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from dysens.cli.command import Command
from dysens.cli.journals import written
from dysens.cli.options import add_json, add_writing
from dysens.cli.output import Output
from dysens.cli.parsing import CommandParser, one_of

SIDES = ("first", "last")


def _add_options(parser: CommandParser) -> None:
    parser.add_argument("parts", metavar="SENS", nargs="+", type=Path, help="files of one network")
    add_writing(parser)
    parser.add_argument(
        "--prefer", type=one_of(SIDES), metavar="WHICH", help="first or last: who is right where two differ"
    )
    add_json(parser)


def _run(options: Namespace, out: Output) -> None:
    from dysens.results.sensitivities import Sensitivities
    from dysens.results.writing import common_header, write_as

    header = common_header(options.parts, options.prefer)
    sens = Sensitivities.merge(options.parts, options.prefer)
    write_as(options.output, sens, header, options.overwrite)
    out.result(*written(options.output, sens))


COMMAND = Command(
    "merge",
    "merge files of sensitivities of one network",
    "SENS [SENS ...] -o FILE [options]",
    "dysens merge monday.jsonl tuesday.jsonl -o sens.jsonl",
    _add_options,
    _run,
)
