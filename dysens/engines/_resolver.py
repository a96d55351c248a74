"""Which candidate groups can be cut, and in what way: tried on the probed model, one way of choosing units after the other."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import paddle

from dysens.groups import (
    REARRANGED,
    ChannelGraph,
    ChannelGroup,
    Layout,
    Likeness,
    Wrong,
    by_conv_groups,
    connected,
    in_blocks,
    layouts,
    part_of,
    remembering,
    together,
)
from dysens.model import ModelState
from dysens.pruning import trial, trial_removals

_MOST_KINDS = 2  # how many kinds of units of a group that fails are tried alone
_MOST_BLAMED = 2  # how many groups of a layer at which several fail together are tried alone


class GroupResolver:
    """Finds for every candidate group the first way of choosing units that stands a trial."""

    def __init__(
        self, model: paddle.nn.Layer, graph: ChannelGraph, tensors: Mapping[str, paddle.Tensor]
    ) -> None:
        """Take a model that was probed, inside `dysens.model.preserved`.

        Args:
            model: The live layer.
            graph: What the probes have shown.
            tensors: Its tensors, by path.
        """
        self._model = model
        self._graph = graph
        self._tensors = tensors
        self._order = {path: position for position, path in enumerate(tensors)}
        self._whole = ModelState(model)
        self._likeness = Likeness(model)
        run = [path for probe in graph.probes for path in probe.calls]
        self._as_run = {path: graph.roles[path] for path in (*run, *graph.roles)}

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
        ):
            working, left = rearrange(left)
            settled += working
        working, left = self._remembering(left, failing)
        settled += working
        working, left = self._rearranged(left)
        settled += working
        settled += self._parts(left, {group.path for group in settled})
        settled, clashing = self._compatible(settled)
        why = {**{group: failing[group] for group in left}, **clashing}
        reasons = {
            path: doubts.get(group.path, f"cutting it does not work, however balanced: {reason}")
            for group, reason in why.items()
            for path in group.filters
        }
        return sorted(settled, key=lambda group: self._order[group.path]), reasons

    def _trial(self, groups: Sequence[ChannelGroup]) -> Wrong | None:
        """None, or what goes wrong when these groups are cut together."""
        if not groups:
            return None
        for group in groups:
            if len(group.weakest(np.zeros(group.size), 0.99)) == 0:
                return Wrong(
                    f"layer '{group.layers[0]}' can lose no channel without leaving some layer with none"
                )
        for number, removal in enumerate(trial_removals(groups)):
            wrong = trial(self._model, self._graph.probes, self._graph.roles, removal, self._whole)
            if wrong is not None:
                return wrong.later(number)
        return None

    def _failing(self, groups: list[ChannelGroup], wrong: Wrong) -> dict[ChannelGroup, str]:
        """Those of groups that fail together that also fail alone, with the reason."""
        found: dict[ChannelGroup, str] = {}
        left, last = groups, wrong
        # The layer at which a trial ends mostly belongs to the group that is to blame.
        while (blamed := self._blamed(left, last)) is not None:
            found.update([blamed])
            left = [group for group in left if group is not blamed[0]]
            again = self._trial(left)
            if again is None:
                break
            last = again
        else:
            found.update(self._halved(left, last))
        return {group: found[group] for group in groups if group in found}

    def _blamed(self, groups: Sequence[ChannelGroup], wrong: Wrong) -> tuple[ChannelGroup, Wrong] | None:
        """A group of the layer at which these fail together that also fails alone, and how."""
        concerned = [group for group in groups if wrong.layer in group.layers] if len(groups) > 1 else []
        for group in concerned[:_MOST_BLAMED]:
            alone = self._trial([group])
            if alone is not None:
                return group, alone
        return None

    def _halved(self, groups: list[ChannelGroup], wrong: Wrong) -> dict[ChannelGroup, str]:
        """The same wherever they fail; halving finds few among many quickly."""
        if len(groups) == 1:
            return {groups[0]: wrong}
        found: dict[ChannelGroup, str] = {}
        for half in (groups[: len(groups) // 2], groups[len(groups) // 2 :]):
            reason = self._trial(half)
            if reason is not None:
                found.update(self._halved(half, reason))
        return found

    def _compatible(self, groups: list[ChannelGroup]) -> tuple[list[ChannelGroup], dict[ChannelGroup, str]]:
        """Each works alone; keep those that also work together."""
        if self._trial(groups) is None:
            return groups, {}
        kept: list[ChannelGroup] = []
        clashing: dict[ChannelGroup, str] = {}
        for group in groups:
            wrong: str | None = self._trial([*kept, group])
            if wrong is None:
                kept.append(group)
                continue
            # Widths that follow only where both are cut alike, and must not.
            found, last = self._beside(kept, group)
            if found is not None:
                kept.append(found)
            else:
                clashing[group] = last or wrong
        return kept, clashing

    def _beside(
        self, others: Sequence[ChannelGroup], group: ChannelGroup
    ) -> tuple[ChannelGroup | None, str | None]:
        """The group with attributes that follow it, so that it works beside others; or None and the last trial's words."""
        return remembering(group, self._model, self._as_run, lambda each: self._trial([*others, each]))

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

    def _remembering(
        self, groups: list[ChannelGroup], reasons: dict[ChannelGroup, str]
    ) -> tuple[list[ChannelGroup], list[ChannelGroup]]:
        """Let attributes of blocks follow the widths; where that does not help either, the last trial is the reason."""
        working: list[ChannelGroup] = []
        left: list[ChannelGroup] = []
        hopeless: set[Hashable] = set()
        for group in groups:
            like, before = self._likeness.of(group), reasons[group]
            if like in hopeless:
                left.append(group)
                continue
            balanced = (
                in_blocks([group], self._graph.roles, self._tensors, equal) for equal in (True, False)
            )
            for form in (group, *(form for form in balanced if form is not None)):
                found, wrong = remembering(form, self._model, self._as_run, lambda g: self._trial([g]))
                if found is not None:
                    working.append(found)
                    break
                reasons[group] = wrong or reasons[group]
            else:
                left.append(group)
                if reasons[group] == before:  # the first trial came as far as any
                    hopeless.add(like)
        return working, left

    def _parts(self, groups: list[ChannelGroup], taken: set[str]) -> list[ChannelGroup]:
        """Of each group that fails, the largest kind of units that works alone (a sum, but not what is laid beside it)."""
        working: list[ChannelGroup] = []
        hopeless: set[Hashable] = set()
        for group in groups:
            kinds = sorted(group.kinds(), key=len, reverse=True)
            for kind in kinds[:_MOST_KINDS] if len(kinds) > 1 else ():
                part = part_of(group, kind, self._tensors)
                if part is None or part.path in taken or (like := self._likeness.of(part)) in hopeless:
                    continue
                if self._trial([part]) is None:
                    working.append(part)
                    break
                found, _ = remembering(part, self._model, self._as_run, lambda g: self._trial([g]))
                if found is not None:
                    working.append(found)
                    break
                hopeless.add(like)
        return working

    def _rearranged(self, groups: list[ChannelGroup]) -> tuple[list[ChannelGroup], list[ChannelGroup]]:
        working: list[ChannelGroup] = []
        left: list[ChannelGroup] = []
        hopeless: set[Hashable] = set()
        for some in connected(groups, self._graph.roles):
            joint = together(some, self._tensors)
            like = self._likeness.of(joint)
            forms = [] if like in hopeless else layouts(joint, self._graph.probes, self._graph.roles)
            if forms and self._trial([_taking(joint, forms)]) is not None:
                forms = [form for form in forms if self._trial([_taking(joint, [form])]) is None]
            working += [_taking(joint, forms)] if forms else []
            left += some if not forms else []
            hopeless.update([] if forms else [like])
        return working, left


def _taking(group: ChannelGroup, forms: Sequence[Layout]) -> ChannelGroup:
    return replace(group, layouts=tuple(forms), rule=REARRANGED.format(len(forms)))
