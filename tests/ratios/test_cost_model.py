"""Costs as plain data: what they say of any ratios is what the cut network has."""

from __future__ import annotations

import json
from functools import cache

import networks
import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import SHAPE, made
from random_networks import PLAIN, RandomNet, drawn, specs

from dysens import DygraphSensitivity
from dysens.costs import Costs, GroupCosts, Term, Width, cost_of
from dysens.errors import InputError
from dysens.groups import roles_of
from dysens.model import tensors_by_path
from dysens.ratios._cost_table import AnyCost, TermCost

SMALL = ("SmallNet", "TinyNet", "TextNet", "ResNeXtBlock", "ShuffleNet", "Unequal")
RATIOS = st.lists(st.one_of(st.floats(0, 0.999), st.sampled_from([0.0, 0.125, 0.5])), min_size=1, max_size=6)
COMMON = (*PLAIN, "grouped", "depthwise", "split", "shuffle", "transposed")


@cache
def small(name: str) -> tuple[paddle.nn.Layer, DygraphSensitivity, Costs]:
    model = made(getattr(networks, name))
    ds = DygraphSensitivity(model, SHAPE)
    return model, ds, ds.costs()


def check(model: paddle.nn.Layer, ds: DygraphSensitivity, costs: Costs, ratios: list[float]) -> None:
    """The cut network has these parameters, and its layers with weights these FLOPs; the others count as they were."""
    chosen = {group.name: ratios[i % len(ratios)] for i, group in enumerate(ds.groups)}
    before, weighted = cost_of(model, ds._views[0]).by_layer, roles_of(model)
    with ds.pruned(chosen) as outcome:
        after = cost_of(model, ds._views[0]).by_layer
    assert costs.params(chosen) == outcome.params_after
    left = sum(after[layer] if layer in weighted else count for layer, count in before.items())
    assert costs.flops(chosen) == pytest.approx(left, rel=1e-9)
    assert [costs.group(name).channels_left(chosen[name]) for name, *_ in outcome.widths] == [
        after for *_, after in outcome.widths
    ]


@pytest.mark.parametrize("name", SMALL)
@settings(max_examples=12, deadline=None, derandomize=True, database=None)
@given(ratios=RATIOS)
def test_small_networks_cost_what_the_cut_has(name: str, ratios: list[float]) -> None:
    model, ds, costs = small(name)
    check(model, ds, costs, ratios)


@drawn(25)
@given(spec=specs(COMMON), ratios=RATIOS)
def test_random_networks_cost_what_the_cut_has(spec, ratios: list[float]) -> None:
    model = RandomNet(spec)
    model.eval()
    ds = DygraphSensitivity(model, [1, 3, 8, 8], criterion="l1")
    costs = ds.costs()
    check(model, ds, costs, ratios)
    assert Costs.from_json(json.loads(json.dumps(costs.to_json()))) == costs


@pytest.mark.parametrize("name", SMALL)
@settings(max_examples=15, deadline=None, derandomize=True, database=None)
@given(places=st.lists(st.integers(0, 39), min_size=8, max_size=8), group=st.integers(0, 7))
def test_a_search_sees_the_same_costs(name: str, places: list[int], group: int) -> None:
    *_, costs = small(name)
    ratios = {each.name: each.candidates() for each in costs.groups}
    choice = tuple(place % len(options) for place, options in zip(places, ratios.values()))
    group %= len(ratios)
    for coefficients, cost in (
        ([term.flops for term in costs.terms], costs.flops),
        ([term.params for term in costs.terms], costs.params),
    ):
        fast, plain = TermCost(ratios, costs, coefficients), AnyCost(ratios, cost)
        assert fast.along(choice, group) == pytest.approx(plain.along(choice, group), rel=1e-12)
        assert fast.of(choice) == pytest.approx(plain.of(choice), rel=1e-12)
        nothing = (0,) * len(choice)
        assert fast.of(nothing) == pytest.approx(cost({}), rel=1e-12)


