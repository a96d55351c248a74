"""How a sweep runs: in one object, or argument by argument."""

from __future__ import annotations

import pytest
from networks import SHAPE, SmallNet, made

from dysens import DygraphSensitivity, RunOptions
from dysens.errors import InputError
from dysens.sweep import run_options


@pytest.fixture(scope="module")
def ds():
    return DygraphSensitivity(made(SmallNet), SHAPE)


@pytest.mark.parametrize("how", ["sensitive", "search"])
def test_one_object_says_what_single_arguments_say(ds, how):
    def points_seen(**options):
        seen = []
        observer = {"observer": seen.append}
        options = (
            {"options": RunOptions(**options, **observer)}
            if options.pop("as_one", True)
            else {**options, **observer}
        )
        getattr(ds, how)(lambda: 1.0, ratios=[0.5], target_vars="point.weight", progress=False, **options)
        return [(point.path, point.ratio) for point in seen]

    assert points_seen(fast="off") == points_seen(fast="off", as_one=False) != []


def test_the_same_in_both_places_is_no_contradiction():
    options = RunOptions(fast="off", cache_gib=3.0)
    assert run_options(options, fast="off", cache_gib=3.0, workers=1) is options
    assert run_options(None, fast="off", cache_gib=3.0) == options


@pytest.mark.parametrize("how", ["sensitive", "search"])
def test_a_contradiction_is_said(ds, how):
    with pytest.raises(InputError, match="fast is 'on', and 'off' in options: give it in one place"):
        getattr(ds, how)(lambda: 1.0, fast="on", options=RunOptions(fast="off"))
    with pytest.raises(InputError, match=r"cache_gib is 3\.0, and 2\.0 in options"):
        getattr(ds, how)(lambda: 1.0, cache_gib=3.0, options=RunOptions())
    with pytest.raises(InputError, match=r"options have to be a dysens\.RunOptions, not {'fast': 'off'}"):
        getattr(ds, how)(lambda: 1.0, options={"fast": "off"})


@pytest.mark.parametrize("workers", [0, -1, 1.5, "2", True, None])
def test_workers_are_counted(ds, workers):
    with pytest.raises(InputError, match="Workers must be a whole number of processes, at least 1"):
        RunOptions(workers=workers)
    with pytest.raises(InputError, match="Workers must be a whole number"):
        ds.sensitive(lambda: 1.0, workers=workers)


def test_several_workers_need_a_build():
    with pytest.raises(InputError, match="give build"):
        RunOptions(workers=2)
