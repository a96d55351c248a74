"""What a sweep is going to take, said before it starts."""

from __future__ import annotations

import json

import pytest

from dysens import DygraphSensitivity, RunOptions
from dysens.errors import InputError

from .digits import SHAPE, evaluator, trained


@pytest.fixture(scope="module")
def ds():
    return DygraphSensitivity(trained(), SHAPE)


def test_counts_what_a_sweep_then_measures(ds, tmp_path):
    journal, measured = tmp_path / "s.jsonl", evaluator()
    told = ds.forecast(measured, [0.3, 0.5], options=RunOptions(fast="off"))
    assert not journal.exists()
    found = ds.sensitive(measured, [0.3, 0.5], sen_file=journal, progress=False, fast="off")
    assert told.points == len(found.points)
    assert told.groups == len(found)
    assert told.known == 0
    assert told.runtime == "live"
    assert told.evaluations == len([p for p in found.points if p.seconds])
    assert told.seconds == pytest.approx(told.seconds_a_point * told.evaluations)
    assert told.seconds_a_point > 0
    assert told.memory_mib > 50
    assert journal.stat().st_size / 1024 == pytest.approx(told.disk_kib, rel=0.5)


def test_what_the_journal_holds_is_not_counted_again(ds, tmp_path):
    journal = tmp_path / "s.jsonl"
    ds.sensitive(evaluator(), [0.3], sen_file=journal, progress=False, fast="off")
    before = journal.read_bytes()
    told = ds.forecast(evaluator(), [0.3, 0.5], sen_file=journal, options=RunOptions(fast="off"))
    assert told.known * 2 == told.points
    assert told.evaluations <= told.points - told.known
    assert journal.read_bytes() == before


def test_ratios_that_remove_the_same_units_are_one_evaluation(ds):
    told = ds.forecast(evaluator(), [0.5, 0.5001], options=RunOptions(fast="off"))
    assert told.points == 2 * told.groups
    assert told.evaluations == told.groups
    assert f"{told.groups} remove the same channels as another ratio" in str(told)


def test_workers_share_the_time(ds):
    alone = ds.forecast(evaluator(), [0.5], options=RunOptions(fast="off"))
    shared = ds.forecast(evaluator(), [0.5], options=RunOptions(2, "net:build", fast="off"))
    assert shared.seconds == pytest.approx(shared.seconds_a_point * alone.evaluations / 2)
    assert "2 workers" in str(shared)


def test_as_words_and_as_json(ds):
    told = ds.forecast(evaluator(), [0.5], options=RunOptions(fast="off"))
    assert json.loads(json.dumps(told.to_json()))["points"] == told.points
    for word in ("points", "seconds a point", "in all", "MiB", "KiB"):
        assert word in str(told)


def test_bad_ratios_are_refused(ds):
    with pytest.raises(InputError):
        ds.forecast(evaluator(), [1.5])
