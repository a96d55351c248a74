"""``dysens plot``: pictures of sensitivities."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from dysens.cli.command import Command
from dysens.cli.options import add_json, add_rule, add_sensitivities
from dysens.cli.output import Output
from dysens.cli.parsing import CommandParser, number, one_of
from dysens.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dysens.results.sensitivities import Sensitivities

KINDS = ("curves", "heatmap", "flops")
BUDGETS = tuple(step / 20 for step in range(1, 20))


def _add_options(parser: CommandParser) -> None:
    add_sensitivities(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help=".png, .svg or .pdf (default: SENS.KIND.png)"
    )
    parser.add_argument(
        "--kind",
        type=one_of(KINDS),
        default="curves",
        metavar="KIND",
        help="curves (default), heatmap, or flops: removed against loss",
    )
    parser.add_argument("--loss", type=number, metavar="L", help="mark this loss in the curves")
    add_rule(parser)
    add_json(parser)


def _run(options: Namespace, out: Output) -> None:
    from dysens.results.sensitivities import Sensitivities

    sens = Sensitivities.load(options.sensitivities)
    figure = _figure(sens, options.kind, options.loss, not options.paddleslim_rule)
    place = options.output or options.sensitivities.with_suffix(f".{options.kind}.png")
    save_figure(figure, place)
    out.result(str(place), {"file": str(place)})


def save_figure(figure: Figure, place: Path) -> None:
    """Write a picture; its ending says in which format."""
    known = figure.canvas.get_supported_filetypes()
    if place.suffix[1:] not in known:
        raise InputError(f'"{place}" names no kind of picture; it may end in .{", .".join(sorted(known))}.')
    place.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(place)


def _figure(sens: Sensitivities, kind: str, loss: float | None, monotone: bool) -> Figure:
    from dysens.report import plots
    from dysens.report.plot_data import predicted_budget_points

    if loss is not None and kind != "curves":
        raise InputError("--loss goes with --kind curves.")
    if kind == "curves":
        return plots.sensitivity_curves(sens, loss, monotone=monotone)
    if kind == "heatmap":
        return plots.heat_map(sens)
    return plots.flops_against_loss(predicted_budget_points(sens, BUDGETS))


COMMAND = Command(
    "plot",
    "draw sensitivities: curves, heat map, FLOPs against loss",
    "SENS [options]",
    "dysens plot sens.jsonl --loss 0.05 -o curves.png\ndysens plot sens.jsonl --kind heatmap",
    _add_options,
    _run,
)
