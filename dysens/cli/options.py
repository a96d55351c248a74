"""Options that several commands have."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from dysens.cli.naming import ModelName
from dysens.cli.parsing import CommandParser, count, names, number, numbers, one_of, shape

if TYPE_CHECKING:
    from dysens.ratios import Target

FAST = ("auto", "on", "off")
DEFAULT_JOURNAL = Path("sens.jsonl")


def add_common(parser: CommandParser) -> None:
    """What every command takes."""
    parser.add_argument("--quiet", action="store_true", help="show results, warnings and errors only")
    parser.add_argument("--debug", action="store_true", help="show all that is logged, and stack traces")


def add_json(parser: CommandParser) -> None:
    """For commands with a result to print."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def add_sensitivities(parser: CommandParser) -> None:
    """The file that a sweep wrote."""
    parser.add_argument(
        "sensitivities", metavar="SENS", type=Path, help="journal, CSV, JSON or PaddleSlim pickle"
    )


def add_writing(parser: CommandParser) -> None:
    """For commands that write a file of sensitivities."""
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help=".jsonl (journal), .json, .csv, or .pickle (PaddleSlim)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")


def add_model(parser: CommandParser) -> None:
    """How a model is named, and what it is built with."""
    parser.add_argument("model", metavar="MODEL", help="module:function, OCR/det config, paddle.vision name")
    parser.add_argument("--weights", metavar="FILE", help="load this .pdparams into it")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="function argument or config override"
    )
    parser.add_argument(
        "--input-shape",
        action="append",
        type=shape,
        metavar="N,N,..",
        help="of its input, such as 1,3,224,224",
    )
    parser.add_argument("--submodel", metavar="NAME", help="network of an OCR distillation config")
    parser.add_argument("--eval-only", action="store_true", help="leave a config's training forward out")


def add_choice_of_filters(parser: CommandParser, default: str | None = "fpgm") -> None:
    """Which filters go, and which never do.

    Args:
        parser: The command's.
        default: The criterion if none is given; None if the command finds out itself.
    """
    from dysens.criteria import CRITERIA

    parser.add_argument(
        "--criterion",
        type=one_of(list(CRITERIA)),
        default=default,
        metavar="NAME",
        help=f"what goes first: {', '.join(CRITERIA)} ({default or 'as swept'})",
    )
    parser.add_argument(
        "--skip-vars",
        action="extend",
        type=names,
        default=[],
        metavar="A,B..",
        help="these stay whole (patterns allowed)",
    )


def add_measuring(parser: CommandParser) -> None:
    """What a sweep and a search have in common."""
    add_model(parser)
    parser.add_argument("-e", "--evaluator", metavar="EVAL", help="module:function; a config has its own")
    parser.add_argument(
        "-o",
        "--sen-file",
        type=Path,
        default=DEFAULT_JOURNAL,
        metavar="FILE",
        help="journal, new or continued (sens.jsonl)",
    )
    parser.add_argument(
        "--ratios", action="extend", type=numbers, metavar="R,R..", help="shares to remove (0.1,0.2,...,0.9)"
    )
    parser.add_argument(
        "--only",
        action="extend",
        type=names,
        default=[],
        metavar="A,B..",
        help="measure only these (patterns allowed)",
    )
    parser.add_argument(
        "--fast", type=one_of(FAST), default="auto", metavar="HOW", help="compiled copy: auto, on, off (auto)"
    )
    parser.add_argument("--lower-is-better", action="store_true", help="the score is an error")
    parser.add_argument("--force", action="store_true", help="continue a journal of other weights")
    add_choice_of_filters(parser)


def add_aim(parser: CommandParser) -> None:
    """How much is to be pruned."""
    parser.add_argument("--loss", type=number, metavar="L", help="relative loss of each group")
    parser.add_argument("--flops", type=number, metavar="F", help="share of the FLOPs to remove")
    parser.add_argument("--params", type=number, metavar="P", help="share of parameters to remove")
    parser.add_argument("--align", type=count, metavar="N", help="leave a multiple of N channels")
    add_rule(parser)


def add_rule(parser: CommandParser) -> None:
    """By which rule a loss chooses."""
    parser.add_argument(
        "--paddleslim-rule", action="store_true", help="with --loss: count lucky points, as PaddleSlim does"
    )


def target_of(options: Namespace) -> Target:
    """The target that the options name."""
    from dysens.ratios import Target

    return Target(
        options.loss, options.flops, options.params, options.align, monotone=not options.paddleslim_rule
    )


def model_name(options: Namespace) -> ModelName:
    """The model and evaluator that the options name."""
    return ModelName(
        options.model,
        weights=options.weights,
        settings=tuple(options.set),
        shapes=tuple(tuple(sides) for sides in options.input_shape or ()),
        evaluator=getattr(options, "evaluator", None),
        submodel=options.submodel,
        with_training=not options.eval_only,
    )
