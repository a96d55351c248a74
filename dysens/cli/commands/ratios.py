"""``dysens ratios``: how much of each group goes."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from dysens.cli.command import Command
from dysens.cli.options import (
    add_aim,
    add_choice_of_filters,
    add_json,
    add_model,
    add_sensitivities,
    listed,
    model_name,
)
from dysens.cli.output import Output
from dysens.cli.parsing import CommandParser
from dysens.errors import InputError


def _add_options(parser: CommandParser) -> None:
    add_sensitivities(parser)
    add_aim(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write YAML, or JSON (.json), instead of printing"
    )
    add_model(parser, as_option=True)
    add_choice_of_filters(parser)
    add_json(parser)


def _run(options: Namespace, out: Output) -> None:
    from dysens.recipes.ratio_files import ratios_text, write_ratios

    ratios = _chosen(options, out)
    if options.output is None:
        out.result(ratios_text(ratios).rstrip(), ratios)
        return
    write_ratios(options.output, ratios)
    out.say(f"ratios of {len(ratios)} groups are in {options.output}")


def _chosen(options: Namespace, out: Output) -> dict[str, float]:
    from dysens.recipes.aims import Aim, check_aim, ratios_within_loss
    from dysens.results.sensitivities import Sensitivities

    aim = Aim(options.loss, options.flops, options.params, options.align)
    check_aim(aim)
    sens = Sensitivities.load(options.sensitivities)
    if aim.loss is not None:
        return ratios_within_loss(sens, aim.loss)
    if options.model is None:
        raise InputError("FLOPs and parameters are counted on the model: name it with --model.")
    from dysens.cli.analysis import chosen_ratios, sensitivity_of
    from dysens.cli.subject import subject_of

    ds = sensitivity_of(subject_of(model_name(options)), options.criterion, listed(options.skip_vars), out)
    return chosen_ratios(ds, sens, aim)


COMMAND = Command(
    "ratios",
    "choose ratios by a loss, or by FLOPs or parameters to remove",
    "SENS (--loss L | --flops F | --params P) [options]",
    "dysens ratios sens.jsonl --loss 0.05 -o ratios.yml\n"
    "dysens ratios sens.jsonl --flops 0.5 --model net:build --input-shape 1,3,32,32",
    _add_options,
    _run,
)
