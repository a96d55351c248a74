"""The native engine: probe the live layer, then offer only what proves itself.

Layers that choose their way by values are found first: what they might run on some other input, no trial has seen.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from dysens.engines._analysis import Analysis, Forwards, Proof
from dysens.errors import ForwardError
from dysens.groups import (
    FILTERS,
    REARRANGED,
    ChannelGraph,
    ChannelGroup,
    Layout,
    Wrong,
    by_conv_groups,
    candidates,
    channel_graph,
    connected,
    in_blocks,
    layouts,
    part_of,
    remembering,
    together,
)
from dysens.model import ModelState, View, eagerly, preserved, tensors_by_path
from dysens.progress import at_work
from dysens.pruning import trial, trial_removals

logger = logging.getLogger(__name__)

_PROOF_SIDE = 128
_MOST_KINDS = 2  # how many kinds of units of a group that fails are tried alone

_CONVERSIONS = ("__bool__", "__int__", "__float__", "__index__", "__array__", "item", "numpy", "tolist")
_PADDLE = str(Path(paddle.__file__).parent)


def without_blind_choices(
    model: paddle.nn.Layer, view: View, found: Analysis, called: Iterable[str]
) -> Analysis:
    """Leave out groups in layers that choose their way by values and have a way that was never taken.

    Args:
        model: The live layer.
        view: A forward that runs.
        found: What is offered so far.
        called: The layers with weights that ran on some input.
    """
    never = set(found.roles) - set(called)
    reasons = dict(found.reasons)
    kept = found.groups
    for chooser in sorted(_choosers(model, view)) if never and kept else ():
        hidden = next((path for path in sorted(never) if _is_choice(chooser, path, found, never)), None)
        if hidden is None:
            continue
        why = (
            f"layer '{chooser}' branches on values, and layer '{hidden}' inside it did not run for any input that was tried"
            if chooser
            else f"the forward branches on values, and layer '{hidden}' did not run for any input that was tried"
        )
        concerned = [g for g in kept if any(_inside(port.layer, chooser) for port in g.units)]
        reasons.update({path: why for group in concerned for path in group.filters})
        kept = [group for group in kept if group not in concerned]
    return replace(found, groups=kept, reasons=reasons)


def _is_choice(chooser: str, path: str, found: Analysis, never: set[str]) -> bool:
    """Whether a layer belongs to a part of the branching layer of which nothing ran: another branch."""
    if not _inside(path, chooser):
        return False
    rest = path[len(chooser) + 1 :] if chooser else path
    part = f"{chooser}.{rest.split('.')[0]}" if chooser else rest.split(".")[0]
    return all(each in never for each in found.roles if _inside(each, part))


def _inside(path: str, layer: str) -> bool:
    return not layer or path == layer or path.startswith(f"{layer}.")


def _choosers(model: paddle.nn.Layer, view: View) -> set[str]:
    """The layers whose own code turns a tensor into a Python value."""
    paths = {id(layer): path for path, layer in model.named_sublayers(include_self=True)}
    seen: set[str] = set()

    def note() -> None:
        frame = sys._getframe(2)
        if frame.f_code.co_filename.startswith(_PADDLE):
            return  # sizes that an operator was given as a tensor
        while frame is not None:
            path = paths.get(id(frame.f_locals.get("self")))
            if path is not None:
                seen.add(path)
                return
            frame = frame.f_back  # type: ignore[assignment]

    with preserved(model), _watched(note), paddle.no_grad():
        for layer in model.sublayers(include_self=True):
            layer.__dict__["training"] = view.training
        model(*view.fresh())
    return seen


@contextmanager
def _watched(note: Callable[[], None]) -> Iterator[None]:
    """Record when a tensor becomes a Python value, within this context."""
    kind = type(paddle.zeros([1]))
    before = {name: kind.__dict__[name] for name in _CONVERSIONS if name in kind.__dict__}

    def watching(original: Any) -> Callable[..., Any]:
        def convert(*given: Any, **named: Any) -> Any:
            note()
            return original(*given, **named)

        return convert

    try:
        for name, original in before.items():
            setattr(kind, name, watching(original))
        yield
    finally:
        for name, original in before.items():
            setattr(kind, name, original)


_UNTRIED = (
    "The training forward was not tried, because it does not take the inputs that were given: {}. "
    "Give train_inputs before you train the cut model, and it is proven as well."
)


def native_engine(model: paddle.nn.Layer, views: Sequence[View], layers: str = FILTERS) -> Analysis:
    """Find all groups that can be cut, and say why every other filter cannot.

    Args:
        model: The live layer; it is left unchanged.
        views: The ways in which it is run; a group has to survive in all of them.
        layers: "filters" for 4-D weights, "all" for linear layers and convolutions of any rank as well.

    Raises:
        ForwardError: If the model does not run with the given inputs.
    """
    # Whatever a forward writes to, weights included, is the user's.
    at_it = at_work(f"finding the groups of {type(model).__name__}")
    with at_it, preserved(model, weights_too=True), eagerly(model, views) as eager_views:
        return _analyse(model, eager_views, layers)


def _analyse(model: paddle.nn.Layer, views: Sequence[View], layers: str) -> Analysis:
    forwards = Forwards(model)
    ran = [forwards.called(view) for view in views]
    small = _smaller(forwards, views)
    base = (small or views)[0]
    implied: list[View] = []
    heads: list[View] = []
    untried = ""
    if not views[-1].training:
        training = replace(base, training=True, implied=True)
        try:
            # Auxiliary heads that only run in training take in channels too.
            in_training = forwards.called(training)
            heads = [training] if in_training - ran[0] else []
            ran.append(in_training)
            implied = [training]
        except ForwardError as error:
            untried = _UNTRIED.format(error)
    found, probed = _analyse_at(model, [*(small or views), *heads], layers)
    others = forwards.others(base)
    ran.append(probed)
    ran += [forwards.called(view) for view in others] if set(found.roles) - set().union(*ran) else []
    found = without_blind_choices(model, base, found, set().union(*ran))
    proof = Proof(model, *_proven_at(forwards, views, ran), others, implied)
    failure = proof.failure(found, found.groups)
    if failure is not None and proof.large:
        logger.info("with smaller pictures %s; proving at the given size", failure)
        proof = Proof(model, views, (), others, implied)
        failure = proof.failure(found, found.groups)
    if failure is not None and small is not None:
        logger.info("At the given input size %s; probing again at that size", failure)
        found, probed = _analyse_at(model, [*views, *heads], layers)
        ran.append(probed)
        found = without_blind_choices(model, base, found, set().union(*ran))
        failure = proof.failure(found, found.groups)
    return replace(found if failure is None else proof.provable(found), untried=untried)


def _smaller(forwards: Forwards, views: Sequence[View], least: int = 64) -> list[View] | None:
    """All views with smaller pictures, if the model takes them: structure does not depend on size, time does."""
    for smaller in zip(*(view.smaller(least) for view in views)):
        if all(map(forwards.runs, smaller)):
            return list(smaller)
    return None


def _proven_at(
    forwards: Forwards, views: Sequence[View], ran: Sequence[set[str]]
) -> tuple[Sequence[View], Sequence[View]]:
    """The views that every cut is proven in, and those that one cut is proven in.

    A large picture takes minutes where a small one takes seconds. Where both run the same layers, the small one proves the
    channels; that the given size of the forward that is deployed makes no difference is then seen on one cut.
    """
    # Larger than for a probe: batch norms over the few places of a tiny map blow up what is only rounding.
    small = _smaller(forwards, views, _PROOF_SIDE)
    if small is None:
        return views, ()
    pairs = [
        (view, each if forwards.called(each) == layers else view)
        for view, each, layers in zip(views, small, ran)
    ]
    return [each for _, each in pairs], [
        view for view, each in pairs if each is not view and not view.training
    ]


def _analyse_at(model: paddle.nn.Layer, views: Sequence[View], layers: str) -> tuple[Analysis, set[str]]:
    """What can be cut, not yet proven; and the layers that ran in some probe."""
    with preserved(model):
        graph = channel_graph(model, views, layers)
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
        self._whole = ModelState(model)
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
        for group in groups:
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
        return working, left

    def _parts(self, groups: list[ChannelGroup], taken: set[str]) -> list[ChannelGroup]:
        """Of each group that fails, the largest kind of units that works alone (a sum, but not what is laid beside it)."""
        working: list[ChannelGroup] = []
        for group in groups:
            kinds = sorted(group.kinds(), key=len, reverse=True)
            for kind in kinds[:_MOST_KINDS] if len(kinds) > 1 else ():
                part = part_of(group, kind, self._tensors)
                if part is None or part.path in taken:
                    continue
                if self._trial([part]) is None:
                    working.append(part)
                    break
                found, _ = remembering(part, self._model, self._as_run, lambda g: self._trial([g]))
                if found is not None:
                    working.append(found)
                    break
        return working

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
