import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dysens.errors import InputError, UnreachableError
from dysens.ratios import predicted_loss, ratios_for_budget


def chain(seed, groups, steps):
    """A made-up network: convs in a row, with a few skip connections, whose cost is kept inputs times kept outputs."""
    chance = random.Random(seed)
    names = [f"conv{number}" for number in range(groups)]
    widths = {name: chance.choice([8, 16, 32, 64]) for name in names}
    links = [*zip(names, names[1:]), *((chance.choice(names), chance.choice(names)) for _ in names)]
    weights = [chance.randint(1, 64) for _ in links]
    ends = {name: chance.randint(1, 200) for name in names}

    def cost(ratios):
        kept = {name: widths[name] * (1 - ratios[name]) for name in names}
        inner = sum(weight * kept[one] * kept[other] for weight, (one, other) in zip(weights, links))
        return inner + sum(ends[name] * kept[name] for name in names)

    curves, candidates = {}, {}
    for name in names:
        scale, power = chance.random() ** 2, chance.uniform(0.5, 4)
        curves[name] = {i / 10: scale * (i / 10) ** power + chance.gauss(0, 0.01) for i in range(1, 10)}
        candidates[name] = [round(chance.uniform(0.02, 0.9), 3) for _ in range(steps)]
    return curves, cost, candidates


def loss_of(curves, ratios):
    return sum(predicted_loss(curves[name], ratio) for name, ratio in ratios.items())


def share_removed(cost, names, ratios):
    whole = cost(dict.fromkeys(names, 0.0))
    return 1 - cost({name: ratios.get(name, 0.0) for name in names}) / whole


def least_loss(curves, cost, target, candidates):
    """By trying everything."""
    options = [sorted({0.0, *ratios}) for ratios in candidates.values()]
    losses = [
        loss_of(curves, dict(zip(candidates, choice)))
        for choice in itertools.product(*options)
        if share_removed(cost, candidates, dict(zip(candidates, choice))) >= target - 1e-12
    ]
    return min(losses, default=math.inf)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4), st.floats(0, 0.95))
def test_close_to_the_best_there_is(seed, groups, steps, target):
    curves, cost, candidates = chain(seed, groups, steps)
    best = least_loss(curves, cost, target, candidates)
    if math.isinf(best):
        with pytest.raises(UnreachableError, match="remove"):
            ratios_for_budget(curves, cost, target, candidates)
        return
    chosen = ratios_for_budget(curves, cost, target, candidates)
    assert share_removed(cost, candidates, chosen) >= target - 1e-9
    assert all(ratio in candidates[name] for name, ratio in chosen.items())
    assert best - 1e-9 <= loss_of(curves, chosen) <= 1.15 * best + 0.01


def test_nearly_always_the_best_there_is():
    """Over fixed instances, so that a worse search shows."""
    gaps = []
    for seed in range(40):
        curves, cost, candidates = chain(seed, 4, 4)
        target = 0.2 + seed % 6 / 10
        best = least_loss(curves, cost, target, candidates)
        if math.isfinite(best):
            gaps.append(loss_of(curves, ratios_for_budget(curves, cost, target, candidates)) - best)
    assert len(gaps) > 30
    assert sum(gap < 1e-9 for gap in gaps) >= 0.9 * len(gaps)
    assert sum(gaps) / len(gaps) < 1e-3


@pytest.mark.parametrize("target", [0.3, 0.5, 0.7])
def test_better_than_one_threshold_for_all(target):
    curves, cost, candidates = chain(3, 25, 9)
    chosen = ratios_for_budget(curves, cost, target, candidates)
    for threshold in sorted({predicted_loss(curves[n], r) for n in candidates for r in candidates[n]}):
        common = {
            name: max([0.0, *(r for r in ratios if predicted_loss(curves[name], r) <= threshold)])
            for name, ratios in candidates.items()
        }
        if share_removed(cost, candidates, common) >= target:
            break
    assert share_removed(cost, candidates, chosen) >= target - 1e-9
    assert loss_of(curves, chosen) < 0.9 * loss_of(curves, common)


def test_the_same_answer_every_time():
    results = [ratios_for_budget(curves, cost, 0.5, cands) for curves, cost, cands in (chain(5, 12, 9),) * 3]
    assert results[0] == results[1] == results[2]


def test_nothing_to_remove_removes_nothing():
    curves, cost, candidates = chain(1, 3, 3)
    assert ratios_for_budget(curves, cost, 0.0, candidates) == {}
    assert ratios_for_budget({}, lambda ratios: 5.0, 0.0, {}) == {}


def test_an_unreachable_share_says_what_is_reachable():
    cost = lambda ratios: 100 * (1 - ratios["a"])  # noqa: E731
    with pytest.raises(UnreachableError, match=r"70\.0% of the cost .* remove 50\.0%\."):
        ratios_for_budget({"a": {0.5: 0.1}}, cost, 0.7, {"a": [0.5]})
    with pytest.raises(UnreachableError, match=r"remove 0\.0%\."):
        ratios_for_budget({}, lambda ratios: 5.0, 0.1, {})


def test_a_reachable_share_is_reached_to_the_last_digit():
    cost = lambda ratios: 100 * (1 - ratios["a"])  # noqa: E731
    assert ratios_for_budget({"a": {0.9: 0.1}}, cost, 0.3, {"a": [0.1 + 0.2]}) == {"a": 0.3}


def test_ratios_beyond_what_was_measured_are_not_used():
    cost = lambda ratios: 100 * (1 - ratios["a"])  # noqa: E731
    with pytest.raises(UnreachableError, match=r"remove 30\.0%\."):
        ratios_for_budget({"a": {0.3: 0.0, 0.4: math.inf}}, cost, 0.5, {"a": [0.3, 0.35, 0.4, 0.6]})


@pytest.mark.parametrize("target", [1, -0.1, math.nan, None])
def test_a_share_is_a_share(target):
    with pytest.raises(InputError, match="share to remove"):
        ratios_for_budget({"a": {0.5: 0.1}}, lambda ratios: 1.0, target, {"a": [0.5]})


def test_candidates_are_ratios_of_measured_groups():
    with pytest.raises(InputError, match="Nothing was measured for a"):
        ratios_for_budget({}, lambda ratios: 1.0, 0.5, {"a": [0.5]})
    with pytest.raises(InputError, match=r"candidate ratios of a .* not 1\.5"):
        ratios_for_budget({"a": {0.5: 0.1}}, lambda ratios: 1.0, 0.5, {"a": [1.5]})


def test_a_large_network_takes_few_costs():
    curves, cost, candidates = chain(9, 60, 9)
    calls = []
    ratios_for_budget(curves, lambda ratios: calls.append(1) or cost(ratios), 0.5, candidates)
    assert len(calls) < 60_000
