"""The same pipeline under the options that users of PaddleOCR's and PaddleDetection's tools know: tools/ocr_*, tools/det_*."""

from __future__ import annotations

import logging
import shlex
import sys
import traceback
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dysens.cli._compress import kept_of, remarks, run_compress
from dysens.cli._files import kept_in
from dysens.cli._models import DET, OCR, ModelName, config_kind, subject_of, task_of
from dysens.cli._options import (
    add_choice_of_filters,
    add_common,
    add_compressing,
    add_evaluator,
    add_finding,
    add_measuring,
    add_target,
    add_visualdl,
    add_workers,
    compressing_of,
    measuring_of,
    target_of,
)
from dysens.cli._produce import scored_export
from dysens.cli._program import INTERRUPTED, hush_paddle, interrupted
from dysens.cli._terminal import CommandParser, interrupts_first, names, number, one_of, results_apart
from dysens.errors import DysensError, InputError
from dysens.flags import Spelling, flag, spelled
from dysens.progress import shown_log

if TYPE_CHECKING:
    from dysens.pipeline import StepOptions

FRAMEWORKS = {OCR: "PaddleOCR", DET: "PaddleDetection"}
WEIGHTS = {OCR: "-o Global.pretrained_model=FILE", DET: "-o weights=FILE"}
STEPS = ("sweep", "ratios", "prune", "train")


class ToolParser(CommandParser):
    """Options with underscores, and with the short forms of the frameworks' own tools; lists also with spaces."""

    spelling: ClassVar[Spelling] = Spelling(
        "--",
        "_",
        "-o ",
        {"only": "--pruned_params", "target_vars": "--pruned_params", "ds.groups": "--print_params"},
    )
    aliases: ClassVar[Mapping[str, Sequence[str]]] = {
        "config": ["-c"],
        "opt": ["-o"],
        "print_params": ["-P"],
        "sen_file": ["-s", "--sensitivities_file"],
        "ratios": ["-r", "--pruned_ratios"],
        "only": ["-p"],
        "evaluator": ["-e"],
        "quiet": ["-q"],
    }
    repeats: ClassVar[bool] = True


@dataclass(frozen=True)
class Tool:
    """One of tools/.

    Attributes:
        kind: Whose configs it takes: "ocr" or "det".
        file: Of the program.
        description: Its docstring.
        add_options: Tells the parser what it takes, besides config and overrides.
        run: Does it.
    """

    kind: str
    file: str
    description: str | None
    add_options: Callable[[CommandParser], None]
    run: Callable[[Namespace, ModelName], None]

    def parse(self, words: Sequence[str] | None = None) -> Namespace:
        """The options; ends the program where they make no sense."""
        parser = ToolParser(
            prog=Path(self.file).name,
            description=self.description,
            formatter_class=RawDescriptionHelpFormatter,
        )
        parser.option("config", required=True, metavar="FILE", help=f"a {FRAMEWORKS[self.kind]} config")
        parser.option("opt", nargs="+", default=[], metavar="Key.sub=value", help="overrides of the config")
        if self.kind == OCR:
            parser.option(
                "submodel", metavar="NAME", help="network of a distillation config, such as Student"
            )
        self.add_options(parser)
        add_common(parser)
        options: Namespace = parser.parse_args(words)
        return options

    def main(self, words: Sequence[str] | None = None) -> None:
        """Run the tool; a mistake of the user ends it with a sentence, Ctrl-C with how to go on."""
        options = self.parse(words)
        hush_paddle(options.debug)
        options.typed = shlex.join(["python", self.file, *(sys.argv[1:] if words is None else words)])
        level = logging.WARNING if options.quiet else logging.DEBUG if options.debug else logging.INFO
        spelling = replace(
            ToolParser.spelling, names={**ToolParser.spelling.names, "weights": WEIGHTS[self.kind]}
        )
        try:
            with (
                interrupts_first(),
                results_apart(options.debug) as results,
                redirect_stdout(results),
                shown_log(level),
                spelled(spelling),
            ):
                self.run(options, self._name(options))
        except KeyboardInterrupt:
            print(interrupted(options.typed, *_kept(options)), file=sys.stderr)
            raise SystemExit(INTERRUPTED) from None
        except DysensError as error:
            if options.debug:
                traceback.print_exc()
            raise SystemExit(f"error: {error}") from error

    def _name(self, options: Namespace) -> ModelName:
        kind = config_kind(Path(options.config))
        if kind != self.kind:
            raise InputError(
                f'"{options.config}" is a config of {FRAMEWORKS[kind]}, and {Path(self.file).name} takes those of '
                f"{FRAMEWORKS[self.kind]}."
            )
        return ModelName(
            options.config,
            settings=tuple(options.opt),
            evaluator=getattr(options, "evaluator", None),
            submodel=getattr(options, "submodel", None),
            resume=getattr(options, "resume", None),
            bare=getattr(options, "exported", None) is not None,
        )


def _kept(options: Namespace) -> tuple[str | None, str | None]:
    """In words, what an interrupted tool leaves, and what goes on from there if not the same command."""
    journal, folder = getattr(options, "sen_file", None), getattr(options, "compressed_to", None)
    if folder is None:
        return (kept_in(journal) if journal else None), None
    kept = kept_of(folder)
    tool = "ocr_sensitivity.py" if hasattr(options, "submodel") else "det_sensitivity.py"
    words = ["python", f"tools/{tool}", "-c", options.config, *(["-o", *options.opt] if options.opt else [])]
    return kept, shlex.join([*words, "--steps", "train", "--save", str(folder / "pruned")])


