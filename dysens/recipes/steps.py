"""Two steps that every recipe has: measure what each group is worth, and choose how much of it goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import paddle

from dysens.cost import cost_of
from dysens.errors import InputError
from dysens.inputs import View
from dysens.results.points import Point
from dysens.results.sensitivities import Sensitivities
from dysens.results.slim_files import continue_slim_file, is_slim_file
from dysens.sensitivity import DygraphSensitivity
from dysens.sweep.evaluators import Evaluator
from dysens.sweep.found import SearchResult
from dysens.sweep.worker import Build

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


@dataclass(frozen=True)
class Aim:
    """How much is to be pruned: exactly one of the first three, or none after a search.

    Attributes:
        loss: The loss that every single group may cost.
        flops: Share of the FLOPs to remove.
        params: Share of the parameters to remove.
        align: Leave a multiple of so many channels, with ``flops`` or ``params``.
    """

    loss: float | None = None
    flops: float | None = None
    params: float | None = None
    align: int | None = None


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
    if options.workers > 1:
        raise InputError(
            "a search (--target_loss) decides from what it has seen what to measure next, so it runs in one process: "
            "leave --workers out, or sweep."
        )
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


def check_aim(aim: Aim, options: Sweeping) -> None:
    """Looks for an aim that says nothing, or too much.

    Raises:
        InputError: It does.
    """
    given = [f"--{name}" for name in ("loss", "flops", "params") if getattr(aim, name) is not None]
    searched = options.target_loss is not None
    if searched and aim.loss is not None:
        raise InputError(
            "--target_loss finds what each group may lose within that loss, so --loss says it twice: leave one out."
        )
    if len(given) > 1 or (not given and not searched):
        raise InputError(
            "say how much to prune by one of --loss (what each group may cost), --flops or --params (share to remove)"
            + (f", not by {' and '.join(given)} at once." if given else ".")
        )
    if aim.align is not None and aim.flops is None and aim.params is None:
        raise InputError("--align goes with --flops or --params, not with a loss.")


def choose(ds: DygraphSensitivity, sens: Sensitivities, aim: Aim, options: Sweeping) -> dict[str, float]:
    """Ratios by layer path.

    After a search, FLOPs or parameters are saved within the ratios that it found, and all of these are taken if no
    such aim is given.

    Args:
        ds: Knows the groups.
        sens: From ``options.result_file``.
        aim: How much is to be pruned.
        options: What was measured.

    Raises:
        InputError: The aim says nothing, or too much; or no group may lose anything.
        UnreachableError: The sensitivities do not reach that far.
    """
    check_aim(aim, options)
    target = aim.flops if aim.flops is not None else aim.params
    if target is not None:
        budget = ds.ratios_by_flops if aim.flops is not None else ds.ratios_by_params
        paths = {group.name: group.path for group in ds.groups}
        ratios = {paths[name]: ratio for name, ratio in budget(sens, target, aim.align).items()}
    else:
        by_name = _searched(sens) if aim.loss is None else sens.ratios_by_loss(aim.loss, monotone=True)
        ratios = {sens.paths.get(name, name): ratio for name, ratio in by_name.items() if ratio > 0}
    if not ratios:
        raise InputError(
            "no group may lose anything at that aim; allow more loss, or measure smaller ratios."
        )
    return ratios


def _searched(sens: Sensitivities) -> dict[str, float]:
    """A search leaves one point per group: its answer."""
    return {name: max(curve) for name, curve in sens.items()}
