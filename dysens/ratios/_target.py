"""How much is to be pruned, and the choice that needs no model: by the loss that every group may cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dysens.errors import InputError
from dysens.results.sensitivities import Sensitivities


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


def check_aim(aim: Aim, searched: bool = False) -> None:
    """Looks for an aim that says nothing, or too much.

    Args:
        aim: What a user wants.
        searched: Whether ratios come from a search for a target loss.

    Raises:
        InputError: It does.
    """
    given = [f"--{name}" for name in ("loss", "flops", "params") if getattr(aim, name) is not None]
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


def ratios_without_model(sens: Sensitivities, aim: Aim) -> dict[str, float]:
    """Ratios by layer path, from sensitivities alone. FLOPs and parameters are predicted from what the journal knows.

    Raises:
        InputError: The aim says nothing, or too much; no group may lose anything; or costs are not known.
        UnreachableError: The sensitivities do not reach that far.
    """
    check_aim(aim)
    if aim.flops is not None:
        ratios = sens.ratios_by_flops(aim.flops, aim.align)
    elif aim.params is not None:
        ratios = sens.ratios_by_params(aim.params, aim.align)
    else:
        # One lucky point far out must not count: the loss has to stay within the limit up to there.
        ratios = sens.ratios_by_loss(aim.loss or 0.0, monotone=True)
    return by_path(ratios, sens.paths)


def by_path(ratios: Mapping[str, float], paths: Mapping[str, str]) -> dict[str, float]:
    """Ratios under layer paths, which are the same in every process, without those of 0.

    Args:
        ratios: By group name.
        paths: Group name to layer path; a group without one keeps its name.

    Raises:
        InputError: Nothing is left.
    """
    chosen = {paths.get(name, name): ratio for name, ratio in ratios.items() if ratio > 0}
    if not chosen:
        raise InputError(
            "no group may lose anything at that aim; allow more loss, or measure smaller ratios."
        )
    return chosen
