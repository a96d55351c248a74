"""``dysens prune``, ``train``, ``eval`` and ``export``: the smaller network. And ``demo``, all of it on digits."""

from __future__ import annotations

import shlex
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dysens.cli._analysis import save_figure
from dysens.cli._files import holds_sensitivities
from dysens.cli._models import model_name, subject_of, task_of, title_of
from dysens.cli._options import (
    Command,
    add_choice_of_filters,
    add_data,
    add_direction,
    add_evaluator,
    add_json,
    add_model,
    add_target,
    target_of,
)
from dysens.cli._terminal import CommandParser, Output
from dysens.errors import DysensError
from dysens.ratios import RatioFile, Target, read_ratio_file

if TYPE_CHECKING:
    from dysens.pipeline import Cut
    from dysens.results import Sensitivities


def _add_prune(parser: CommandParser) -> None:
    add_model(parser)
    add_data(parser)
    parser.add_argument(
        "chosen_by", metavar="FILE", type=Path, help="ratios (.yml, .json), or sensitivities and one of:"
    )
    add_target(parser)
    add_evaluator(parser)
    add_direction(parser)
    parser.option("no_score", action="store_true", help="do not score it before and after")
    parser.option(
        "output",
        type=Path,
        default=Path("pruned"),
        metavar="NAME",
        help="writes NAME.pdparams and NAME.plan.json (pruned)",
    )
    parser.option("plot", type=Path, metavar="FILE", help="draw widths before and after")
    add_choice_of_filters(parser, default=None)
    add_json(parser)


def _prune(options: Namespace, out: Output) -> None:
    source = _chosen_by(options)  # what cannot be read is said before Paddle is loaded

    from dysens.cli._tables import outcome_text
    from dysens.pipeline import card_of_cut, choose, criterion_of, prune, warn_of_other_weights
    from dysens.report import write_card

    if isinstance(source, RatioFile):
        criterion = criterion_of(options.criterion, source)
        subject = subject_of(model_name(options), criterion, options)
        ratios = source.ratios
    else:
        criterion = criterion_of(options.criterion, journal=options.chosen_by)
        subject = subject_of(model_name(options), criterion, options)
        warn_of_other_weights(subject, options.chosen_by)
        ratios = choose(source, target_of(options), subject)
    out.say_replaced(Path(f"{options.output}.plan.json"))
    cut = prune(subject, ratios, options.output, scored=not options.no_score)
    card = write_card(
        options.output.parent, card_of_cut(subject, cut, title_of(options.model), options.typed)
    )
    if options.plot is not None:
        from dysens.report import widths

        save_figure(widths(cut.outcome), options.plot)
    out.result("\n".join([outcome_text(cut.outcome, out.width), *_score_line(cut)]), _data(cut))
    out.say(f"{cut.remarks}\nthe card is {card}")


def _chosen_by(options: Namespace) -> RatioFile | Sensitivities:
    """What the file holds: ratios, or, if there is a target, sensitivities to choose them from."""
    from dysens.results import Sensitivities

    target = target_of(options)
    if target == Target() and not holds_sensitivities(options.chosen_by):
        return read_ratio_file(options.chosen_by)
    target.check()
    return Sensitivities.load(options.chosen_by)


def _score_line(cut: Cut) -> list[str]:
    """What the cut costs, below FLOPs and parameters."""
    if not cut.scores:
        return []
    before, after = cut.scores
    return [f"{before.indicator:<12} {before.score:>16.4f} -> {after.score:>16.4f}"]


def _data(cut: Cut) -> dict[str, Any]:
    outcome = cut.outcome
    before, after = (each.score for each in cut.scores) if cut.scores else (None, None)
    return {
        "metric": cut.scores[0].indicator if cut.scores else None,
        "score_before": before,
        "score_after": after,
        "flops_before": outcome.flops_before,
        "flops_after": outcome.flops_after,
        "params_before": outcome.params_before,
        "params_after": outcome.params_after,
        "difference": cut.difference,
        "groups": [
            {"param": name, "path": path, "before": before, "after": after}
            for name, path, before, after in outcome.widths
        ],
        "weights": f"{cut.save}.pdparams",
        "plan": f"{cut.save}.plan.json",
    }


def _add_train(parser: CommandParser) -> None:
    add_model(parser, config="of PaddleOCR or PaddleDetection")
    parser.option("resume", metavar="FILE", help="continue from this checkpoint, without .pdparams")
    add_evaluator(parser)
    add_json(parser)


def _train(options: Namespace, out: Output) -> None:
    from dysens.pipeline import TRAINED, card_beside, card_with_score, score, train
    from dysens.report import write_card

    name, before = model_name(options), card_beside(options.weights)
    task = task_of(name)
    options.trained_to = task.folder  # where an interrupted training is
    folder = train(task)
    subject = subject_of(name, task=task)
    scored = score(subject, TRAINED)
    on = getattr(subject.evaluator, "name", scored.indicator)
    card = write_card(
        folder, card_with_score(before, task, scored, on, title_of(options.model), options.typed)
    )
    out.result(str(scored), {**asdict(scored), "folder": str(folder)})
    out.say(f"checkpoints with their plans are in {folder}\nthe card is {card}")


