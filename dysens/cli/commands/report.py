"""``dysens report``: one HTML file to look at and to choose ratios in."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from dysens.cli.command import Command
from dysens.cli.options import add_json, add_sensitivities
from dysens.cli.output import Output
from dysens.cli.parsing import CommandParser


def _add_options(parser: CommandParser) -> None:
    add_sensitivities(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: SENS with the ending .html"
    )
    parser.add_argument("--title", metavar="TEXT", help="its heading")
    parser.add_argument("--language", metavar="LANG", help="en or zh (default: the reader's)")
    add_json(parser)


def _run(options: Namespace, out: Output) -> None:
    from dysens.report.html import write_report

    place = options.output or options.sensitivities.with_suffix(".html")
    written = write_report(
        options.sensitivities,
        place,
        title=options.title,
        language=options.language,
        progress=not out.quiet,
    )
    out.result(str(written), {"file": str(written)})


COMMAND = Command(
    "report",
    "write an HTML page: curves, table, and a slider to choose ratios",
    "SENS [options]",
    "dysens report sens.jsonl -o report.html",
    _add_options,
    _run,
)
