"""``dysens groups``, ``sweep`` and ``search``: what can be pruned, and what it is worth."""

from __future__ import annotations

from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path

from dysens.cli._files import kept_in
from dysens.cli._models import model_name, subject_of
from dysens.cli._options import (
    Command,
    add_choice_of_filters,
    add_json,
    add_measuring,
    add_model,
    add_workers,
    measuring_of,
)
from dysens.cli._output import Output
from dysens.cli._parsing import CommandParser, number

JOURNAL = Path("sens.jsonl")


def _add_groups(parser: CommandParser) -> None:
    add_model(parser)
    add_choice_of_filters(parser)
    parser.option("explain", metavar="NAME", help="say which layers move with this weight, and why")
    add_json(parser)


def _groups(options: Namespace, out: Output) -> None:
    from dysens.cli._tables import groups_text

    ds = subject_of(model_name(options), options.criterion, options).ds
    if options.explain is not None:
        words = ds.explain(options.explain)
        out.result(words, {"name": options.explain, "explanation": words})
        return
    data = {"groups": ds.groups.to_frame().to_dict("records"), "unprunable": dict(ds.unprunable)}
    out.result(groups_text(ds.groups, ds.unprunable, out.width), data)


def _add_sweep(parser: CommandParser) -> None:
    add_model(parser)
    add_measuring(parser, JOURNAL)
    add_workers(parser)
    add_choice_of_filters(parser)
    add_json(parser)


def _sweep(options: Namespace, out: Output) -> None:
    from dysens.cli._tables import summary_of, table_of
    from dysens.pipeline import sweep
    from dysens.report import SweepLog, log_sensitivities, open_writer

    with ExitStack() as closing:
        # What is not installed is said before the model is built.
        writer = closing.enter_context(open_writer(options.visualdl)) if options.visualdl else None
        measuring = measuring_of(
            options, options.sen_file, not out.quiet, SweepLog(writer) if writer is not None else None
        )
        sens = sweep(subject_of(model_name(options), options.criterion, options), measuring)
        if writer is not None:
            log_sensitivities(writer, sens)
    out.result(table_of(sens, out.width), summary_of(sens))
    out.say(
        f"{len(sens.points)} points are in {options.sen_file}; see them again: dysens show {options.sen_file}"
    )
    if options.visualdl:
        out.say(f"see them in VisualDL: visualdl --logdir {options.visualdl}")


def _add_search(parser: CommandParser) -> None:
    add_model(parser)
    parser.option(
        "target_loss", type=number, default=0.02, metavar="L", help="relative loss of each group (0.02)"
    )
    add_measuring(parser, JOURNAL)
    parser.option("save_ratios", type=Path, metavar="FILE", help="write the ratios as YAML, or JSON (.json)")
    add_choice_of_filters(parser)
    add_json(parser)


def _search(options: Namespace, out: Output) -> None:
    from dysens.cli._tables import found_text
    from dysens.pipeline import search, search_file
    from dysens.ratios import by_path, write_ratio_file

    measuring = measuring_of(options, options.sen_file, not out.quiet)
    found = search(subject_of(model_name(options), options.criterion, options), measuring)
    data = {
        "target_loss": found.target_loss,
        "baseline": found.baseline,
        "confidence": found.confidence,
        "passes": found.passes,
        "file": str(search_file(measuring)),
        "groups": found.to_frame().to_dict("records"),
    }
    out.result(found_text(found, out.width), data)
    out.say(f"what was found is in {search_file(measuring)}, to choose within it by FLOPs or parameters")
    if options.save_ratios is not None:
        paths = {group.name: group.path for group in found.groups}
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
)
SEARCH = Command(
    "search",
    "find each group's largest ratio within a loss, faster than a sweep",
    "MODEL [options]",
    "dysens search net:build --input-shape 1,3,32,32 --target-loss 0.03 \\\n    --save-ratios ratios.yml",
    _add_search,
    _search,
    kept=lambda options: kept_in(options.sen_file),
)
