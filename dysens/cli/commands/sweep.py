"""``dysens sweep``: what each group loses at each ratio."""

from __future__ import annotations

from argparse import Namespace
from functools import partial

from dysens.cli.command import Command
from dysens.cli.journals import kept
from dysens.cli.options import (
    add_choice_of_filters,
    add_json,
    add_measuring,
    add_model,
    model_name,
)
from dysens.cli.output import Output
from dysens.cli.parsing import CommandParser, count


def _add_options(parser: CommandParser) -> None:
    add_model(parser)
    add_measuring(parser)
    add_choice_of_filters(parser)
    parser.add_argument(
        "--workers", type=count, default=1, metavar="N", help="processes that share the sweep (1)"
    )
    add_json(parser)


def _run(options: Namespace, out: Output) -> None:
    from dysens.cli.analysis import sensitivity_of, targets_of
    from dysens.cli.subject import measurable, model_and_evaluator
    from dysens.cli.tables import summary_of, table_of

    name = model_name(options)
    subject, scoring = measurable(name)
    ds = sensitivity_of(subject, options.criterion, options.skip_vars, out)
    sens = ds.sensitive(
        scoring,
        ratios=options.ratios,
        sen_file=options.sen_file,
        target_vars=targets_of(subject, ds, options.only),
        progress=not out.quiet,
        higher_is_better=not options.lower_is_better,
        force=options.force,
        workers=options.workers,
        build=partial(model_and_evaluator, name),
        fast=options.fast,
    )
    out.result(table_of(sens, out.width), summary_of(sens))
    out.say(
        f"{len(sens.points)} points are in {options.sen_file}; see them again: dysens show {options.sen_file}"
    )


COMMAND = Command(
    "sweep",
    "measure what each group loses at each ratio, into a journal",
    "MODEL [options]",
    "dysens sweep net:build --input-shape 1,3,32,32 -o sens.jsonl\n"
    "dysens sweep mobilenet_v1 --weights v1.pdparams -e net:accuracy\n"
    "dysens sweep configs/ocr/ch_PP-OCRv3_det.yml --workers 2",
    _add_options,
    _run,
    resumable=lambda options: kept(options.sen_file),
)
