"""``dysens groups``: what can be pruned, and why the rest cannot."""

from __future__ import annotations

from argparse import Namespace

from dysens.cli.command import Command
from dysens.cli.options import add_choice_of_filters, add_json, add_model, model_name
from dysens.cli.output import Output
from dysens.cli.parsing import CommandParser


def _add_options(parser: CommandParser) -> None:
    add_model(parser)
    add_choice_of_filters(parser)
    parser.add_argument("--explain", metavar="NAME", help="say which layers move with this weight, and why")
    add_json(parser)


def _run(options: Namespace, out: Output) -> None:
    from dysens.cli.analysis import sensitivity_of
    from dysens.cli.subject import subject_of
    from dysens.cli.tables import groups_text

    subject = subject_of(model_name(options))
    ds = sensitivity_of(subject, options, out)
    if options.explain is not None:
        words = ds.explain(options.explain)
        out.result(words, {"name": options.explain, "explanation": words})
        return
    data = {"groups": ds.groups.to_frame().to_dict("records"), "unprunable": dict(ds.unprunable)}
    out.result(groups_text(ds.groups, ds.unprunable, out.width), data)


COMMAND = Command(
    "groups",
    "list what can be pruned, and why the rest cannot",
    "MODEL [options]",
    "dysens groups mobilenet_v1\ndysens groups net:build --input-shape 1,3,32,32 --explain stem.0.weight",
    _add_options,
    _run,
)
