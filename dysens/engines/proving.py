"""Only what is proven is offered: the masked and the cut model are compared on the real weights, whoever found the groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import paddle

from dysens.engines.analysis import Analysis
from dysens.errors import ForwardError
from dysens.groups.group import ChannelGroup
from dysens.groups.roles import Role
from dysens.inputs import View
from dysens.pruning.plan import CannotCutError, plan_for
from dysens.pruning.proof import TOLERANCE, difference, proof_removals


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
