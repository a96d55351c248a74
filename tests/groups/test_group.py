"""Choosing units: how many, which, and never a layer's last channel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dysens.groups import ChannelGroup, Port, Removal, Slice, merge_removals


def port(layer: str, side: str, size: int) -> Port:
    return Port(layer, side, size, (Slice(f"{layer}.weight", 0 if side == "out" else 1),))


def group(units: dict[Port, list[int]], blocks: list[list[int]] | None = None) -> ChannelGroup:
    size = max(max(unit) for unit in units.values()) + 1
    makers = [p for p in units if p.side == "out"]
    return ChannelGroup(
        name="conv2d_0.w_0",
        path=f"{makers[0].layer}.weight",
        channels=makers[0].size,
        members=(),
        units={p: np.array(unit) for p, unit in units.items()},
        blocks=tuple(map(np.array, blocks or [list(range(size))])),
        rule="any channels",
        scored=tuple((p, p.slices[0]) for p in makers),
    )


def plain(size: int) -> ChannelGroup:
    return group({port("a", "out", size): list(range(size)), port("b", "in", size): list(range(size))})


@given(st.integers(2, 40), st.floats(0, 0.999))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_the_number_follows_paddleslims_rule(size, ratio):
    scores = np.random.default_rng(size).random(size)
    chosen = plain(size).weakest(scores, ratio)
    assert len(chosen) == min(round(size * ratio), size - 1)
    assert set(chosen) == set(np.argsort(scores)[: len(chosen)])


def test_equal_scores_go_in_order():
    assert plain(6).weakest(np.zeros(6), 0.5).tolist() == [0, 1, 2]


def test_a_higher_ratio_takes_what_a_lower_one_takes():
    scores = np.random.default_rng(0).random(20)
    taken = [set(plain(20).weakest(scores, ratio)) for ratio in np.linspace(0, 0.99, 30)]
    assert all(less <= more for less, more in zip(taken, taken[1:]))


def test_blocks_lose_the_same_number():
    both = group(
        {port("a", "out", 6): [0, 1, 2, 3, 4, 5], port("b", "in", 6): [0, 1, 2, 3, 4, 5]},
        blocks=[[0, 1, 2], [3, 4, 5]],
    )
    # The first block has all the low scores, and still loses no more than the second.
    assert both.weakest(np.arange(6), 1 / 3).tolist() == [0, 3]
    assert both.weakest(np.arange(6), 0.99).tolist() == [0, 1, 3, 4]


def test_no_port_loses_its_last_channel():
    """Two sources side by side: the narrow one has the lowest scores, and keeps one."""
    narrow, wide, end = port("a", "out", 2), port("b", "out", 4), port("c", "in", 6)
    both = group({narrow: [0, 1], wide: [2, 3, 4, 5], end: [0, 1, 2, 3, 4, 5]})
    assert both.weakest(np.arange(6), 0.5).tolist() == [0, 2, 3]
    assert both.weakest(np.arange(6), 0.99).tolist() == [0, 2, 3, 4]


def test_blocks_stay_balanced_where_a_channel_is_spared():
    first, second = port("a", "out", 2), port("b", "out", 2)
    both = group({first: [0, 1], second: [2, 3], port("c", "in", 1): [2]}, blocks=[[0, 1], [2, 3]])
    # Unit 2 is all that layer c has, so 3 goes instead.
    assert both.weakest(np.arange(4), 0.5).tolist() == [0, 3]


@given(st.data())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_every_port_keeps_something_whatever_the_ratio(data):
    size = data.draw(st.integers(2, 12))
    units = {port("a", "out", size): list(range(size))}
    for index in range(data.draw(st.integers(1, 4))):
        part = data.draw(st.lists(st.integers(-1, size - 1), min_size=1, max_size=8))
        units[port(f"p{index}", "in", len(part))] = part
    some = group(units)
    scores = np.array(data.draw(st.lists(st.floats(0, 1), min_size=size, max_size=size)))
    gone = some.weakest(scores, data.draw(st.floats(0, 0.999)))
    assert len(set(gone)) == len(gone)
    for unit in some.units.values():
        own = unit[unit >= 0]
        assert len(own) == 0 or not np.isin(own, gone).all()


def test_removal_names_the_channels_of_every_port():
    a, b = port("a", "out", 3), port("b", "in", 6)
    some = group({a: [0, 1, 2], b: [0, 0, 1, 1, -1, 2]})
    gone = some.removal([1])
    assert {p.layer: channels.tolist() for p, channels in gone.items()} == {"a": [1], "b": [2, 3]}
    assert some.removal([]) == {}


def test_channels_left_are_those_of_the_first_weight():
    narrow, wide = port("a", "out", 2), port("b", "out", 4)
    both = group({narrow: [0, 1], wide: [2, 3, 4, 5]})
    assert both.channels_left(np.array([2, 3])) == 2
    assert both.channels_left(np.array([0, 3])) == 1


def test_units_are_scored_by_the_mean_of_their_first_weight():
    first, second = port("a", "out", 4), port("b", "out", 3)
    both = group({first: [0, 0, 1, -1], second: [0, 1, 2]})
    scores = both.unit_scores({first: np.array([1.0, 3.0, 5.0, 9.0]), second: np.array([70.0, 80.0, 90.0])})
    assert scores.tolist() == [2.0, 5.0, 90.0]


def test_kinds_are_told_apart_by_the_layers_they_reach():
    a, b, c = port("a", "out", 4), port("b", "in", 2), port("c", "in", 2)
    kinds = group({a: [0, 1, 2, 3], b: [0, 1], c: [2, 3]}).kinds()
    assert sorted(kind.tolist() for kind in kinds) == [[0, 1], [2, 3]]


def test_removals_of_several_groups_join_at_a_shared_port():
    shared = port("norm", "in", 6)
    joined = merge_removals(
        [
            Removal({shared: np.array([0, 2])}, {shared: np.array([3, 1, 4, 5])}),
            Removal({shared: np.array([4]), port("b", "out", 3): np.array([1])}),
        ]
    )
    assert joined[shared].tolist() == [0, 2, 4]
    assert joined.kept(shared).tolist() == [3, 1, 5]
    assert joined.kept(port("b", "out", 3)).tolist() == [0, 2]
    assert len(joined) == 2


def test_a_group_prints_what_it_is():
    text = str(plain(6))
    assert "conv2d_0.w_0 (a.weight): 6 channels, 6 units, any channels" in text
    assert plain(6).layers == ["a", "b"]
    assert plain(6).filters == ["a.weight"]
    with pytest.raises(AttributeError):
        plain(6).name = "other"
