"""The proof: zeroing channels where they are consumed gives the same outputs as removing them everywhere.

It comes in two strengths. A *trial* cuts the model and probes it: every layer must get exactly the kept channels. It costs
little and says at which layer things go wrong. The *proof* itself compares real forwards on the real weights: what the model
returns, and what each of its mixers returns on the way. Outputs alone prove nothing where they do not depend on a cut, such as
those of a detector that finds no object.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
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
    Wrong,
    merge_removals,
    numbers,
    roles_of,
    run,
)
from dysens.model import (
    ModelState,
    View,
    doubled,
    eagerly,
    forward_state,
    in_double_precision,
    leaves,
    preserved,
)
from dysens.pruning._cutting import cut, masked
from dysens.pruning._plan import CannotCutError, PrunePlan, kept_channels, plan_for

# The largest relative difference that rounding can explain: the two models add in another order.
TOLERANCE = 1e-3

# What is longer than this along its first axis is no batch, but positions or time steps of one.
_MOST_SAMPLES = 64

# Other units and shares than in the trial.
_TRIAL_SEED, _PROOF_SEED = 1, 3

# Its multiples spread evenly over the fractions, and none is near the one before.
_GOLDEN = (5**0.5 - 1) / 2


def trial_removals(groups: Sequence[ChannelGroup]) -> Iterator[Removal]:
    """What to try before a choice of units is trusted: single units, two removals that share all units, another one."""
    yield from _single_removals(groups)
    yield from complementary_removals(groups, _TRIAL_SEED)
    yield random_removal(groups, _TRIAL_SEED)


def proof_removals(groups: Sequence[ChannelGroup]) -> tuple[list[Removal], list[Removal]]:
    """What to try on the real weights once the trials were passed: single units; and two removals that share all units."""
    return [next(_single_removals(groups))], complementary_removals(groups, _PROOF_SEED)


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


def complementary_removals(groups: Iterable[ChannelGroup], seed: int) -> list[Removal]:
    """Two removals that take every unit between them, a different random share of each group the first time.

    So one of them takes the channel that stands out, on whatever input: where channels meet in a maximum, a minimum or a
    sorted list, a removal that spares that one proves nothing. Shares of neighbours lie far apart: two sources that happened
    to lose the same number would look independent.
    """
    random = np.random.default_rng(seed)
    start = random.random()
    shares = (0.25 + 0.5 * ((start + number * _GOLDEN) % 1) for number in count())
    pairs = [_halves(group, random.random(group.size), share) for group, share in zip(groups, shares)]
    return [merge_removals(pair[side] for pair in pairs) for side in (0, 1)]


def _halves(group: ChannelGroup, scores: np.ndarray, ratio: float) -> tuple[Removal, Removal]:
    least = len(group.blocks) / group.size
    one = group.weakest(scores, max(ratio, least))
    rest = max(1 - len(one) / group.size, least)
    other = group.weakest(-scores, rest)
    chosen = (units if len(units) else _least(group, scores) for units in (one, other))
    first, second = (group.removal(units) for units in chosen)
    return first, second


def trial(
    model: paddle.nn.Layer,
    probes: Sequence[Probe],
    roles: Mapping[str, Role],
    removal: Removal,
    before: ModelState,
) -> Wrong | None:
    """Cut the probed model and look whether each layer gets what was kept; None, or what goes wrong where.

    Args:
        model: The live layer, inside `dysens.model.preserved`.
        probes: Started probes of it.
        roles: Its layers with weights.
        removal: What goes.
        before: The whole model; it is brought back. Taken once for many trials.
    """
    try:
        plan = plan_for(roles, removal, model)
    except CannotCutError as error:
        return Wrong(str(error))
    entries = {port.layer: removal.kept(port) for port in removal if port.side in ("in", "through")}
    exits = {port.layer: removal.kept(port) for port in removal if port.side in ("out", "through")}
    try:
        cut(model, plan, gradients=False)
        found = (probe.mismatch(entries, exits) for probe in probes)
        return next((wrong.later(number) for number, wrong in enumerate(found) if wrong is not None), None)
    finally:
        before.restore()


class Difference(NamedTuple):
    """How far a masked and a cut model are apart at most, relative to the largest value of that output or layer."""

    amount: float
    where: str


def difference(model: paddle.nn.Layer, views: Iterable[View], plan: PrunePlan) -> Difference:
    """The largest difference between the masked and the cut model: in their outputs, or in the outputs of a layer on the way.

    A difference that may be rounding is looked at again in double precision.

    Raises:
        ForwardError: If the cut model's forward fails.
    """
    with eagerly(model, list(views)) as eager_views:
        found = zip(eager_views, _differences(model, eager_views, plan))
        return max(_settled(model, view, plan, apart) for view, apart in found)


def _settled(model: paddle.nn.Layer, view: View, plan: PrunePlan, found: Difference) -> Difference:
    """A steep function, such as the step of DB's head in training, blows rounding up; a wrong cut is wrong in any precision."""
    if not TOLERANCE < found.amount < math.inf:
        return found
    try:
        with in_double_precision(model):
            return _differences(model, [replace(view, arguments=doubled(view.arguments))], plan)[0]
    except ForwardError:
        return found  # something inside insists on single precision


