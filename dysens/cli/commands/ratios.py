"""``dysens ratios``: how much of each group goes."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from dysens.cli.command import Command
from dysens.cli.options import add_aim, add_json, add_sensitivities, target_of
from dysens.cli.output import Output
from dysens.cli.parsing import CommandParser


def _add_options(parser: CommandParser) -> None:
    add_sensitivities(parser)
    add_aim(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write to a file: JSON (.json), else YAML"
    )
    add_json(parser)


def _run(options: Namespace, out: Output) -> None:
    from dysens.ratios import ratio_file_text, write_ratio_file
    from dysens.results.sensitivities import Sensitivities

    sens = Sensitivities.load(options.sensitivities)
    ratios = sens.ratios_for(target_of(options))
    if sens.costs is not None:
        flops = 1 - sens.costs.flops(ratios) / sens.costs.whole_flops
        params = 1 - sens.costs.params(ratios) / sens.costs.whole_params
        out.say(f"predicted: {flops:.1%} of the FLOPs and {params:.1%} of the parameters go")
    if options.output is None:
        out.result(ratio_file_text(ratios).rstrip(), ratios)
        return
    write_ratio_file(options.output, ratios)
    out.say(f"ratios of {len(ratios)} of {len(sens)} groups are in {options.output}")


COMMAND = Command(
    "ratios",
    "choose ratios: by a loss, or by FLOPs or parameters to remove",
    "SENS (--loss L | --flops F | --params P) [options]",
    "dysens ratios sens.jsonl --loss 0.05\ndysens ratios sens.jsonl --flops 0.5 -o ratios.yml",
    _add_options,
    _run,
)
