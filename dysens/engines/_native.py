"""The native engine: probe the live layer, then offer only what proves itself."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import paddle

from dysens.engines._analysis import Analysis, Proof, called, other_views, runs
from dysens.engines._choosing import without_blind_choices
from dysens.errors import ForwardError
from dysens.groups import (
    REARRANGED,
    ChannelGraph,
    ChannelGroup,
    Layout,
    by_conv_groups,
    candidates,
    channel_graph,
    connected,
    in_blocks,
    layouts,
    together,
)
from dysens.model import View, eagerly, preserved, tensors_by_path
from dysens.pruning import trial, trial_removals

logger = logging.getLogger(__name__)

_UNTRIED = (
    "The training forward was not tried, because it does not take the inputs that were given: {}. "
    "Give train_inputs before you train the cut model, and it is proven as well."
)


def native_engine(model: paddle.nn.Layer, views: Sequence[View]) -> Analysis:
    """Find all groups that can be cut, and say why every other filter cannot.

    Args:
        model: The live layer; it is left as found.
        views: The ways in which it is run; a group has to survive in all of them.

    Raises:
        ForwardError: If the model does not run with the given inputs.
    """
    # Whatever a forward writes to, weights included, is the user's.
    with preserved(model, weights_too=True), eagerly(model, views) as eager_views:
        return _analyse(model, eager_views)


def _analyse(model: paddle.nn.Layer, views: Sequence[View]) -> Analysis:
    ran = [called(model, view) for view in views]
    small = _smaller(model, views)
    base = (small or views)[0]
    implied: list[View] = []
    heads: list[View] = []
    untried = ""
    if not views[-1].training:
        training = replace(base, training=True, implied=True)
        try:
            # Auxiliary heads that only run in training take in channels too.
            in_training = called(model, training)
            heads = [training] if in_training - ran[0] else []
            ran.append(in_training)
            implied = [training]
        except ForwardError as error:
            untried = _UNTRIED.format(error)
    found, probed = _analyse_at(model, [*(small or views), *heads])
    others = other_views(model, base)
    ran.append(probed)
    ran += [called(model, view) for view in others] if set(found.roles) - set().union(*ran) else []
    found = without_blind_choices(model, base, found, set().union(*ran))
    proof = Proof(model, views, others, implied)
    failure = proof.failure(found, found.groups)
    if failure is not None and small is not None:
        logger.info("at the given input size %s; probing again at that size", failure)
        found, probed = _analyse_at(model, [*views, *heads])
        ran.append(probed)
        found = without_blind_choices(model, base, found, set().union(*ran))
        failure = proof.failure(found, found.groups)
    return replace(found if failure is None else proof.provable(found), untried=untried)


def _smaller(model: paddle.nn.Layer, views: Sequence[View]) -> list[View] | None:
    """All views with smaller pictures, if the model takes them: structure does not depend on size, time does."""
    for smaller in zip(*(view.smaller() for view in views)):
        if all(runs(model, view) for view in smaller):
            return list(smaller)
    return None


def _analyse_at(model: paddle.nn.Layer, views: Sequence[View]) -> tuple[Analysis, set[str]]:
    """What can be cut, not yet proven; and the layers that ran in some probe."""
    with preserved(model):
        graph = channel_graph(model, views)
        tensors = tensors_by_path(model)
        suggested = candidates(graph, tensors)
        groups, reasons = _GroupResolver(model, graph, tensors).settle(suggested.groups, suggested.doubts)
    analysis = Analysis(groups, _of_others({**suggested.reasons, **reasons}, groups, tensors), graph.roles)
    return analysis, graph.called


def _of_others(
    reasons: Mapping[str, str], groups: Sequence[ChannelGroup], tensors: Mapping[str, paddle.Tensor]
) -> dict[str, str]:
    """The reasons of 4-D weights that are in no group, in model order."""
    cut = {path for group in groups for path in group.filters}
    return {path: reasons[path] for path in tensors if path in reasons and path not in cut}


class _GroupResolver:
    """Finds for every candidate group the first way of choosing units that stands a trial."""

    def __init__(
        self, model: paddle.nn.Layer, graph: ChannelGraph, tensors: Mapping[str, paddle.Tensor]
    ) -> None:
        self._model = model
        self._graph = graph
        self._tensors = tensors
        self._order = {path: position for position, path in enumerate(tensors)}

    def settle(
        self, groups: list[ChannelGroup], doubts: Mapping[str, str]
    ) -> tuple[list[ChannelGroup], dict[str, str]]:
        """The groups that work, in parameter order, and for the others why not, by path of their weights."""
        failing: dict[ChannelGroup, str] = {}
        # Apart, because most groups are sure, and then one trial is enough for all of them.
        sure = [group for group in groups if group.path not in doubts]
        for some in (sure, [group for group in groups if group.path in doubts]):
            wrong = self._trial(some)
            if wrong is not None:
                failing.update(self._failing(some, wrong))
        if not failing and len(sure) == len(groups):
            return groups, {}
        settled = [group for group in groups if group not in failing]
        left = list(failing)
        for rearrange in (
            self._as_conv_groups,
            self._in_own_blocks,
            self._in_common_blocks,
            self._rearranged,
        ):
            working, left = rearrange(left)
            settled += working
        settled, clashing = self._compatible(settled)
        why = {**{group: failing[group] for group in left}, **clashing}
        reasons = {
            path: doubts.get(group.path, f"cutting it does not work, however balanced: {reason}")
            for group, reason in why.items()
            for path in group.filters
        }
        return sorted(settled, key=lambda group: self._order[group.path]), reasons

    def _trial(self, groups: Sequence[ChannelGroup]) -> str | None:
        """None, or what goes wrong when these groups are cut together."""
        if not groups:
            return None
        for group in groups:
            if len(group.weakest(np.zeros(group.size), 0.99)) == 0:
                return f"layer '{group.layers[0]}' can lose no channel without leaving some layer with none"
        for removal in trial_removals(groups):
            wrong = trial(self._model, self._graph.probes, self._graph.roles, removal)
            if wrong is not None:
                return wrong
        return None

    def _failing(self, groups: list[ChannelGroup], wrong: str) -> dict[ChannelGroup, str]:
        """Those of groups that fail together that also fail alone, with the reason; halving finds few among many quickly."""
        if len(groups) == 1:
            return {groups[0]: wrong}
        found: dict[ChannelGroup, str] = {}
        for half in (groups[: len(groups) // 2], groups[len(groups) // 2 :]):
            reason = self._trial(half)
            if reason is not None:
                found.update(self._failing(half, reason))
        return found

    def _compatible(self, groups: list[ChannelGroup]) -> tuple[list[ChannelGroup], dict[ChannelGroup, str]]:
        """Each works alone; keep those that also work together."""
        if self._trial(groups) is None:
            return groups, {}
        kept: list[ChannelGroup] = []
        clashing: dict[ChannelGroup, str] = {}
        for group in groups:
            wrong = self._trial([*kept, group])
            if wrong is None:
                kept.append(group)
            else:
                clashing[group] = wrong
        return kept, clashing

    # Ways to balance, each giving what works and what is left

    def _as_conv_groups(self, groups: list[ChannelGroup]) -> tuple[list[ChannelGroup], list[ChannelGroup]]:
        merged: dict[ChannelGroup, list[ChannelGroup]] = {}
        for some in connected(groups, self._graph.roles):
            group = by_conv_groups(some, self._graph.roles, self._tensors)
            if group is not None:
                merged[group] = some
        wrong = self._trial(list(merged))
        failing = self._failing(list(merged), wrong) if wrong is not None else {}
        working = [group for group in merged if group not in failing]
        done = {id(part) for group in working for part in merged[group]}
        return working, [group for group in groups if id(group) not in done]

    def _in_own_blocks(self, groups: list[ChannelGroup]) -> tuple[list[ChannelGroup], list[ChannelGroup]]:
        working: list[ChannelGroup] = []
        left: list[ChannelGroup] = []
        for group in groups:
            balanced = self._balanced([group])
            (left if balanced is None else working).append(balanced or group)
        return working, left

    def _in_common_blocks(self, groups: list[ChannelGroup]) -> tuple[list[ChannelGroup], list[ChannelGroup]]:
        working: list[ChannelGroup] = []
        left: list[ChannelGroup] = []
        for some in connected(groups, self._graph.roles):
            balanced = self._balanced(some)
            working += [balanced] if balanced is not None else []
            left += some if balanced is None else []
        return working, left

    def _balanced(self, groups: Sequence[ChannelGroup]) -> ChannelGroup | None:
        for equal in (True, False):
            group = in_blocks(groups, self._graph.roles, self._tensors, equal)
            if group is not None and self._trial([group]) is None:
                return group
        return None

    def _rearranged(self, groups: list[ChannelGroup]) -> tuple[list[ChannelGroup], list[ChannelGroup]]:
        working: list[ChannelGroup] = []
        left: list[ChannelGroup] = []
        for some in connected(groups, self._graph.roles):
            joint = together(some, self._tensors)
            forms = layouts(joint, self._graph.probes, self._graph.roles)
            if forms and self._trial([_taking(joint, forms)]) is not None:
                forms = [form for form in forms if self._trial([_taking(joint, [form])]) is None]
            working += [_taking(joint, forms)] if forms else []
            left += some if not forms else []
        return working, left


def _taking(group: ChannelGroup, forms: Sequence[Layout]) -> ChannelGroup:
    return replace(group, layouts=tuple(forms), rule=REARRANGED.format(len(forms)))
