"""Plans as data: what they say about grouped convolutions, and that JSON keeps all of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from networks import SHAPE, ResNeXtBlock, SmallNet, made
from paddle import nn

from dysens import DygraphSensitivity
from dysens.groups import Removal, roles_of
from dysens.pruning import CannotCutError, PrunePlan, TensorCut, plan_for


def removal(role, inside=(), out=()):
    found = {role.inputs: np.array(inside, int), role.outputs: np.array(out, int)}
    return Removal({port: channels for port, channels in found.items() if len(channels)})


@pytest.fixture
def grouped():
    """Four groups of 4 inputs and 6 outputs."""
    return roles_of(made(ResNeXtBlock))["grouped"]


def test_whole_groups(grouped):
    plan = plan_for({"grouped": grouped}, removal(grouped, inside=range(4, 8), out=range(6, 12)))
    assert {(cut.tensor, cut.axis) for cut in plan.cuts} == {("grouped.weight", 0), ("grouped.bias", 0)}
    assert plan.attributes == {"grouped": {"_in_channels": 12, "_out_channels": 18, "_groups": 3}}


def test_the_same_number_from_each_group(grouped):
    plan = plan_for({"grouped": grouped}, removal(grouped, inside=[0, 5, 10, 15]))
    (cut,) = plan.cuts
    assert (cut.axis, cut.blocks, cut.removed) == (1, 4, (0, 5, 10, 15))
    assert plan.attributes == {"grouped": {"_in_channels": 12}}


@pytest.mark.parametrize(
    ("inside", "out"),
    [
        ([0], []),
        ([], [0]),
        ([0, 4, 8], []),
        (range(4), []),
        (range(4), range(5)),
        ([0, 1, 4], [0, 6, 12, 18]),
        (range(16), []),
    ],
)
def test_groups_that_would_be_unequal_are_refused(grouped, inside, out):
    with pytest.raises(CannotCutError, match="'grouped' would keep unequal numbers"):
        plan_for({"grouped": grouped}, removal(grouped, inside, out))


def test_nothing_removed_is_an_empty_plan(grouped):
    assert plan_for({"grouped": grouped}, {}) == PrunePlan()


def test_json_keeps_everything_but_masks():
    ds = DygraphSensitivity(made(SmallNet), SHAPE)
    with ds.pruned({group.name: 0.5 for group in ds.groups}) as outcome:
        plan = outcome.plan
    again = PrunePlan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again.cuts == plan.cuts
    assert again.attributes == plan.attributes
    assert again.masks == ()


def test_blocks_survive_json():
    plan = PrunePlan((TensorCut("a.weight", 1, 8, (0, 4), blocks=2),))
    assert PrunePlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_an_order_survives_json_and_is_only_written_where_there_is_one():
    plan = PrunePlan((TensorCut("a.weight", 0, 4, (1,), order=(2, 0, 3)), TensorCut("b.weight", 0, 4, (1,))))
    written = json.loads(json.dumps(plan.to_json()))
    assert PrunePlan.from_json(written) == plan
    assert [cut.get("order") for cut in written["cuts"]] == [[2, 0, 3], None]
    assert plan.reorders
    assert plan.cuts[0].kept.tolist() == [2, 0, 3]


def test_a_plan_inside_another_network():
    plan = PrunePlan(
        (TensorCut("conv.weight", 0, 8, (1,)),), {"conv": {"_out_channels": 7}, "": {"width": 7}}
    )
    inside = plan.inside("student")
    assert inside.cuts[0].tensor == "student.conv.weight"
    assert set(inside.attributes) == {"student.conv", "student"}
    assert plan.inside("") is plan


def test_what_is_kept():
    assert TensorCut("a", 0, 5, (1, 3)).kept.tolist() == [0, 2, 4]
    assert TensorCut("a", 0, 3, ()).kept.tolist() == [0, 1, 2]


def test_blocks_that_remember_a_width_learn_the_new_one():
    class Block(nn.Layer):
        def __init__(self):
            super().__init__()
            self.in_channels, self.out_channels = 8, 6
            self.conv = nn.Conv2D(8, 6, 1)

        def forward(self, x):
            return self.conv(x)

    model = nn.Sequential(nn.Conv2D(3, 8, 1), nn.ReLU(), Block(), nn.ReLU(), nn.Conv2D(6, 2, 1))
    ds = DygraphSensitivity(model, SHAPE)
    ds.prune_vars({"0.weight": 0.5, "2.conv.weight": 0.5})
    assert (model[2].in_channels, model[2].out_channels) == (4, 3)
    ds.restore()
    assert (model[2].in_channels, model[2].out_channels) == (8, 6)
