"""The options, each said once: what several commands, and the programs in tools/, have in common."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dysens.cli._terminal import CommandParser, Output, count, names, number, numbers, one_of, shape
from dysens.criteria import CRITERIA
from dysens.errors import InputError
from dysens.flags import flag

if TYPE_CHECKING:
    from dysens.pipeline import Compressing, Measuring
    from dysens.ratios import Target
    from dysens.sweep import Executor

LOSSES = {
    "layer": "the group's first layer, as in the model",
    "0.1, 0.2 ..": "relative loss of score with that share of filters gone",
    "<= L": "with --loss: the largest ratio that loses no more",
}
"""What the columns of a table of losses mean."""

FAST = ("auto", "on", "off", "paddle", "openvino")
LAYERS = ("filters", "all")
CRITERION_NAMES = (*CRITERIA, "variance")


@dataclass(frozen=True)
class Command:
    """One command of ``dysens``.

    Attributes:
        name: What is typed after ``dysens``.
        summary: What it does, in a line.
        arguments: What its usage line shows after the name.
        example: Commands that work, a line each.
        add_options: Tells the parser what it takes.
        run: Does it; a mistake of the user is a `DysensError`.
        kept: From the options, in words what is kept if it is interrupted; the same command then goes on from there.
        goes_on: From the options, the command that goes on instead of the same one; None for the same one, empty if all is done.
        columns: What the columns of its table mean.
    """

    name: str
    summary: str
    arguments: str
    example: str
    add_options: Callable[[CommandParser], None]
    run: Callable[[Namespace, Output], None]
    kept: Callable[[Namespace], str | None] | None = None
    goes_on: Callable[[Namespace], str | None] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """What its parser is made with."""
        indented = "\n".join(f"  {line}" for line in self.example.splitlines())
        legend = "".join(f"\n  {name:<14} {meaning}" for name, meaning in self.columns.items())
        return {
            "prog": f"dysens {self.name}",
            "usage": f"dysens {self.name} {self.arguments}",
            "description": f"{self.summary[0].upper()}{self.summary[1:]}.",
            "epilog": f"example:\n{indented}" + (f"\n\ncolumns:{legend}" if legend else ""),
        }


def add_common(parser: CommandParser) -> None:
    """What every command takes."""
    parser.option("quiet", action="store_true", help="show results, warnings and errors only")
    parser.option("debug", action="store_true", help="show all that is logged, and stack traces")


def add_json(parser: CommandParser) -> None:
    """For commands with a result to print."""
    parser.option("json", action="store_true", help="print the result as JSON")


def add_sensitivities(parser: CommandParser) -> None:
    """The file that a sweep wrote."""
    parser.add_argument(
        "sensitivities", metavar="SENS", type=Path, help="journal, CSV, JSON or PaddleSlim pickle"
    )


def add_model(parser: CommandParser, optional: bool = False, config: str | None = None) -> None:
    """How a model is named, and what it is built with.

    Args:
        parser: The command's.
        optional: Whether it may be left out.
        config: In words, the configs that the command takes, if it takes nothing else.
    """
    nargs: dict[str, Any] = {"nargs": "?"} if optional else {}
    parser.add_argument(
        "model",
        metavar="MODEL" if config is None else "CONFIG",
        help=config or "module:function, OCR/det config, inference folder, paddle.vision name",
        **nargs,
    )
    parser.option("weights", metavar="FILE", help="load this .pdparams into it")
    parser.option(
        "set", action="append", default=[], metavar="KEY=VALUE", help="function argument or config override"
    )
    parser.option(
        "input_shape",
        action="append",
        type=shape,
        metavar="N,N,..",
        help="of its input, such as 1,3,224,224",
    )
    parser.option("submodel", metavar="NAME", help="network of an OCR distillation config")


def add_finding(parser: CommandParser) -> None:
    """For steps that look for groups."""
    parser.option("eval_only", action="store_true", help="do not analyse a config's training forward")
    parser.option(
        "layers",
        type=one_of(LAYERS),
        default=LAYERS[0],
        metavar="WHICH",
        help="filters (of 4-D weights), or all: linear too",
    )


def add_evaluator(parser: CommandParser) -> None:
    """What scores the model."""
    parser.option("evaluator", metavar="EVAL", help="module:function; a config has its own")


def add_data(parser: CommandParser, purpose: str = "what scores an inference model") -> None:
    """Images: labelled ones of PaddleOCR or COCO, or what a function gives."""
    parser.option("data", metavar="DATA", help=f"{purpose}: labels.txt, COCO .json, module:function")


def add_choice_of_filters(parser: CommandParser, default: str | None = "fpgm") -> None:
    """Which filters go, and which never do.

    Args:
        parser: The command's.
        default: The criterion if none is given; None if it is found out from files.
    """
    parser.option(
        "criterion",
        type=one_of(CRITERION_NAMES),
        default=default,
        metavar="NAME",
        help=f"{', '.join(CRITERION_NAMES)} ({default or 'as swept'})",
    )
    parser.list_option(
        "skip_vars", names, default=[], metavar="A,B..", help="do not prune these (patterns allowed)"
    )
    add_finding(parser)


def add_measuring(parser: CommandParser, journal: Path | None) -> None:
    """What a sweep and a search have in common, besides the model and the criterion.

    Args:
        parser: The command's.
        journal: The default; None if it is in the task's folder.
    """
    add_evaluator(parser)
    parser.option(
        "sen_file",
        type=Path,
        default=journal,
        metavar="FILE",
        help=f"journal, new or continued{f' ({journal})' if journal else ''}",
    )
    parser.list_option("ratios", numbers, metavar="R,R..", help="shares of filters to try (0.1,0.2,...,0.9)")
    parser.list_option("only", names, metavar="A,B..", help="measure only these (patterns allowed)")
    parser.option(
        "fast",
        type=one_of(FAST),
        default="auto",
        metavar="HOW",
        help="compiled copy: auto, on, off, paddle, openvino (auto)",
    )
    add_direction(parser)
    parser.option("force", action="store_true", help="continue a journal of other weights")


def add_direction(parser: CommandParser) -> None:
    """What a function returns; an `Evaluator` says it itself."""
    parser.option("lower_is_better", action="store_true", help="the score is an error")


def add_workers(parser: CommandParser) -> None:
    """Who shares the work: processes of this machine, or of a Ray cluster."""
    parser.option("workers", type=count, default=1, metavar="N", help="processes that share the work (1)")
    parser.option("ray", metavar="ADDRESS", help="have them on a Ray cluster: auto, or its address")
    parser.option("cpus_per_worker", type=count, metavar="N", help="with Ray: CPU threads of each (1)")
    parser.option("gpus_per_worker", type=number, metavar="N", help="with Ray: GPUs of each (0)")


def add_open(parser: CommandParser) -> None:
    """For commands that take long."""
    parser.option("open", action="store_true", help="show it in a browser while it runs")


@contextmanager
def shown(options: Namespace, path: Path, out: Output) -> Iterator[None]:
    """With ``--open``, a page of the run on this machine.

    Args:
        options: Those of `add_open`.
        path: The journal, or the folder of a compressed model.
        out: Gets the address.
    """
    if not options.open:
        yield
        return
    from dysens.report import shown_live

    with shown_live(path, say=out.say):
        yield


def executor_of(options: Namespace) -> Executor | None:
    """Where workers run, from the options of `add_workers`; None for processes of this machine."""
    from dysens.sweep import Ray

    address = getattr(options, "ray", None)
    if address is not None:
        return Ray(address, options.cpus_per_worker or 1, options.gpus_per_worker or 0)
    for name in ("cpus_per_worker", "gpus_per_worker"):
        if getattr(options, name, None) is not None:
            raise InputError(f"{flag(name)} goes with {flag('ray')}: processes here share what there is.")
    return None


def add_visualdl(parser: CommandParser) -> None:
    """For a sweep."""
    parser.option("visualdl", metavar="DIR", help="log points and curves for VisualDL there")


def measuring_of(options: Namespace, sen_file: Path, progress: bool, observer: Any = None) -> Measuring:
    """How to measure, from the options of `add_measuring`."""
    from dysens.pipeline import Measuring

    return Measuring(
        sen_file,
        options.ratios,
        options.only,
        getattr(options, "target_loss", None),
        getattr(options, "workers", 1),
        options.fast,
        options.force,
        progress,
        observer,
        executor_of(options),
    )


def add_compressing(parser: CommandParser) -> None:
    """What `compress` takes, besides the model, what scores it and what stays."""
    parser.option("flops", type=number, metavar="F", help="share of the FLOPs to remove: 0.5 or 50%%")
    parser.option("params", type=number, metavar="P", help="or share of the parameters")
    parser.option("latency", type=number, metavar="T", help="or share of the time, measured")
    parser.option("max_loss", type=number, metavar="L", help="relative loss of score allowed at most")
    parser.option("samples", type=count, default=64, metavar="N", help="inputs to calibrate on (64)")
    parser.option("align", type=count, default=8, metavar="N", help="leave a multiple of N channels (8)")
    parser.option(
        "runtime",
        default="paddle",
        metavar="WHAT",
        help="paddle, openvino, onnxruntime, or a command",
    )
    add_data(parser, "what to calibrate on")
    parser.option("sens", type=Path, metavar="SENS", help="a sweep, as one more way to allocate")
    parser.option("train", action="store_true", help="fine-tune with the framework's own loop")
    parser.option("export", action="store_true", help="export the result for inference")
    parser.option("anyway", action="store_true", help="train even if the cut lost over a fifth")
    parser.option("force", action="store_true", help="replace a compressed model that is there")
    add_workers(parser)


def compressing_of(options: Namespace, folder: Path, progress: bool) -> Compressing:
    """How to compress, from the options of `add_compressing`."""
    from dysens.pipeline import Compressing
    from dysens.results import Sensitivities

    return Compressing(
        folder,
        options.flops,
        options.params,
        options.latency,
        options.max_loss,
        options.samples,
        options.align,
        options.runtime,
        sens=Sensitivities.load(options.sens) if options.sens is not None else None,
        data_name=options.data or "",
        train=options.train,
        export=options.export,
        anyway=options.anyway,
        replace=options.force,
        progress=progress,
        workers=options.workers,
        executor=executor_of(options),
    )


def add_target(parser: CommandParser) -> None:
    """How much is to be pruned."""
    parser.option("loss", type=number, metavar="L", help="relative loss of each group")
    parser.option("flops", type=number, metavar="F", help="share of the FLOPs to remove: 0.5 or 50%%")
    parser.option("params", type=number, metavar="P", help="or share of the parameters")
    parser.option("align", type=count, metavar="N", help="leave a multiple of N channels")
    add_rule(parser)


def add_rule(parser: CommandParser) -> None:
    """By which rule a loss chooses."""
    parser.option(
        "paddleslim_rule",
        action="store_true",
        help="with --loss: PaddleSlim's rule, which takes lucky points",
    )


def target_of(options: Namespace) -> Target:
    """How much is to be pruned, from the options of `add_target`."""
    from dysens.ratios import Target

    return Target(
        options.loss, options.flops, options.params, options.align, monotone=not options.paddleslim_rule
    )
