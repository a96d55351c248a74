"""The proof: zeroing channels where they are consumed gives the same outputs as removing them everywhere.

It comes in two strengths. A *trial* cuts the model and probes it: every layer must get exactly the kept channels. It costs
little and says at which layer things go wrong. The *proof* itself compares real forwards on the real weights: what the model
returns, and what each of its mixers says on the way. Outputs alone prove nothing where they do not answer to a cut, as those
of a detector that finds no object.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import paddle

from dysens.errors import ForwardError
from dysens.groups import (
    Call,
    ChannelGroup,
    Port,
    Probe,
    Removal,
    Role,
    Visit,
    merge_removals,
    numbers,
    roles_of,
    run,
)
from dysens.model import View, doubled, eagerly, in_double_precision, isolate, leaves, preserved
from dysens.pruning._apply import cut, masked
from dysens.pruning._plan import CannotCutError, PrunePlan, plan_for

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


class Difference(NamedTuple):
    """How far a masked and a cut model are apart at most, relative to the largest value of that output or layer."""

    amount: float
    where: str


def difference(model: paddle.nn.Layer, views: Iterable[View], plan: PrunePlan) -> Difference:
    """The largest difference between the masked and the cut model: in their outputs, or in what a layer says on the way.

    A difference that may be rounding is looked at again in double precision.

    Raises:
        ForwardError: If the cut model's forward fails.
    """
    with eagerly(model, list(views)) as eager_views:
        return max(_settled_difference(model, view, plan) for view in eager_views)


def _settled_difference(model: paddle.nn.Layer, view: View, plan: PrunePlan) -> Difference:
    """A steep function, such as the step of DB's head in training, blows rounding up; a wrong cut is wrong in any precision."""
    found = _difference(model, view, plan)
    if not TOLERANCE < found.amount < math.inf:
        return found
    try:
        with in_double_precision(model):
            return _difference(model, replace(view, arguments=doubled(view.arguments)), plan)
    except ForwardError:
        return found  # something inside insists on single precision


def _difference(model: paddle.nn.Layer, view: View, plan: PrunePlan) -> Difference:
    mixers = [role for role in roles_of(model).values() if role.kind == "mixer"]
    with preserved(model), masked(model, plan):
        before = outputs_of(model, view, mixers)
    with preserved(model):
        cut(model, plan, gradients=False)
        after = outputs_of(model, view, mixers)
    if before.calls.keys() != after.calls.keys():
        elsewhere = min(before.calls.keys() ^ after.calls.keys())
        return Difference(math.inf, f"whether layer '{elsewhere[0]}' runs")
    if len(before.outputs) != len(after.outputs):
        return Difference(math.inf, "the number of outputs")
    kept = _kept_exits(mixers, plan)
    on_the_way = [
        Difference(
            _relative(whole[:, kept[path]] if path in kept else whole, after.calls[path, number]),
            f"what layer '{path}' returns",
        )
        for (path, number), whole in before.calls.items()
    ]
    at_the_end = [Difference(_relative(*pair), "the outputs") for pair in zip(before.outputs, after.outputs)]
    return max([*at_the_end, *on_the_way], default=Difference(0.0, "the outputs"))


def _kept_exits(mixers: Iterable[Role], plan: PrunePlan) -> dict[str, np.ndarray]:
    """The channels that each mixer still makes, by its path, where some go."""
    kept = {(item.tensor, item.axis): item.kept for item in plan.cuts}

    def remaining(port: Port | None) -> np.ndarray | None:
        pieces = port.slices if port is not None else ()
        return next((kept[p.tensor, p.axis] for p in pieces if (p.tensor, p.axis) in kept), None)

    found = {}
    for role in mixers:
        exits, entries = remaining(role.outputs), remaining(role.inputs)
        if exits is None and entries is not None and role.conv_groups > 1 and role.inputs and role.outputs:
            # A transposed convolution that loses whole groups: no tensor tells, each of its filters is as it was.
            width = role.outputs.size // role.conv_groups
            groups = np.unique(entries // (role.inputs.size // role.conv_groups))
            exits = (groups[:, None] * width + np.arange(width)).reshape(-1)
        if exits is not None:
            found[role.path] = exits
    return found


class Outputs(NamedTuple):
    """What a forward brings: all tensors that it returns, and what its layers say, call by call, summed up per channel."""

    outputs: list[np.ndarray]
    calls: dict[Call, np.ndarray]


def outputs_of(model: paddle.nn.Layer, view: View, layers: Iterable[Role] = ()) -> Outputs:
    """A real forward. Inside `preserved`: modes change, and statistics in training.

    Raises:
        ForwardError: If it fails.
    """
    calls: dict[Call, np.ndarray] = {}

    def listen(visit: Visit) -> Any:
        answer = visit.real()
        calls[visit.call] = _summary(answer, visit.role.output_axis)
        return answer

    if view.training:
        isolate(model, only_statistics=True)
    returned = run(model, view, layers, listen, lambda visit: None)
    return Outputs([array for array in returned if isinstance(array, np.ndarray) and array.size], calls)


def _summary(answer: Any, axis: int) -> np.ndarray:
    """Mean and mean size of each channel: all values of all layers would fill the memory."""
    first = next(leaf for leaf in leaves(answer) if isinstance(leaf, paddle.Tensor))
    others = [a for a in range(first.ndim) if a != axis % first.ndim]
    return np.stack([numbers(values.mean(others)) for values in (first, first.abs())])


def _relative(ours: np.ndarray, theirs: np.ndarray) -> float:
    if ours.shape != theirs.shape:
        return math.inf
    a, b = ours.astype("float64"), theirs.astype("float64")
    apart = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if not apart.any():
        return 0.0
    gap = float(np.abs(a - b)[apart].max())
    # A NaN or an infinity that only one of them has is no rounding.
    return gap / (float(np.abs(a[np.isfinite(a)]).max()) + 1e-12) if math.isfinite(gap) else math.inf
