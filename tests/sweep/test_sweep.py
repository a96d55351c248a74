"""The order of a sweep, and which ratios it takes."""

from __future__ import annotations

import pytest

from dysens import DygraphSensitivity
from dysens.errors import InputError
from dysens.sweep import checked_ratios
from dysens.sweep._sweep import DEFAULT_RATIOS, coarse_first

from .sweeping import SHAPE, Closeness, network


class Interrupted(Exception):
    pass


def test_coarse_ratios_first():
    assert coarse_first(DEFAULT_RATIOS)[:3] == [0.5, 0.2, 0.7]
    assert sorted(coarse_first(DEFAULT_RATIOS)) == list(DEFAULT_RATIOS)


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [([], []), ([0.3], [0.3]), ([0.4, 0.2, 0.4], [0.2, 0.4]), ((0.9, 0.1), [0.1, 0.9])],
)
def test_few_and_repeated_ones(ratios, expected):
    assert coarse_first(ratios) == expected


def test_an_interrupted_sweep_has_the_middle_of_every_group(tmp_path):
    model = network()
    closeness = Closeness(model)
    calls = []

    def breaks():
        calls.append(1)
        if len(calls) > 7:  # the baseline, the middle of four groups, and two more
            raise Interrupted
        return closeness()

    ds = DygraphSensitivity(model, SHAPE)
    journal = tmp_path / "s.jsonl"
    with pytest.raises(Interrupted):
        ds.sensitive(breaks, sen_file=journal, progress=False, fast="off")
    lines = journal.read_text()
    assert all(f'"{group.path}"' in lines for group in ds.groups)
    sens = ds.sensitive(closeness, sen_file=journal, progress=False, fast="off", ratios=[0.5], force=True)
    assert [p.ratio for p in sens.points] == [0.5] * 4
    assert len(calls) == 8


@pytest.mark.parametrize(
    ("ratios", "said"),
    [([], "ratios is empty"), ([1.0], "under 1"), ([-0.1], "at least 0"), (["a"], "number")],
)
def test_bad_ratios_are_said(ratios, said):
    with pytest.raises(InputError, match=said):
        checked_ratios(ratios)


def test_one_ratio_and_none():
    assert checked_ratios(0.5) == [0.5]
    assert checked_ratios(None) == list(DEFAULT_RATIOS)
