"""``dysens compress``: from a model to a smaller one, in one command."""

from __future__ import annotations

import shlex
from argparse import Namespace
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dysens.cli._models import ModelName, in_folder, model_name, named_data, subject_of, title_of
from dysens.cli._options import (
    Command,
    add_compressing,
    add_evaluator,
    add_finding,
    add_json,
    add_model,
    add_open,
    compressing_of,
    shown,
)
from dysens.cli._terminal import CommandParser, Output, names
from dysens.flags import flag

if TYPE_CHECKING:
    from dysens.adapters import Task
    from dysens.pipeline import Compressed, Compressing
    from dysens.report import Card

FOLDER = Path("compressed")
# As dysens.pipeline has them, which would load Paddle for a page of help.
PRUNED, TRAINED, EXPORTED = "pruned", "trained", "inference"
COLUMNS = {
    "score": "on the evaluation data (hmean, acc ..), ± its standard error",
    "FLOPs": "of one forward; a multiply-add is one",
    "parameters": "numbers in the weights, also of parts that only training runs",
    "file, KiB": "of the model when it is exported in that state",
    "ms": "of one call of that: median, one thread, timed in turns",
}


def _add_compress(parser: CommandParser) -> None:
    add_model(parser)
    parser.option(
        "output", type=Path, default=FOLDER, metavar="DIR", help=f"folder for the result ({FOLDER})"
    )
    add_compressing(parser)
    add_evaluator(parser)
    parser.list_option(
        "skip_vars", names, default=[], metavar="A,B..", help="do not prune these (patterns allowed)"
    )
    add_finding(parser)
    add_open(parser)
    add_json(parser)


def _compress(options: Namespace, out: Output) -> None:
    compressing = compressing_of(options, options.output, not out.quiet)
    compressing.check()  # before the model is built
    with shown(options, options.output, out):
        compressed, error = run_compress(
            in_folder(model_name(options), options.output / TRAINED), options, compressing
        )
    out.result(str(compressed), compressed_data(compressed))
    out.say(remarks(compressed))
    if error is not None:
        raise error


def run_compress(
    name: ModelName, options: Namespace, compressing: Compressing, task: Task | None = None
) -> tuple[Compressed, Exception | None]:
    """Compress what a user named; the result, and the sentence that says why it was not trained, if it was not.

    Args:
        name: What was typed.
        options: With ``data``, and what `subject_of` takes.
        compressing: The rest.
        task: What the name stands for, if it was built already.
    """
    from dysens.pipeline import RuinedError, card_of_compressed, compress
    from dysens.report import write_card

    named = options.data is not None and name.data is None
    data = named_data(options.data) if named else None
    subject = subject_of(name, options=options, task=task)

    written: list[Card] = []

    def card(compressed: Compressed, running: bool = True) -> None:
        facts = card_of_compressed(
            subject, compressed, title_of(name.text), options.typed, compressing.runtime, running
        )
        write_card(compressing.folder, facts)
        written.append(facts)

    error = None
    try:
        compressed = compress(subject, replace(compressing, data=data), card)
    except RuinedError as ruined:
        error, compressed = ruined, ruined.compressed
    except BaseException as stopped:
        for facts in written[-1:]:
            with suppress(OSError):  # why the run ended is the more important news
                write_card(compressing.folder, _ended(facts, stopped))
        raise
    card(compressed, running=False)
    return compressed, error


def _ended(card: Card, stopped: BaseException) -> Card:
    """The card of a run that ended early: it says so, and no longer that the run goes on."""
    how = "was interrupted" if isinstance(stopped, KeyboardInterrupt) else "ended with an error"
    why = "" if isinstance(stopped, KeyboardInterrupt) else f" {stopped}"
    note = f'The run {how} after the state "{card.states[-1].state}".{why}'
    return replace(card, running=False, notes=(*card.notes, note))


