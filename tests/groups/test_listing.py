from __future__ import annotations

import pytest
from networks import SHAPE, SmallNet, Unequal, made

from dysens import DygraphSensitivity
from dysens.errors import InputError
from dysens.groups import GroupList, GroupNames, Unprunable, matching

KNOWN = {"conv2d_0.w_0": "stem.0.weight", "conv2d_1.w_0": "body.0.weight", "conv2d_10.w_0": "body.1.weight"}


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        ("conv2d_0.w_0", {"stem.0.weight"}),
        (["body.0.weight"], {"body.0.weight"}),
        (("body.*", "conv2d_0.w_0"), {"body.0.weight", "body.1.weight", "stem.0.weight"}),
        ("conv2d_1*", {"body.0.weight", "body.1.weight"}),
        ("conv2d_?.w_0", {"stem.0.weight", "body.0.weight"}),
        ("*", set(KNOWN.values())),
        ([], set()),
        ((), set()),
        (None, set()),
    ],
)
def test_names_paths_and_patterns(patterns, found):
    assert matching(patterns, KNOWN, "skip_vars") == found


@pytest.mark.parametrize("wrong", ["conv2d_2.w_0", "stem", "Body.*", "", 3])
def test_what_fits_nothing_is_said(wrong):
    with pytest.raises(InputError, match="in skip_vars names no parameter of this model"):
        matching([wrong], KNOWN, "skip_vars")


def test_one_wrong_name_among_right_ones_is_said():
    with pytest.raises(InputError, match=r'"body\.0\.wieght".*did you mean "body\.0\.weight"'):
        matching(["stem.0.weight", "body.0.wieght"], KNOWN, "target_vars")


def test_equal_reasons_are_printed_once():
    reasons = Unprunable({"a": "layer 'x' is in the way", "b": "layer 'x' is in the way", "c": "other"})
    assert reasons.by_reason() == {"layer 'x' is in the way": ["a", "b"], "other": ["c"]}
    assert str(reasons).count("in the way") == 1
    assert str(Unprunable()) == "nothing: every 4-D weight is in a group"


def test_reasons_that_differ_only_in_names_and_numbers_are_one():
    reasons = Unprunable(
        {
            "a": "layer 'x.0' gets 3 of 8 from 'z'",
            "b": "layer 'x.1' gets 5 of 8 from 'z'",
            "c": "layer 'x.1' isn't there",
        }
    )
    assert reasons.by_reason() == {
        "layer '...' gets ... of 8 from 'z'": ["a", "b"],
        "layer 'x.1' isn't there": ["c"],
    }


def test_an_empty_list_prints_too():
    assert str(GroupList()) == "no groups"
    assert list(GroupList().to_frame().columns)[:2] == ["param", "path"]


# What people call groups


def named_groups(network):
    model = made(network)
    ds = DygraphSensitivity(model, SHAPE)
    known = {tensor.name: path for path, tensor in model.named_parameters() if tensor.ndim == 4}
    return GroupNames(ds.groups, known, ds.unprunable), ds.groups


def test_any_weight_that_makes_the_channels_names_the_group():
    names, groups = named_groups(Unequal)
    assert len(groups[0].scored) == 3
    wanted = {group.name: 0.5 for group in groups[:1]}
    for name in (groups[0].name, *(piece.tensor for _, piece in groups[0].scored)):
        assert names.ratios({name: 0.5}) == wanted


def test_names_that_name_no_group_are_answered():
    names, _ = named_groups(Unequal)
    with pytest.raises(InputError, match=r'"head\.weight" cannot be pruned: .*output'):
        names.ratios({"head.weight": 0.5})
    with pytest.raises(InputError, match=r'"narow\.weight" names no group .* did you mean "narrow\.weight"'):
        names.ratios({"narow.weight": 0.5})
    with pytest.raises(InputError, match=r"ratio of narrow\.weight is 1\.5"):
        names.ratios({"narrow.weight": 1.5})


def test_groups_are_selected_in_parameter_order():
    names, groups = named_groups(SmallNet)
    assert names.selected(None, ()) == groups
    assert names.selected([group.path for group in reversed(groups)], None) == groups
    with pytest.raises(InputError, match="leave no group to sweep"):
        names.selected(None, [group.path for group in groups])
