"""The contract of an engine: what it is given, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import paddle

from dysens.criteria import Criterion
from dysens.groups.group import ChannelGroup, Choice
from dysens.groups.roles import Role
from dysens.inputs import View
from dysens.pruning.scoring import LowestScores


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
