"""``dysens convert``: from one file format to another, PaddleSlim's among them."""

from __future__ import annotations

from argparse import Namespace

from dysens.cli.command import Command
from dysens.cli.journals import written
from dysens.cli.options import add_json, add_sensitivities, add_writing
from dysens.cli.output import Output
from dysens.cli.parsing import CommandParser


def _add_options(parser: CommandParser) -> None:
    add_sensitivities(parser)
    add_writing(parser)
    parser.add_argument(
        "--static", action="store_true", help="a pickle of PaddleSlim's static sweep, a plain dict"
    )
    add_json(parser)


def _run(options: Namespace, out: Output) -> None:
    from dysens.results.loading import header_of
    from dysens.results.sensitivities import Sensitivities
    from dysens.results.writing import write_as

    sens = Sensitivities.load(options.sensitivities)
    write_as(options.output, sens, header_of(options.sensitivities), options.overwrite, options.static)
    out.result(*written(options.output, sens))


COMMAND = Command(
    "convert",
    "convert to or from PaddleSlim pickles, JSON, CSV, journals",
    "SENS -o FILE [options]",
    "dysens convert sen.pickle -o sens.jsonl\ndysens convert sens.jsonl -o sen.pickle",
    _add_options,
    _run,
)
