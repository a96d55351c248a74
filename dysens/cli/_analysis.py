"""``dysens groups``, ``sweep``, ``search``, ``ratios``, ``plot``, ``report``: what can be pruned, and how much of it should."""

from __future__ import annotations

from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from dysens.cli._files import kept_in, require_written
from dysens.cli._models import model_name, subject_of, without_download
from dysens.cli._options import (
    LOSSES,
    Command,
    add_choice_of_filters,
    add_data,
    add_json,
    add_measuring,
    add_model,
    add_open,
    add_rule,
    add_sensitivities,
    add_target,
    add_visualdl,
    add_workers,
    measuring_of,
    shown,
    target_of,
)
from dysens.cli._terminal import CommandParser, Output, count, number, one_of
from dysens.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dysens.results import Sensitivities


JOURNAL, COMPARISON = Path("sens.jsonl"), Path("comparison.html")


def _add_groups(parser: CommandParser) -> None:
    add_model(parser)
    add_data(parser)
    add_choice_of_filters(parser)
    parser.option("explain", metavar="NAME", help="say which layers move with this weight, and why")
    add_json(parser)


def _groups(options: Namespace, out: Output) -> None:
    from dysens.cli._tables import groups_text

    ds = subject_of(without_download(model_name(options)), options.criterion, options).ds
    if options.explain is not None:
        words = ds.explain(options.explain)
        out.result(words, {"name": options.explain, "explanation": words})
        return
    data = {"groups": ds.groups.to_frame().to_dict("records"), "unprunable": dict(ds.unprunable)}
    out.result(groups_text(ds.groups, ds.unprunable, out.width), data)


def _add_sweep(parser: CommandParser) -> None:
    add_model(parser)
    add_data(parser)
    add_measuring(parser, JOURNAL)
    add_workers(parser)
    add_visualdl(parser)
    add_open(parser)
    parser.option("dry_run", action="store_true", help="say what it would take, measured on one point")
    add_choice_of_filters(parser)
    add_json(parser)


def _sweep(options: Namespace, out: Output) -> None:
    from dysens.cli._tables import summary_of, table_of
    from dysens.pipeline import forecast, sweep
    from dysens.report import SweepLog, log_sensitivities, open_writer

    if options.dry_run:
        measuring = measuring_of(options, options.sen_file, not out.quiet)
        found = forecast(subject_of(model_name(options), options.criterion, options), measuring)
        out.result(str(found), found.to_json())
        return
    with ExitStack() as closing:
        # What is not installed is said before the model is built.
        writer = closing.enter_context(open_writer(options.visualdl)) if options.visualdl else None
        measuring = measuring_of(
            options, options.sen_file, not out.quiet, SweepLog(writer) if writer is not None else None
        )
        subject = subject_of(model_name(options), options.criterion, options)
        closing.enter_context(shown(options, options.sen_file, out))
        sens = sweep(subject, measuring)
        if writer is not None:
            log_sensitivities(writer, sens)
    out.result(table_of(sens, out.width), summary_of(sens))
    require_written(len(sens.points), options.sen_file)
    out.say(
        f"{len(sens.points)} points are in {options.sen_file}; see them again: dysens show {options.sen_file}"
    )
    if options.visualdl:
        out.say(f"see them in VisualDL: visualdl --logdir {options.visualdl}")


def _add_search(parser: CommandParser) -> None:
    add_model(parser)
    add_data(parser)
    parser.option(
        "target_loss", type=number, default=0.02, metavar="L", help="relative loss of each group (0.02)"
    )
    add_measuring(parser, JOURNAL)
    add_workers(parser)
    add_open(parser)
    parser.option("save_ratios", type=Path, metavar="FILE", help="write the ratios as YAML, or JSON (.json)")
    add_choice_of_filters(parser)
    add_json(parser)


def _search(options: Namespace, out: Output) -> None:
    from dysens.cli._tables import found_text
    from dysens.pipeline import search, search_file
    from dysens.ratios import by_path, write_ratio_file

    measuring = measuring_of(options, options.sen_file, not out.quiet)
    subject = subject_of(model_name(options), options.criterion, options)
    with shown(options, options.sen_file, out):
        found = search(subject, measuring)
    data = {
        "target_loss": found.target_loss,
        "baseline": found.baseline,
        "confidence": found.confidence,
        "passes": found.passes,
        "file": str(search_file(measuring)),
        "groups": found.to_frame().to_dict("records"),
    }
    out.result(found_text(found, out.width), data)
    out.say(
        f"the result is in {search_file(measuring)}; `dysens ratios` chooses from it by FLOPs or parameters"
    )
    if options.save_ratios is not None:
        paths = {group.name: group.path for group in found.groups}
        out.say_replaced(options.save_ratios)
        write_ratio_file(options.save_ratios, by_path(found.ratios, paths))
        out.say(
            f"the ratios are in {options.save_ratios}: dysens prune {options.model} {options.save_ratios}"
        )


