"""``dysens prune``: cut the model, and save what is left."""

from __future__ import annotations

import logging
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dysens.cli.command import Command
from dysens.cli.options import (
    add_aim,
    add_choice_of_filters,
    add_json,
    add_model,
    model_name,
    target_of,
)
from dysens.cli.output import Output
from dysens.cli.parsing import CommandParser

if TYPE_CHECKING:
    import paddle

    from dysens.pruning.outcome import PruneOutcome
    from dysens.ratios import RatioFile
    from dysens.results.sensitivities import Sensitivities
    from dysens.sensitivity import DygraphSensitivity

log = logging.getLogger("dysens.cli")


def _add_options(parser: CommandParser) -> None:
    add_model(parser)
    parser.add_argument(
        "chosen_by", metavar="FILE", type=Path, help="ratio file, or sensitivities and a target:"
    )
    add_aim(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("pruned"),
        metavar="NAME",
        help="writes NAME.pdparams and NAME.plan.json (pruned)",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw widths before and after")
    add_choice_of_filters(parser, default=None)
    add_json(parser)


def _run(options: Namespace, out: Output) -> None:
    given = _given(options)  # what cannot be read is said before Paddle is loaded
    options.criterion = _criterion(options, given)

    from dysens.cli.analysis import sensitivity_of
    from dysens.cli.subject import subject_of
    from dysens.cli.tables import outcome_text
    from dysens.pruning.checkpoint import save_pruned

    subject = subject_of(model_name(options))
    if not subject.trained:
        log.warning(
            "%s has random weights, and so has what is left of it: give --weights FILE.", options.model
        )
    _check_weights(subject.model, options.chosen_by)
    ds = sensitivity_of(subject, options, out)
    ratios = _ratios(ds, given, options)
    difference = ds.verify(ratios)
    outcome = ds.prune_vars(ratios)
    save_pruned(subject.network, options.output)
    if options.plot is not None:
        from dysens.cli.commands.plot import save_figure
        from dysens.report.plots import widths

        save_figure(widths(outcome), options.plot)
    out.result(outcome_text(outcome, out.width), _data(outcome, difference, options.output))
    out.say(f"masked and cut model agree within {difference:.1e} of the largest output")
    out.say(f"saved as {options.output}.pdparams with {options.output}.plan.json (load_pruned reads both)")


def _ratios(ds: DygraphSensitivity, given: RatioFile | Sensitivities, options: Namespace) -> dict[str, float]:
    from dysens.ratios import RatioFile
    from dysens.recipes.steps import Sweeping, choose

    if isinstance(given, RatioFile):
        return given.ratios
    return choose(ds, given, target_of(options), Sweeping(options.chosen_by))


def _data(outcome: PruneOutcome, difference: float, place: Path) -> dict[str, Any]:
    return {
        "flops_before": outcome.flops_before,
        "flops_after": outcome.flops_after,
        "params_before": outcome.params_before,
        "params_after": outcome.params_after,
        "difference": difference,
        "groups": [
            {"param": name, "path": path, "before": before, "after": after}
            for name, path, before, after in outcome.widths
        ],
        "weights": f"{place}.pdparams",
        "plan": f"{place}.plan.json",
    }


def _criterion(options: Namespace, given: RatioFile | Sensitivities) -> str:
    """What losses were measured with is what has to be cut; of ratio files, only a slim config knows it."""
    from dysens.cli.journals import header_in
    from dysens.criteria import CRITERIA
    from dysens.ratios import RatioFile

    if isinstance(given, RatioFile):
        criterion = str(options.criterion or given.criterion or "fpgm")
        given.check_criterion(criterion)
        return criterion
    header = header_in(options.chosen_by)
    swept = header.criterion if header is not None else None
    chosen = str(options.criterion or (swept if swept in CRITERIA else "fpgm"))
    if swept is not None and chosen != swept:
        log.warning(
            "%s was swept with the criterion %s; what %s cuts may cost more.",
            options.chosen_by,
            swept,
            chosen,
        )
    return chosen


def _check_weights(model: paddle.nn.Layer, journal: Path) -> None:
    """Losses of other weights may still be a guide, but not in silence."""
    from dysens.cli.journals import header_in
    from dysens.fingerprint import fingerprint

    header = header_in(journal)
    if header is not None and header.weights != fingerprint(model):
        log.warning("%s was swept with other weights than these; its losses may not hold.", journal)


def _given(options: Namespace) -> RatioFile | Sensitivities:
    """What the file holds: ratios, or, if there is a target, sensitivities to choose them from."""
    from dysens.cli.journals import holds_sensitivities
    from dysens.ratios import Target, read_ratio_file
    from dysens.results.sensitivities import Sensitivities

    target = target_of(options)
    if target == Target() and not holds_sensitivities(options.chosen_by):
        return read_ratio_file(options.chosen_by)
    target.check()
    return Sensitivities.load(options.chosen_by)


COMMAND = Command(
    "prune",
    "cut the model, prove the cut, and save weights and plan",
    "MODEL FILE [options]",
    "dysens prune net:build ratios.yml --input-shape 1,3,32,32 -o out/pruned\n"
    "dysens prune configs/ocr/ch_PP-OCRv3_det.yml sens.jsonl --flops 0.5",
    _add_options,
    _run,
)