def latest_checkpoint(folder: Path | None) -> Path | None:
    """The checkpoint, without its ending, that training in this folder can go on from: weights and optimizer, the newest."""
    if folder is None or not folder.is_dir():
        return None
    states = [file for file in folder.glob("*.pdopt") if file.with_suffix(".pdparams").is_file()]
    newest = max(states, key=lambda file: file.stat().st_mtime, default=None)
    return None if newest is None else newest.with_suffix("")


def _kept_of_training(options: Namespace) -> str | None:
    found = latest_checkpoint(getattr(options, "trained_to", None))
    return None if found is None else f"the last checkpoint is {found}.pdparams"


def _training_goes_on(options: Namespace) -> str | None:
    found = latest_checkpoint(getattr(options, "trained_to", None))
    if found is None:
        return None
    words = ["dysens", "train", options.model, "--weights", str(found), "--resume", str(found)]
    return shlex.join(words + [word for text in options.set for word in ("--set", text)])


def _add_eval(parser: CommandParser) -> None:
    add_model(parser)
    add_data(parser)
    parser.option("exported", type=Path, metavar="DIR", help="score this inference model instead")
    add_evaluator(parser)
    add_json(parser)


def _eval(options: Namespace, out: Output) -> None:
    from dysens.pipeline import score

    if options.exported is None:
        scored = score(subject_of(model_name(options)))
        out.result(str(scored), asdict(scored))
        return
    task = task_of(model_name(options, bare=True))
    text, data = scored_export(task, options.exported)
    out.result(text, data)


def scored_export(task: Any, source: Path) -> tuple[str, dict[str, Any]]:
    """The score of an exported model, in words and as data."""
    found = task.score_exported(source)
    text = f"exported: {task.indicator} {found:.4f} ({getattr(task.evaluator, 'name', task.indicator)})"
    return text, {"state": "exported", "indicator": task.indicator, "score": found, "source": str(source)}


def _add_export(parser: CommandParser) -> None:
    add_model(parser)
    add_data(parser)
    parser.option("output", type=Path, metavar="DIR", help="folder (default: where its framework looks)")
    parser.option("onnx", action="store_true", help="write ONNX beside it, by paddle2onnx")
    add_json(parser)


def _export(options: Namespace, out: Output) -> None:
    from dysens.adapters import write_onnx
    from dysens.pipeline import card_beside, card_with_export
    from dysens.report import write_card

    before = card_beside(options.weights)
    task = task_of(model_name(options))
    folder = options.output or task.export_folder
    out.say_replaced(folder)
    exported = task.export(folder)
    onnx = write_onnx(exported.prefix, task.timing_inputs()) if options.onnx else None
    card = write_card(
        folder, card_with_export(before, task, exported, title_of(options.model), options.typed)
    )
    data = {
        "prefix": str(exported.prefix),
        "bytes": exported.bytes,
        "difference": exported.difference,
        "compared_on": exported.compared_on,
        **({"onnx": str(onnx[0]), "onnx_difference": onnx[1]} if onnx is not None else {}),
    }
    out.result(str(exported), data)
    if onnx is not None:
        compared = (
            "not compared" if onnx[1] is None else f"its outputs on noise differ by {onnx[1]:.1e} at most"
        )
        out.say(f"ONNX: {onnx[0]}; {compared}")
    out.say(f"the card is {card}")


def _add_demo(parser: CommandParser) -> None:
    parser.option(
        "output",
        type=Path,
        default=Path("output/demo"),
        metavar="DIR",
        help="folder for the files (output/demo)",
    )
    parser.option("quick", action="store_true", help="train and sweep less, to see that it runs")


def _demo(options: Namespace, out: Output) -> None:
    from dysens.demos.digits import main

    with out.printing():
        code = main(["--output", str(options.output), *(["--quick"] if options.quick else [])])
    if code:
        raise DysensError("The demo failed; see above.")


PRUNE = Command(
    "prune",
    "cut the model, prove the cut, and save weights and plan",
    "MODEL FILE [options]",
    "dysens prune net:build ratios.yml --input-shape 1,3,32,32 -o out/pruned\n"
    "dysens prune configs/ocr/ch_PP-OCRv3_det.yml sens.jsonl --flops 0.5",
    _add_prune,
    _prune,
    columns={
        "before, after": "channels of the group's layers",
        "FLOPs": "of one forward; a multiply-add is one",
        "parameters": "numbers in the weights",
    },
)
TRAIN = Command(
    "train",
    "fine-tune a pruned checkpoint with its framework's own loop",
    "CONFIG [options]",
    "dysens train configs/ocr/ch_PP-OCRv3_det.yml --weights out/pruned",
    _add_train,
    _train,
    kept=_kept_of_training,
    goes_on=_training_goes_on,
)
EVAL = Command(
    "eval",
    "score a model: a checkpoint, a pruned one, or an exported model",
    "MODEL [options]",
    "dysens eval configs/ocr/ch_PP-OCRv3_det.yml --weights out/pruned\n"
    "dysens eval configs/ocr/ch_PP-OCRv3_det.yml --exported out/inference",
    _add_eval,
    _eval,
)
EXPORT = Command(
    "export",
    "export a model, pruned or not, for Paddle's inference",
    "MODEL [options]",
    "dysens export configs/ocr/ch_PP-OCRv3_det.yml --weights out/pruned \\\n    -o out/inference",
    _add_export,
    _export,
)
DEMO = Command(
    "demo",
    "train, sweep, prune and fine-tune a small network on digits",
    "[options]",
    "dysens demo --output output/demo",
    _add_demo,
    _demo,
)
