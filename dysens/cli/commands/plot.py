"""``dysens plot``: pictures of sensitivities."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from dysens.cli.command import Command
from dysens.cli.options import add_choice_of_filters, add_model, add_sensitivities, listed, model_name
from dysens.cli.output import Output
from dysens.cli.parsing import CommandParser, number, one_of
from dysens.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dysens.results.sensitivities import Sensitivities

KINDS = ("curves", "heatmap", "flops")
BUDGETS = tuple(step / 20 for step in range(1, 19))


def _add_options(parser: CommandParser) -> None:
    add_sensitivities(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="picture: .png, .svg, .pdf (SENS.curves.png)"
    )
    parser.add_argument(
        "--kind",
        type=one_of(KINDS),
        default="curves",
        metavar="KIND",
        help="curves, heatmap, or flops against loss (needs --model)",
    )
    parser.add_argument("--loss", type=number, metavar="L", help="mark this loss in the curves")
    add_model(parser, as_option=True)
    add_choice_of_filters(parser)


def _run(options: Namespace, out: Output) -> None:
    from dysens.results.sensitivities import Sensitivities

    sens = Sensitivities.load(options.sensitivities)
    figure = _figure(sens, options, out)
    place = options.output or options.sensitivities.with_suffix(f".{options.kind}.png")
    place.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(place)
    out.say(f"{place} is written")


def _figure(sens: Sensitivities, options: Namespace, out: Output) -> Figure:
    from dysens.report import plots

    if options.loss is not None and options.kind != "curves":
        raise InputError("--loss goes with --kind curves.")
    if options.kind == "curves":
        return plots.sensitivity_curves(sens, options.loss)
    if options.kind == "heatmap":
        return plots.heat_map(sens)
    if options.model is None:
        raise InputError("FLOPs are counted on the model: name it with --model.")
    from dysens.cli.analysis import sensitivity_of
    from dysens.cli.subject import subject_of
    from dysens.report.plot_data import budget_points

    ds = sensitivity_of(subject_of(model_name(options)), options.criterion, listed(options.skip_vars), out)
    return plots.flops_against_loss(budget_points(ds, sens, BUDGETS))


COMMAND = Command(
    "plot",
    "draw sensitivities: curves, heat map, FLOPs against loss",
    "SENS [options]",
    "dysens plot sens.jsonl --loss 0.05 -o curves.png\ndysens plot sens.jsonl --kind heatmap",
    _add_options,
    _run,
)