def sensitivity_tool(kind: str, file: str, description: str | None) -> Tool:
    """The tool that sweeps, chooses ratios, prunes and trains.

    Args:
        kind: "ocr" or "det".
        file: Of the program.
        description: Its docstring.
    """
    return Tool(kind, file, description, _add_sensitivity, _sensitivity)


def eval_tool(kind: str, file: str, description: str | None) -> Tool:
    """The tool that scores a network, see `sensitivity_tool`."""
    return Tool(kind, file, description, _add_eval, _eval)


def export_tool(kind: str, file: str, description: str | None) -> Tool:
    """The tool that exports a network, see `sensitivity_tool`."""
    return Tool(kind, file, description, _add_export, _export)


def compress_tool(kind: str, file: str, description: str | None) -> Tool:
    """The tool that goes from a config to a smaller model in one go, see `sensitivity_tool`."""
    return Tool(kind, file, description, _add_compress, _compress)


def _add_compress(parser: CommandParser) -> None:
    parser.option(
        "out", type=Path, metavar="DIR", help="folder for the result (compressed beside the checkpoints)"
    )
    add_compressing(parser)
    add_evaluator(parser)
    parser.list_option(
        "skip_vars", names, default=[], metavar="A,B..", help="do not prune these (patterns allowed)"
    )
    add_finding(parser)


def _compress(options: Namespace, name: ModelName) -> None:
    compressing_of(
        options, options.out or Path(), not options.quiet
    ).check_budget()  # before anything is built
    task = task_of(name)
    folder = options.out or task.folder / "compressed"
    options.compressed_to = folder  # where an interrupted one is
    compressing = compressing_of(options, folder, not options.quiet)
    compressed, error = run_compress(name, options, compressing, task)
    print(f"{compressed}\n{remarks(compressed)}")
    if error is not None:
        raise error


def _add_sensitivity(parser: CommandParser) -> None:
    parser.option("print_params", action="store_true", help="list what can be pruned, and stop")
    parser.option(
        "steps",
        nargs="+",
        type=one_of(STEPS),
        default=list(STEPS),
        metavar="STEP",
        help=f"some of {', '.join(STEPS)} (all)",
    )
    add_choice_of_filters(parser, default=None)
    add_measuring(parser, None)
    parser.option(
        "target_loss",
        type=number,
        metavar="L",
        help="search each group's largest ratio within this loss, do not sweep all",
    )
    add_workers(parser)
    add_visualdl(parser)
    add_target(parser)
    parser.option(
        "ratios_file", type=Path, metavar="FILE", help="of any kind (ratios.yml beside the checkpoints)"
    )
    parser.option(
        "save",
        type=Path,
        metavar="NAME",
        help="pruned checkpoint, without .pdparams (pruned beside the others)",
    )
    parser.option(
        "resume",
        metavar="NAME",
        help="continue an interrupted fine-tuning from this checkpoint, without .pdparams",
    )


def _sensitivity(options: Namespace, name: ModelName) -> None:
    from dysens.pipeline import result_file, run_steps
    from dysens.report import SweepLog, log_sensitivities, open_writer
    from dysens.results import Sensitivities

    steps = options.steps
    if options.resume is not None and steps != ["train"]:
        raise InputError(f"{flag('resume')} continues a fine-tuning, so it needs {flag('steps')} train.")
    if not options.print_params:
        _step_options(options, Path()).check(steps)  # before anything is built
    with ExitStack() as closing:
        writer = closing.enter_context(open_writer(options.visualdl)) if options.visualdl else None
        subject = subject_of(name, options.criterion or "fpgm", options)
        if options.print_params:
            print(f"{subject.ds.groups}\n\nnot prunable:\n{subject.ds.unprunable}")
            return
        chosen = _step_options(options, subject.task.folder, SweepLog(writer) if writer else None)
        options.sen_file = chosen.measuring.sen_file  # where an interrupted sweep is
        run_steps(subject, chosen, steps, print)
        if writer is not None and "sweep" in steps:
            log_sensitivities(writer, Sensitivities.load(result_file(chosen.measuring)))


def _step_options(options: Namespace, folder: Path, observer: Any = None) -> StepOptions:
    from dysens.pipeline import RATIOS_FILE, SAVE, SEN_FILE, StepOptions

    return StepOptions(
        measuring_of(options, options.sen_file or folder / SEN_FILE, not options.quiet, observer),
        options.ratios_file or folder / RATIOS_FILE,
        options.save or folder / SAVE,
        target_of(options),
        options.criterion,
    )


def _add_eval(parser: CommandParser) -> None:
    add_evaluator(parser)
    parser.option(
        "exported", type=Path, metavar="DIR", help="score this inference model, not the config's weights"
    )


def _eval(options: Namespace, name: ModelName) -> None:
    from dysens.pipeline import score

    if options.exported is None:
        print(score(subject_of(name)))
    else:
        print(scored_export(task_of(name), options.exported)[0])


def _add_export(parser: CommandParser) -> None:
    parser.option("out", type=Path, metavar="DIR", help="folder (default: where the framework looks)")


def _export(options: Namespace, name: ModelName) -> None:
    task = task_of(name)
    print(task.export(options.out or task.export_folder))
