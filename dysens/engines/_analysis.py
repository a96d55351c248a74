"""What every engine gives: groups that are proven on the real weights, reasons for the rest, a way to choose what goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import paddle

from dysens.criteria import Criterion, LowestScores
from dysens.errors import ForwardError
from dysens.groups import ChannelGroup, Choice, Role
from dysens.model import View
from dysens.pruning import TOLERANCE, CannotCutError, difference, plan_for, proof_removals


@dataclass(frozen=True)
class Analysis:
    """What an engine knows about a model: groups that can be cut, reasons for the rest, a way to choose what goes.

    Attributes:
        groups: Groups that can be cut, in parameter order.
        reasons: Why a 4-D weight is in none of them, by its path.
        roles: The layers with weights, by path.
        choice: Makes, from the model's tensors by path and a criterion, the choice of what a ratio removes.
    """

    groups: list[ChannelGroup]
    reasons: dict[str, str]
    roles: Mapping[str, Role]
    choice: Callable[[Mapping[str, paddle.Tensor], Criterion], Choice] = LowestScores


class Engine(Protocol):
    """Finds the groups of a live model: any function or object that can be called like this."""

    def __call__(self, model: paddle.nn.Layer, views: Sequence[View], /) -> Analysis:
        """Find the groups. Whatever it does to the model is undone.

        Args:
            model: The live layer.
            views: The ways in which it is run (inference and, where given, training), with example arguments.
        """
        ...


def disproved(
    model: paddle.nn.Layer, views: Sequence[View], groups: Sequence[ChannelGroup], roles: Mapping[str, Role]
) -> str | None:
    """Cut random shares of all these groups at once on the real weights: None if the masked and the cut model agree."""
    if not groups:
        return None
    for removal in proof_removals(groups):
        try:
            worst = difference(model, views, plan_for(roles, removal, model))
        except CannotCutError as error:
            return str(error)
        except ForwardError as error:
            return f"the cut model does not run: {error}"
        if worst.amount > TOLERANCE:
            return f"in the cut and the masked model, {worst.where} differ by {worst.amount:.2g} of the largest value"
    return None


def proven(model: paddle.nn.Layer, views: Sequence[View], found: Analysis) -> Analysis:
    """What was found, without the groups that do not stand the proof."""
    failure = disproved(model, views, found.groups, found.roles)
    return found if failure is None else keep_provable(model, views, found)


def keep_provable(model: paddle.nn.Layer, views: Sequence[View], found: Analysis) -> Analysis:
    """The slow way, when something fails on the real weights: group by group, then all that passed together."""
    kept: list[ChannelGroup] = []
    reasons = dict(found.reasons)
    for group in found.groups:
        failure = disproved(model, views, [group], found.roles) or disproved(
            model, views, [*kept, group], found.roles
        )
        if failure is None:
            kept.append(group)
            continue
        for path in group.filters:
            reasons[path] = f"the proof fails when layer '{group.scored[0][0].layer}' is cut: {failure}"
    return replace(found, groups=kept, reasons=reasons)
