"""``dysens show``: a file of sensitivities as a table."""

from __future__ import annotations

from argparse import Namespace

from dysens.cli.command import Command
from dysens.cli.options import add_json, add_rule, add_sensitivities
from dysens.cli.output import Output
from dysens.cli.parsing import CommandParser, number, one_of

ORDERS = ("model", "loss")


def _add_options(parser: CommandParser) -> None:
    add_sensitivities(parser)
    parser.add_argument(
        "--loss", type=number, metavar="L", help="add the ratio that this loss allows each group"
    )
    add_rule(parser)
    parser.add_argument(
        "--sort",
        type=one_of(ORDERS),
        default="model",
        metavar="BY",
        help="model: as in the model; loss: most sensitive first",
    )
    add_json(parser)


def _run(options: Namespace, out: Output) -> None:
    from dysens.cli.journals import described
    from dysens.cli.tables import summary_of, table_of
    from dysens.results.sensitivities import Sensitivities

    sens = Sensitivities.load(options.sensitivities)
    monotone = not options.paddleslim_rule
    text = table_of(sens, out.width, options.loss, options.sort == "loss", monotone)
    summary = summary_of(sens, options.loss, monotone)
    out.result(f"{described(options.sensitivities, sens)}\n\n{text}", summary)


COMMAND = Command(
    "show",
    "show a file of sensitivities as a table",
    "SENS [options]",
    "dysens show sens.jsonl --loss 0.05\ndysens show sens.jsonl --sort loss | head",
    _add_options,
    _run,
)
