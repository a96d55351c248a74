"""``dysens search``: each group's largest ratio within a loss."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from dysens.cli.command import Command
from dysens.cli.journals import kept
from dysens.cli.options import add_json, add_measuring
from dysens.cli.output import Output
from dysens.cli.parsing import CommandParser, number


def _add_options(parser: CommandParser) -> None:
    add_measuring(parser)
    parser.add_argument(
        "--target-loss", type=number, default=0.02, metavar="L", help="relative loss of each group (0.02)"
    )
    parser.add_argument(
        "--save-ratios", type=Path, metavar="FILE", help="write the ratios as YAML, or JSON (.json)"
    )
    add_json(parser)


def _run(options: Namespace, out: Output) -> None:
    from dysens.cli.analysis import measurement
    from dysens.cli.tables import found_text
    from dysens.ratios import by_path, write_ratio_file

    given = measurement(options, out)
    found = given.ds.search(given.scoring, options.target_loss, **given.arguments)
    data = {
        "target_loss": found.target_loss,
        "baseline": found.baseline,
        "confidence": found.confidence,
        "passes": found.passes,
        "groups": found.to_frame().to_dict("records"),
    }
    out.result(found_text(found, out.width), data)
    if options.save_ratios is not None:
        write_ratio_file(
            options.save_ratios, by_path(found.ratios, {group.name: group.path for group in found.groups})
        )
        out.say(
            f"the ratios are in {options.save_ratios}: dysens prune {options.model} {options.save_ratios}"
        )


COMMAND = Command(
    "search",
    "find each group's largest ratio within a loss, faster than a sweep",
    "MODEL [options]",
    "dysens search net:build --input-shape 1,3,32,32 --target-loss 0.03 \\\n    --save-ratios ratios.yml",
    _add_options,
    _run,
    resumable=lambda options: kept(options.sen_file),
)
