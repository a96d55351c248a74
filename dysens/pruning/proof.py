"""The proof: zeroing channels where they are consumed gives the same outputs as removing them everywhere.

It comes in two strengths. A *trial* cuts the model and probes it: every layer must get exactly the kept channels. It costs
little and says at which layer things go wrong. The *proof* itself compares real forwards on the real weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import paddle

from dysens.eager import eagerly, without_dropout
from dysens.errors import ForwardError, in_a_sentence
from dysens.groups.group import ChannelGroup, Removal, merge_removals
from dysens.groups.probe import Probe
from dysens.groups.roles import Role
from dysens.inputs import View, leaves, map_leaves
from dysens.live import all_tensors, has_storage, isolate, preserved, swap_storage
from dysens.pruning.apply import cut, masked
from dysens.pruning.plan import CannotCutError, PrunePlan, plan_for

# The largest relative difference that rounding can explain: the two models add in another order.
TOLERANCE = 1e-3

# Different shares of each group go at every trial: two sources that happened to lose the same number would look independent.
_TRIAL_SEEDS, _PROOF_SEEDS = (1, 2), (3, 4)


def trial_removals(groups: Sequence[ChannelGroup]) -> Iterator[Removal]:
    """What to try before a choice of units is trusted: single units of every kind, then random shares."""
    yield from _single_removals(groups)
    for seed in _TRIAL_SEEDS:
        yield random_removal(groups, seed)


def proof_removals(groups: Sequence[ChannelGroup]) -> Iterator[Removal]:
    """What to try on the real weights once the trials were passed: single units, then other random shares."""
    yield next(_single_removals(groups))
    for seed in _PROOF_SEEDS:
        yield random_removal(groups, seed)


def _single_removals(groups: Sequence[ChannelGroup]) -> Iterator[Removal]:
    """The first or last unit of one kind from each group, until every kind has had its turn.

    A single channel is the hardest test of a free choice: a random share of a narrow layer may be balanced by luck. A group
    that can only take some forms takes one after the other.
    """
    turns = [_turns(group) for group in groups]
    for turn in range(max(map(len, turns))):
        chosen = [(g, units[turn]) for g, units in zip(groups, turns) if turn < len(units)]
        yield merge_removals(g.removal(units) for g, units in chosen)


def _turns(group: ChannelGroup) -> list[np.ndarray]:
    if group.layouts:
        scores = np.random.default_rng(0).random(group.size)
        return [form.weakest(scores) for form in group.layouts]
    units = [kind[end] for kind in group.kinds() for end in (0, -1)]
    return [_least(group, np.arange(group.size) != unit) for unit in units]


def _least(group: ChannelGroup, scores: np.ndarray) -> np.ndarray:
    """One unit from each block, or the widest of the forms that a group can take."""
    if group.layouts:
        return group.layouts[0].weakest(scores)
    return group.weakest(scores, len(group.blocks) / group.size)


def random_removal(groups: Iterable[ChannelGroup], seed: int) -> Removal:
    """A different random share of the units of each group, chosen as its rule demands."""
    random = np.random.default_rng(seed)
    removals = []
    for group in groups:
        scores, ratio = random.random(group.size), random.uniform(0.15, 0.65)
        units = group.weakest(scores, ratio)
        removals.append(group.removal(units if len(units) else _least(group, scores)))
    return merge_removals(removals)


def trial(
    model: paddle.nn.Layer, probes: Sequence[Probe], roles: Mapping[str, Role], removal: Removal
) -> str | None:
    """Cut the probed model and look whether each layer gets what was kept; None, or what goes wrong where."""
    try:
        plan = plan_for(roles, removal, model)
    except CannotCutError as error:
        return str(error)
    entries = {port.layer: removal.kept(port) for port in removal if port.side in ("in", "through")}
    exits = {port.layer: removal.kept(port) for port in removal if port.side in ("out", "through")}
    with preserved(model):
        cut(model, plan, gradients=False)
        for probe in probes:
            wrong = probe.mismatch(entries, exits)
            if wrong is not None:
                return wrong
    return None


def difference(model: paddle.nn.Layer, views: Iterable[View], plan: PrunePlan) -> float:
    """The largest difference between the masked and the cut model's outputs, relative to the largest output.

    A difference that may be rounding is looked at again in double precision.

    Raises:
        ForwardError: If the cut model's forward fails, or returns other shapes.
    """
    with eagerly(model, list(views)) as eager_views:
        return max(_settled_difference(model, view, plan) for view in eager_views)


def _settled_difference(model: paddle.nn.Layer, view: View, plan: PrunePlan) -> float:
    """A steep function, such as the step of DB's head in training, blows rounding up; a wrong cut is wrong in any precision."""
    found = _difference(model, view, plan)
    if not TOLERANCE < found < float("inf"):
        return found
    with preserved(model):
        for tensor in all_tensors(model):
            if tensor.dtype == paddle.float32 and has_storage(tensor):
                swap_storage(tensor, tensor.detach().astype("float64"))
        try:
            return _difference(model, replace(view, arguments=map_leaves(_doubled, view.arguments)), plan)
        except ForwardError:
            return found  # something inside insists on single precision


def _doubled(leaf: Any) -> Any:
    return (
        leaf.astype("float64") if isinstance(leaf, paddle.Tensor) and leaf.dtype == paddle.float32 else leaf
    )


def _difference(model: paddle.nn.Layer, view: View, plan: PrunePlan) -> float:
    with preserved(model):
        before = masked_outputs(model, view, plan)
    with preserved(model):
        cut(model, plan, gradients=False)
        after = outputs(model, view)
    if len(before) != len(after):
        return float("inf")
    return max((_relative(a, b) for a, b in zip(before, after)), default=0.0)


def masked_outputs(model: paddle.nn.Layer, view: View, plan: PrunePlan) -> list[np.ndarray]:
    """The outputs with the plan's masks on."""
    with masked(model, plan):
        return outputs(model, view)


def outputs(model: paddle.nn.Layer, view: View) -> list[np.ndarray]:
    """All tensors that a real forward returns. Inside `preserved`: modes change, and statistics in training."""
    for layer in model.sublayers(include_self=True):
        layer.training = view.training
    if view.training:
        isolate(model, only_statistics=True)
    paddle.seed(0)
    try:
        with paddle.no_grad(), without_dropout():
            returned = model(*view.arguments)
    except Exception as error:
        raise ForwardError(f"the {view.name} fails with {in_a_sentence(error)}") from error
    return [t.astype("float32").numpy() for t in leaves(returned) if isinstance(t, paddle.Tensor) and t.size]


def _relative(a: Any, b: Any) -> float:
    if a.shape != b.shape:
        return float("inf")
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    return float(np.max(np.where(same, 0.0, np.abs(a - b))) / (np.max(np.abs(a)) + 1e-12))