def _differences(model: paddle.nn.Layer, views: Sequence[View], plan: PrunePlan) -> list[Difference]:
    """For every view the largest difference; none where a view is implied, which only has to run."""
    mixers = [role for role in roles_of(model).values() if role.kind == "mixer"]
    with preserved(model) as state:
        with masked(model, plan):
            whole = _one_by_one(model, [view for view in views if not view.implied], mixers)
        state.restore()
        cut(model, plan, gradients=False)
        left = _one_by_one(model, views, mixers)
    kept, before = _kept_exits(mixers, plan), iter(whole)
    return [
        Difference(0.0, "nothing") if view.implied else _apart(next(before), after, kept, view)
        for view, after in zip(views, left)
    ]


def _apart(before: Outputs, after: Outputs, kept: Mapping[str, np.ndarray], view: View) -> Difference:
    if before.calls.keys() != after.calls.keys():
        elsewhere = min(before.calls.keys() ^ after.calls.keys())
        return Difference(math.inf, f"whether layer '{elsewhere[0]}' runs{_in(view)}")
    if len(before.outputs) != len(after.outputs):
        return Difference(math.inf, f"the number of outputs{_in(view)}")
    on_the_way = [
        Difference(
            _relative(whole[..., kept[path]] if path in kept else whole, after.calls[path, number]),
            f"what layer '{path}' returns{_in(view)}",
        )
        for (path, number), whole in before.calls.items()
    ]
    at_the_end = [
        Difference(_relative(*pair), f"the outputs{_in(view)}") for pair in zip(before.outputs, after.outputs)
    ]
    return max([*at_the_end, *on_the_way], default=Difference(0.0, "the outputs"))


def _in(view: View) -> str:
    return f" in the {view.name}" if view.training or view.note else ""


def _kept_exits(mixers: Iterable[Role], plan: PrunePlan) -> dict[str, np.ndarray]:
    """The channels that each mixer still makes, by its path, where some go."""
    kept = {(item.tensor, item.axis): item.kept for item in plan.cuts}

    def remaining(port: Port | None) -> np.ndarray | None:
        return kept_channels(port, kept) if port is not None else None

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
    """The results of a forward: all tensors that it returns, and its layers' outputs, call by call, summed up per channel."""

    outputs: list[np.ndarray]
    calls: dict[Call, np.ndarray]


def _one_by_one(model: paddle.nn.Layer, views: Iterable[View], layers: Iterable[Role]) -> list[Outputs]:
    """Real forwards, each of which leaves nothing behind for the next one, such as statistics."""
    before = forward_state(model)
    found = []
    for view in views:
        try:
            found.append(outputs_of(model, view, layers))
        finally:
            for state in before:
                state.restore()
    return found


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

    returned = run(model, view, layers, listen, lambda visit: None)
    return Outputs([array for array in returned if isinstance(array, np.ndarray) and array.size], calls)


def _summary(answer: Any, axis: int) -> np.ndarray:
    """Mean and mean size of each channel, sample by sample: all values of all layers would fill the memory."""
    first = next(leaf for leaf in leaves(answer) if isinstance(leaf, paddle.Tensor))
    axis %= first.ndim
    samples = axis > 0 and first.shape[0] <= _MOST_SAMPLES
    others = [a for a in range(1 if samples else 0, first.ndim) if a != axis]
    return np.stack([numbers(values.mean(others) if others else values) for values in (first, first.abs())])


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
