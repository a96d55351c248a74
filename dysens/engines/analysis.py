"""What every engine gives: groups that can be cut, reasons for the rest, and a way to choose what goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import paddle

from dysens.criteria import Criterion
from dysens.groups.group import ChannelGroup, Choice
from dysens.groups.roles import Role
from dysens.pruning.scoring import LowestScores


@dataclass(frozen=True)
class Analysis:
    """What an engine knows about a model.

    Attributes:
        groups: Groups that can be cut, in parameter order.
        reasons: Why a weight is in none of them, by its path; for every 4-D weight that is not.
        roles: The layers with weights, by path.
        choice: Makes, from the model's tensors by path and a criterion, the choice of what a ratio removes.
    """

    groups: list[ChannelGroup]
    reasons: dict[str, str]
    roles: Mapping[str, Role]
    choice: Callable[[Mapping[str, paddle.Tensor], Criterion], Choice] = LowestScores