GROUPS = Command(
    "groups",
    "list what can be pruned, and why the rest cannot",
    "MODEL [options]",
    "dysens groups mobilenet_v1\ndysens groups net:build --input-shape 1,3,32,32 --explain stem.0.weight",
    _add_groups,
    _groups,
    columns={
        "param": "name of the weight whose filters go",
        "channels": "how many there are",
        "units": "how many can go one at a time",
        "layers": "how many layers are cut along",
        "rule": "which of them may go together",
    },
)
SWEEP = Command(
    "sweep",
    "measure what each group loses at each ratio, into a journal",
    "MODEL [options]",
    "dysens sweep net:build --input-shape 1,3,32,32 -o sens.jsonl\n"
    "dysens sweep mobilenet_v1 --weights v1.pdparams -e net:accuracy\n"
    "dysens sweep configs/ocr/ch_PP-OCRv3_det.yml --workers 2",
    _add_sweep,
    _sweep,
    kept=lambda options: kept_in(options.sen_file),
    columns=LOSSES,
)
SEARCH = Command(
    "search",
    "find each group's largest ratio within a loss: faster than sweep",
    "MODEL [options]",
    "dysens search net:build --input-shape 1,3,32,32 --target-loss 0.03 \\\n    --save-ratios ratios.yml",
    _add_search,
    _search,
    kept=lambda options: kept_in(options.sen_file),
    columns={
        "ratio": "the largest share of filters that may go",
        "loss there": "relative loss at that ratio",
        "too much": "the next ratio of the grid, which loses more",
        "data seen": "share of the data that decided it",
    },
)


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
    out.say_replaced(options.output)
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
    out.say_replaced(place)
    save_figure(figure, place)
    out.result(str(place), {"file": str(place)})


def _figure(sens: Sensitivities, kind: str, loss: float | None, monotone: bool) -> Figure:
    from dysens.report import flops_against_loss, heat_map, predicted_budget_points, sensitivity_curves

    if loss is not None and kind != "curves":
        raise InputError("The option --loss goes with --kind curves.")
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
    parser.add_argument(
        "sensitivities",
        metavar="SENS",
        type=Path,
        nargs="+",
        help="journal, CSV, JSON or PaddleSlim pickle; several are compared",
    )
    parser.option("output", type=Path, metavar="FILE", help="default: SENS with the ending .html")
    parser.option("title", metavar="TEXT", help="heading of the page")
    parser.option("language", metavar="LANG", help="en or zh (default: the reader's)")
    add_json(parser)


def _report(options: Namespace, out: Output) -> None:
    from dysens.report import write_comparison, write_report

    if len(options.sensitivities) > 1:
        for name in ("title", "language"):
            if getattr(options, name) is not None:
                raise InputError(f"The option --{name} goes with the report of one file.")
        out.say_replaced(options.output or COMPARISON)
        written = write_comparison(options.sensitivities, options.output or COMPARISON)
        out.result(str(written), {"file": str(written)})
        return
    [source] = options.sensitivities
    place = options.output or source.with_suffix(".html")
    out.say_replaced(place)
    written = write_report(
        source,
        place,
        title=options.title,
        language=options.language,
        progress=not out.quiet,
    )
    out.result(str(written), {"file": str(written)})


def _add_watch(parser: CommandParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", type=Path, help="journal of a sweep or search, or compress's folder"
    )
    parser.option("open", action="store_true", help="open it in a browser")
    parser.option("port", type=count, default=0, metavar="N", help="where to serve (any that is free)")


def _watch(options: Namespace, out: Output) -> None:
    from dysens.report import watch

    watch(options.run, options.port, options.open, out.say)


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
    "SENS [SENS ...] [options]",
    "dysens report sens.jsonl -o report.html\ndysens report fpgm.jsonl l1.jsonl -o comparison.html",
    _add_report,
    _report,
)
WATCH = Command(
    "watch",
    "follow a sweep, search or compress in a browser, on this machine",
    "RUN [options]",
    "dysens watch sens.jsonl --open\ndysens watch out",
    _add_watch,
    _watch,
)