def test_units_that_are_not_alike_lose_by_a_table() -> None:
    *_, costs = small("Unequal")
    (group,) = costs.groups
    tables = [
        losing for width in costs.widths for losing in width.losing.values() if not isinstance(losing, int)
    ]
    assert group.steps == 16
    assert all(len(table) == 16 and list(table) == sorted(table) for table in tables)
    assert tables


def test_a_tied_weight_is_one_weight() -> None:
    class Tied(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.first = paddle.nn.Conv2D(3, 8, 1)
            self.middle = paddle.nn.Conv2D(8, 8, 1)
            self.again = paddle.nn.Conv2D(8, 8, 1)
            self.again.weight = self.middle.weight
            self.last = paddle.nn.Conv2D(8, 2, 1)

        def forward(self, x):
            return self.last(self.again(self.middle(self.first(x))))

    model = Tied()
    costs = DygraphSensitivity(model, SHAPE).costs()
    tensors = {id(tensor): tensor for tensor in tensors_by_path(model).values()}
    assert costs.whole_params == sum(int(np.prod(tensor.shape)) for tensor in tensors.values())


def simple(losing=1, steps: int = 8) -> Costs:
    group = GroupCosts("conv2d_0.w_0", "conv.weight", 8, steps, 1, losing)
    return Costs((group,), (Width(8, {0: losing}),), (Term(100.0, 9, (0,)), Term(5.0, 1, ())))


def test_halves_round_to_even_and_one_unit_is_left() -> None:
    group = simple().groups[0]
    assert [group.step_at(ratio) for ratio in (0.0625, 0.1875, 0.3125, 0.99, 1.0)] == [0, 2, 2, 7, 7]


def test_a_group_that_nobody_knows_is_named() -> None:
    with pytest.raises(InputError, match=r'"conv2d_1.w_0" costs; did you mean "conv2d_0.w_0"'):
        simple().flops({"conv2d_1.w_0": 0.5})


def test_paths_and_names_both_find_a_group() -> None:
    costs = simple()
    assert costs.flops({"conv.weight": 0.5}) == costs.flops({"conv2d_0.w_0": 0.5}) == 405
    assert costs.params({}) == costs.whole_params == 73


def test_a_name_that_moved_to_another_layer_does_not_lead_astray() -> None:
    *_, costs = small("SmallNet")
    first, second = costs.groups[:2]
    moved = costs.renamed({second.path: first.name})
    assert moved.group(first.name).path == second.path
    assert moved.group(first.path).path == first.path


@pytest.mark.parametrize(
    "change",
    [
        {"groups": None},
        {"groups": [["a", "b", 8, 8, 1]]},
        {"groups": [["a", 1, 8, 8, 1, 1]]},
        {"groups": [["a", "b", 8, 0, 1, 1]]},
        {"groups": [["a", "b", 8, 8, True, 1]]},
        {"groups": [["a", "b", 8, 8, 1, 2]]},
        {"groups": [["a", "b", 8, 8, 1, [0, 1, 2]]]},
        {"groups": [["a", "b", 8, 8, 1, [0, 1, 2, 3, 4, 5, 6, 9]]]},
        {"widths": [[8, [[1, 1]]]]},
        {"widths": [[8, [0, 1]]]},
        {"widths": [[8.5, [[0, 1]]]]},
        {"terms": [[1.0, 1, [1]]]},
        {"terms": [[-1.0, 1, [0]]]},
        {"terms": [["1", 1, [0]]]},
        {"terms": [[1.0, 1.5, [0]]]},
        {"terms": [[1.0, 1, 0]]},
    ],
)
def test_json_that_is_no_costs_is_refused(change: dict) -> None:
    with pytest.raises(InputError):
        Costs.from_json({**simple().to_json(), **change})


@pytest.mark.parametrize("data", [None, [], "costs", 3, {}])
def test_something_else_is_refused(data: object) -> None:
    with pytest.raises(InputError):
        Costs.from_json(data)
