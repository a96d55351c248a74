"""An engine of one's own: a function or an object that finds groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from networks import SHAPE, SmallNet, made, outputs
from states import assert_same, picture

from dysens import DygraphSensitivity
from dysens.engines import Analysis, engine_for
from dysens.errors import InputError
from dysens.groups import roles_of


@pytest.fixture
def model():
    return made(SmallNet)


class WideGroups:
    """Offers what the native engine finds, if it is wide enough; and leaves its marks on the model."""

    def __init__(self, least: int) -> None:
        self._least = least

    def __call__(self, model, views):
        found = engine_for("native")(model, views)
        model.train()
        model.point.weight.set_value(model.point.weight * 0)
        return replace(found, groups=[group for group in found.groups if group.channels >= self._least])


def test_an_object_finds_the_groups(model):
    before = picture(model)
    ds = DygraphSensitivity(model, SHAPE, engine=WideGroups(12))
    assert_same(before, picture(model))
    assert [group.path for group in ds.groups] == ["body.0.0.weight", "point.weight"]
    assert ds.explain("stem.0.weight") == (
        "stem.0.weight is not pruned: engine WideGroups offers no group for it."
    )
    whole = outputs(model).shape
    ds.prune_vars({"point.weight": 0.5})
    assert model.point.weight.shape[0] == 8
    assert outputs(model).shape == whole


def test_a_group_that_does_not_stand_the_proof_is_not_offered(model):
    def forgetful(model, views):
        """Says that the channels of point are read by squeeze alone."""
        found = engine_for("native")(model, views)
        (point,) = (group for group in found.groups if group.path == "point.weight")
        units = {port: unit for port, unit in point.units.items() if port.layer != "fc"}
        return Analysis([replace(point, units=units)], {}, found.roles)

    ds = DygraphSensitivity(model, SHAPE, engine=forgetful)
    assert not ds.groups
    assert "the proof fails when layer 'point' is cut" in ds.explain("point.weight")


def test_an_engine_may_choose_the_units_too(model):
    def last_first(model, views):
        found = engine_for("native")(model, views)
        return replace(
            found, choice=lambda tensors, criterion: lambda group, ratio: np.arange(group.size)[-2:]
        )

    plan = DygraphSensitivity(model, SHAPE, engine=last_first).prune_vars({"point.weight": 0.1}).plan
    assert next(cut.removed for cut in plan.cuts if cut.tensor == "point.weight") == (14, 15)


def finds_a_list(model, views):
    return [roles_of(model)]


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (finds_a_list, r"engine finds_a_list has to return a dysens\.engines\.Analysis, not a list"),
        (3, "engine must be one of auto, native, paddleslim, or take a model and its views, not 3"),
        ("nativ", 'There is no engine "nativ"; did you mean "native"'),
        ("zzz", "there are auto, native, paddleslim"),
    ],
)
def test_what_is_no_engine_is_said(model, engine, said):
    before = picture(model)
    with pytest.raises(InputError, match=said):
        DygraphSensitivity(model, SHAPE, engine=engine)
    assert_same(before, picture(model))
