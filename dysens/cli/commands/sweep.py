"""``dysens sweep``: what each group loses at each ratio."""

from __future__ import annotations

from argparse import Namespace
from contextlib import ExitStack
from functools import partial

from dysens.cli.command import Command
from dysens.cli.journals import kept
from dysens.cli.options import add_json, add_measuring
from dysens.cli.output import Output
from dysens.cli.parsing import CommandParser, count


def _add_options(parser: CommandParser) -> None:
    add_measuring(parser)
    parser.add_argument(
        "--workers", type=count, default=1, metavar="N", help="processes that share the sweep (1)"
    )
    parser.add_argument("--visualdl", metavar="DIR", help="log points and curves for VisualDL there")
    add_json(parser)


def _run(options: Namespace, out: Output) -> None:
    from dysens.cli.analysis import measurement
    from dysens.cli.subject import model_and_evaluator
    from dysens.cli.tables import summary_of, table_of
    from dysens.report.visualdl import SweepLog, log_sensitivities, open_writer

    with ExitStack() as closing:
        # What is not installed is said before the model is built.
        writer = closing.enter_context(open_writer(options.visualdl)) if options.visualdl else None
        given = measurement(options, out)
        sens = given.ds.sensitive(
            given.scoring,
            workers=options.workers,
            build=partial(model_and_evaluator, given.name),
            observer=SweepLog(writer) if writer is not None else None,
            **given.arguments,
        )
        if writer is not None:
            log_sensitivities(writer, sens)
    out.result(table_of(sens, out.width), summary_of(sens))
    out.say(
        f"{len(sens.points)} points are in {options.sen_file}; see them again: dysens show {options.sen_file}"
    )
    if options.visualdl:
        out.say(f"see them in VisualDL: visualdl --logdir {options.visualdl}")


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
