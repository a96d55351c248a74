"""``dysens ratios``, ``plot`` and ``report``: from sensitivities to how much of each group goes."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from dysens.cli._models import model_name, subject_of
from dysens.cli._options import (
    Command,
    add_choice_of_filters,
    add_json,
    add_model,
    add_rule,
    add_sensitivities,
    add_target,
    target_of,
)
from dysens.cli._output import Output
from dysens.cli._parsing import CommandParser, number, one_of
from dysens.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dysens.results import Sensitivities

KINDS = ("curves", "heatmap", "flops")
BUDGETS = tuple(step / 20 for step in range(1, 20))


def _add_ratios(parser: CommandParser) -> None:
    add_sensitivities(parser)
    add_model(parser, optional=True)
    add_target(parser)
    parser.option("output", type=Path, metavar="FILE", help="write to a file: JSON (.json), else YAML")
    add_choice_of_filters(parser, default=None)
    add_json(parser)


def _ratios(options: Namespace, out: Output) -> None:
    from dysens.ratios import ratio_file_text, write_ratio_file
    from dysens.results import Sensitivities

    sens, target = Sensitivities.load(options.sensitivities), target_of(options)
    target.check()
    ratios = sens.ratios_for(target) if options.model is None else _counted_ratios(options, sens)
    if sens.costs is not None:
        flops = 1 - sens.costs.flops(ratios) / sens.costs.whole_flops
        params = 1 - sens.costs.params(ratios) / sens.costs.whole_params
        out.say(f"predicted: {flops:.1%} of the FLOPs and {params:.1%} of the parameters go")
    if options.output is None:
        out.result(ratio_file_text(ratios).rstrip(), ratios)
        return
    write_ratio_file(options.output, ratios)
    out.say(f"ratios of {len(ratios)} of {len(sens)} groups are in {options.output}")


def _counted_ratios(options: Namespace, sens: Sensitivities) -> dict[str, float]:
    """With the model at hand, FLOPs and parameters are counted on it."""
    from dysens.pipeline import choose, criterion_of

    criterion = criterion_of(options.criterion, journal=options.sensitivities)
    return choose(sens, target_of(options), subject_of(model_name(options), criterion, options))


def _add_plot(parser: CommandParser) -> None:
    add_sensitivities(parser)
    parser.option("output", type=Path, metavar="FILE", help=".png, .svg or .pdf (default: SENS.KIND.png)")
    parser.option(
        "kind",
        type=one_of(KINDS),
        default="curves",
        metavar="KIND",
        help="curves (default), heatmap, or flops: removed against loss",
    )
    parser.option("loss", type=number, metavar="L", help="mark this loss in the curves")
    add_rule(parser)
    add_json(parser)


def _plot(options: Namespace, out: Output) -> None:
    from dysens.results import Sensitivities

    sens = Sensitivities.load(options.sensitivities)
    figure = _figure(sens, options.kind, options.loss, not options.paddleslim_rule)
    place = options.output or options.sensitivities.with_suffix(f".{options.kind}.png")
    save_figure(figure, place)
    out.result(str(place), {"file": str(place)})


def _figure(sens: Sensitivities, kind: str, loss: float | None, monotone: bool) -> Figure:
    from dysens.report import flops_against_loss, heat_map, predicted_budget_points, sensitivity_curves

    if loss is not None and kind != "curves":
        raise InputError("--loss goes with --kind curves.")
    if kind == "curves":
        return sensitivity_curves(sens, loss, monotone=monotone)
    if kind == "heatmap":
        return heat_map(sens)
    return flops_against_loss(predicted_budget_points(sens, BUDGETS))


def save_figure(figure: Figure, place: Path) -> None:
    """Write a picture; its ending says in which format."""
    known = figure.canvas.get_supported_filetypes()
    if place.suffix[1:] not in known:
        raise InputError(f'"{place}" names no kind of picture; it may end in .{", .".join(sorted(known))}.')
    place.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(place)


def _add_report(parser: CommandParser) -> None:
    add_sensitivities(parser)
    parser.option("output", type=Path, metavar="FILE", help="default: SENS with the ending .html")
    parser.option("title", metavar="TEXT", help="its heading")
    parser.option("language", metavar="LANG", help="en or zh (default: the reader's)")
    add_json(parser)


def _report(options: Namespace, out: Output) -> None:
    from dysens.report import write_report

    place = options.output or options.sensitivities.with_suffix(".html")
    written = write_report(
        options.sensitivities,
        place,
        title=options.title,
        language=options.language,
        progress=not out.quiet,
    )
    out.result(str(written), {"file": str(written)})


RATIOS = Command(
    "ratios",
    "choose ratios: by a loss, or by FLOPs or parameters to remove",
    "SENS [MODEL] (--loss L | --flops F | --params P) [options]",
    "dysens ratios sens.jsonl --loss 0.05\ndysens ratios sens.jsonl --flops 0.5 -o ratios.yml",
    _add_ratios,
    _ratios,
)
PLOT = Command(
    "plot",
    "draw sensitivities: curves, heat map, FLOPs against loss",
    "SENS [options]",
    "dysens plot sens.jsonl --loss 0.05 -o curves.png\ndysens plot sens.jsonl --kind heatmap",
    _add_plot,
    _plot,
)
REPORT = Command(
    "report",
    "write an HTML page: curves, table, and a slider to choose ratios",
    "SENS [options]",
    "dysens report sens.jsonl -o report.html",
    _add_report,
    _report,
)