def remarks(compressed: Compressed) -> str:
    """Where the files are, and what was proven, a line each."""
    outcome = compressed.outcome
    lines = [
        f"Removed {outcome.flops_removed:.1%} of the FLOPs and {outcome.params_removed:.1%} of the parameters; the outputs' "
        f"error is {outcome.output_error:.3g} of their variance, on held-out {compressed.data}.",
        outcome.reason,
        f"The masked and the cut network differ by at most {outcome.proof:.1e} of the largest value.",
        f"Weights and plan: {compressed.save}.pdparams, {compressed.save}.plan.json (dysens.load_pruned reads both)",
    ]
    if compressed.scored_on is None:
        lines.append(
            f"Not scored: that takes trained weights ({flag('weights')}) and, unless a config names data and a metric, "
            f"{flag('evaluator')} package.module:function."
        )
    if compressed.trained is not None:
        lines.append(f"Checkpoints with their plans: {compressed.trained}")
    if compressed.exported is not None:
        lines.append(f"Exported model: {compressed.exported.prefix}; {compressed.exported.comparison}")
    lines.append(f"The card: {compressed.save.with_name('card.html')}")
    return "\n".join(lines)


def compressed_data(compressed: Compressed) -> dict[str, Any]:
    """The same as data."""
    outcome = compressed.outcome
    return {
        "states": [asdict(row) for row in compressed.rows],
        "indicator": compressed.indicator,
        "scored_on": compressed.scored_on,
        "calibrated_on": compressed.data,
        "output_error": outcome.output_error,
        "allocation": outcome.allocation,
        "reason": outcome.reason,
        "difference": outcome.proof,
        "flops_before": outcome.flops_before,
        "flops_after": outcome.flops_after,
        "params_before": outcome.params_before,
        "params_after": outcome.params_after,
        "groups": [
            {"param": name, "path": path, "before": before, "after": after}
            for name, path, before, after in outcome.widths
        ],
        "notes": list(outcome.notes),
        "weights": f"{compressed.save}.pdparams",
        "plan": f"{compressed.save}.plan.json",
        "trained": None if compressed.trained is None else str(compressed.trained),
        "card": str(compressed.save.with_name("card.html")),
        "exported": None if compressed.exported is None else str(compressed.exported.prefix),
    }


def kept_of(folder: Path) -> str | None:
    """In words, what an interrupted compression leaves; None for nothing."""
    pruned = folder / PRUNED
    if not Path(f"{pruned}.plan.json").is_file():
        return None
    return f"the compressed network is safe in {pruned}.pdparams, with its plan"


def _kept(options: Namespace) -> str | None:
    kept = kept_of(options.output)
    if kept is None or options.train or options.export:
        return kept
    return f"{kept}; only its times were not measured"


def _goes_on(options: Namespace) -> str | None:
    """Training and exporting go on from the saved cut; where neither was wanted, nothing is left to do."""
    if kept_of(options.output) is None:
        return None
    if not options.train and not options.export:
        return ""
    words = ["dysens", "train" if options.train else "export", options.model]
    words += ["--weights", f"{options.output / PRUNED}.pdparams"]
    words += [word for text in options.set for word in ("--set", text)]
    for shape in options.input_shape or ():
        words += ["--input-shape", ",".join(map(str, shape))]
    if options.submodel is not None:
        words += ["--submodel", options.submodel]
    if not options.train:
        words += ["-o", str(options.output / EXPORTED)]
    return shlex.join(words)


COMPRESS = Command(
    "compress",
    "make a model smaller in one command, without labels",
    "MODEL (--flops F | --params P | --latency T) [options]",
    "dysens compress configs/ocr/ch_PP-OCRv3_det.yml --flops 50% \\\n    --train --export -o out\n"
    "dysens compress net:build --input-shape 1,3,32,32 --latency 0.4\n"
    "dysens compress resnet18 --weights r18.pdparams --data net:images \\\n    --flops 0.5 -o out",
    _add_compress,
    _compress,
    kept=_kept,
    goes_on=_goes_on,
    columns=COLUMNS,
)
