"""Two steps that every recipe has: measure what each group is worth, and choose how much of it goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import paddle

from dysens.cost import cost_of
from dysens.errors import InputError
from dysens.inputs import View
from dysens.ratios import Target, by_path
from dysens.results.points import Point
from dysens.results.sensitivities import Sensitivities
from dysens.results.slim_files import continue_slim_file, is_slim_file
from dysens.sensitivity import DygraphSensitivity
from dysens.sweep.evaluators import Evaluator
from dysens.sweep.found import SearchResult
from dysens.sweep.options import Build
from dysens.sweep.runner import checked_ratios

Say = Callable[[str], None]


@dataclass(frozen=True)
class Sweeping:
    """How sensitivities are measured.

    Attributes:
        sen_file: The journal; one that is there is continued.
        ratios: Shares to try; None for 0.1 to 0.9.
        only: Groups to sweep, by parameter name, layer path or pattern; None for all.
        workers: How many processes share the work.
        fast: "auto", "on" or "off", see `DygraphSensitivity.sensitive`.
        target_loss: If given, each group's largest ratio within this loss is searched, instead of measuring all ratios.
    """

    sen_file: Path
    ratios: tuple[float, ...] | None = None
    only: tuple[str, ...] | None = None
    workers: int = 1
    fast: str = "auto"
    target_loss: float | None = None

    def __post_init__(self) -> None:
        if self.target_loss is not None and self.workers > 1:
            raise InputError(
                "a search (--target_loss) decides from what it has seen what to measure next, so it runs in one process: "
                "leave --workers out, or sweep."
            )

    @property
    def found_file(self) -> Path:
        """What a search finds: a point per group, its largest ratio. Beside the journal, which keeps all that it tried."""
        return self.sen_file.with_name(f"{self.sen_file.stem}.search-{self.target_loss:g}.json")

    @property
    def result_file(self) -> Path:
        """What ratios are chosen from."""
        if self.target_loss is not None:
            return self.found_file
        if is_slim_file(self.sen_file):
            _, beside = continue_slim_file(self.sen_file)
            return beside if beside.is_file() else self.sen_file
        return self.sen_file


def listing(ds: DygraphSensitivity) -> str:
    """What can be pruned, and why the rest cannot."""
    return f"{ds.groups}\n\nnot prunable:\n{ds.unprunable}"


def deployed_groups(ds: DygraphSensitivity, model: paddle.nn.Layer, view: View) -> list[str]:
    """The paths of the groups that cost something when the model is deployed.

    Others belong to branches that run in training only: cutting those makes nothing smaller that is shipped, and a sweep
    would find them worthless.
    """
    running = cost_of(model, view).by_layer
    return [group.path for group in ds.groups if any(layer in running for layer in group.layers)]


def sweep(
    ds: DygraphSensitivity,
    evaluator: Evaluator,
    options: Sweeping,
    targets: list[str],
    build: Build,
    progress: bool = True,
) -> Sensitivities:
    """Measures every group that is wanted, or goes on with a journal that is there.

    Args:
        ds: Knows the groups.
        evaluator: Scores the model.
        options: What to measure.
        targets: The groups to sweep where the options name none.
        build: Gives model and evaluator to further processes.
        progress: Whether to show a bar.
    """
    options.sen_file.parent.mkdir(parents=True, exist_ok=True)
    return ds.sensitive(
        evaluator,
        ratios=options.ratios,
        sen_file=options.sen_file,
        target_vars=options.only if options.only is not None else targets,
        workers=options.workers,
        build=build,
        fast=options.fast,
        progress=progress,
    )


def search(
    ds: DygraphSensitivity,
    evaluator: Evaluator,
    options: Sweeping,
    targets: list[str],
    progress: bool = True,
) -> SearchResult:
    """Searches how far every group may go; the answers also go into ``options.found_file``.

    Args:
        ds: Knows the groups.
        evaluator: Scores the model.
        options: What to search, with a target loss.
        targets: The groups to search where the options name none.
        progress: Whether to show a bar.
    """
    if options.target_loss is None:
        raise InputError("a search needs a target loss.")
    options.sen_file.parent.mkdir(parents=True, exist_ok=True)
    found = ds.search(
        evaluator,
        options.target_loss,
        ratios=options.ratios,
        sen_file=options.sen_file,
        target_vars=options.only if options.only is not None else targets,
        fast=options.fast,
        progress=progress,
    )
    points = [Point(group.name, group.path, group.ratio, None, group.loss) for group in found.groups]
    Sensitivities(points, found.baseline, evaluator.higher_is_better).to_json(options.found_file)
    return found


def check_sweeping(options: Sweeping) -> None:
    """Looks for what no sweep and no search can do.

    Raises:
        InputError: It is asked for.
    """
    checked_ratios(options.ratios)
    if options.target_loss is not None and options.workers > 1:
        raise InputError(
            "a search (--target_loss) decides from what it has seen what to measure next, so it runs in one process: "
            "leave --workers out, or sweep."
        )


def choose(
    ds: DygraphSensitivity, sens: Sensitivities, target: Target, options: Sweeping
) -> dict[str, float]:
    """Ratios by layer path.

    After a search, FLOPs or parameters are saved within the ratios that it found, and all of these are taken if no
    such target is given.

    Args:
        ds: Knows the groups.
        sens: From ``options.result_file``.
        target: How much is to be pruned.
        options: What was measured.

    Raises:
        InputError: The target says nothing, or too much; or no group may lose anything.
        UnreachableError: The sensitivities do not reach that far.
    """
    target.check(options.target_loss is not None)
    share = target.flops if target.flops is not None else target.params
    if share is not None:
        budget = ds.ratios_by_flops if target.flops is not None else ds.ratios_by_params
        ratios, paths = budget(sens, share, target.align), {group.name: group.path for group in ds.groups}
    elif target.loss is not None:
        return sens.ratios_for(target)
    else:
        # A search leaves one point per group: its answer.
        ratios, paths = {name: max(curve) for name, curve in sens.items()}, sens.paths
    return by_path(ratios, paths)
