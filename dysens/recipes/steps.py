"""The steps that every recipe has: measure what each group is worth, and choose how much of it goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import paddle

from dysens.cost import cost_of
from dysens.errors import InputError
from dysens.inputs import View
from dysens.results.sensitivities import Sensitivities
from dysens.sensitivity import DygraphSensitivity
from dysens.sweep.evaluators import Evaluator
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
    """

    sen_file: Path
    ratios: tuple[float, ...] | None = None
    only: tuple[str, ...] | None = None
    workers: int = 1
    fast: str = "auto"


@dataclass(frozen=True)
class Aim:
    """How much is to be pruned: exactly one of the first three.

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


def choose(ds: DygraphSensitivity, sens: Sensitivities, aim: Aim) -> dict[str, float]:
    """Ratios by layer path.

    Raises:
        InputError: The aim says nothing, or too much; or no group may lose anything.
        UnreachableError: The sensitivities do not reach that far.
    """
    given = [name for name in ("loss", "flops", "params") if getattr(aim, name) is not None]
    if len(given) != 1:
        raise InputError(
            "say how much to prune by one of --loss (what each group may cost), --flops or --params (share to remove)"
            + (f", not by {' and '.join(given)} at once." if given else ".")
        )
    if aim.loss is not None:
        if aim.align is not None:
            raise InputError("--align goes with --flops or --params, not with --loss.")
        paths = sens.paths
        by_name = sens.ratios_by_loss(aim.loss, monotone=True)
        ratios = {paths.get(name, name): ratio for name, ratio in by_name.items() if ratio > 0}
    else:
        budget = ds.ratios_by_flops if aim.flops is not None else ds.ratios_by_params
        target = aim.flops if aim.flops is not None else aim.params
        by_name = budget(sens, target or 0.0, aim.align)
        names = {group.name: group.path for group in ds.groups}
        ratios = {names[name]: ratio for name, ratio in by_name.items()}
    if not ratios:
        raise InputError(
            "no group may lose anything at that aim; allow more loss, or measure smaller ratios."
        )
    return ratios
