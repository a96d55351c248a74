"""Searching instead of sweeping finds what a sweep would, with less, and says how sure it is."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import numpy as np
import paddle
import pytest
from states import assert_same, picture

from dysens import DygraphSensitivity, Sensitivities
from dysens.errors import InputError, JournalError
from dysens.evaluators import MetricEvaluator, evaluate

from .digits import SHAPE, batches, evaluator, trained
from .sweeping import SHAPE as SMALL_SHAPE
from .sweeping import network

TARGET = 0.02
GRID = [round(0.1 * step, 1) for step in range(1, 10)]


@pytest.fixture(scope="module")
def ds():
    return DygraphSensitivity(trained(), SHAPE)


@pytest.fixture(scope="module")
def swept(ds, tmp_path_factory):
    """A complete journal."""
    journal = tmp_path_factory.mktemp("swept") / "s.jsonl"
    ds.sensitive(evaluator(), sen_file=journal, progress=False, fast="off")
    return journal


@pytest.fixture(scope="module")
def sweep(swept):
    """What all data say."""
    return Sensitivities.load(swept)


def shares(journal):
    """Group and ratio of every line, with the share of the data behind it."""
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    return {(r["param"], r["ratio"]): r.get("share", 1.0) for r in records if "ratio" in r and "loss" in r}


def steps_apart(found, sweep):
    """For each group, how many steps of the grid the answer is from the next one that all data allow."""
    apart = []
    for group in found.groups:
        within = [0.0, *(ratio for ratio, loss in sweep[group.name].items() if loss <= TARGET)]
        # Where losses do not rise throughout, each end of a stretch within the target is an answer.
        grid = [0.0, *GRID]
        ends = [r for r in within if r == grid[-1] or grid[grid.index(r) + 1] not in within]
        apart.append(min(abs(grid.index(end) - grid.index(group.ratio)) for end in ends))
    return apart


def test_finds_what_a_sweep_finds_with_less(ds, sweep):
    found = ds.search(evaluator(), TARGET, progress=False, fast="off")
    assert [group.name for group in found.groups] == [group.name for group in ds.groups]
    assert sum(step <= 1 for step in steps_apart(found, sweep)) >= len(found.groups) - 1
    assert found.passes < 0.35 * len(sweep.points)
    assert found.ratios == {g.name: g.ratio for g in found.groups if g.ratio > 0}
    assert found.baseline == sweep.baseline
    for group in found.groups:
        assert group.interval[0] <= group.loss <= group.interval[1]
        assert 0 < group.share <= 1
        assert group.beyond is None or group.beyond == pytest.approx(group.ratio + 0.1)


def test_a_function_sees_all_data_and_the_answer_is_exact(sweep):
    model = trained()
    ds = DygraphSensitivity(model, SHAPE)
    scores = evaluator()
    found = ds.search(lambda: evaluate(model, scores), TARGET, progress=False, fast="off")
    assert steps_apart(found, sweep) == [0] * len(found.groups)
    for group in found.groups:
        assert group.share == 1
        assert group.interval == (group.loss, group.loss)
        assert group.loss == pytest.approx(sweep[group.name][group.ratio] if group.ratio else 0.0, abs=1e-6)
        assert group.beyond is None or sweep[group.name][group.beyond] > TARGET


def test_more_confidence_takes_more_data(ds):
    some, most = (
        ds.search(evaluator(), TARGET, progress=False, fast="off", confidence=c, spot_checks=0)
        for c in (0.5, 0.9999)
    )
    assert some.passes < most.passes
    assert np.mean([g.share for g in some.groups]) < np.mean([g.share for g in most.groups])
    assert (some.confidence, most.confidence) == (0.5, 0.9999)


class Counting(MetricEvaluator):
    """Knows how many samples it has measured."""

    measured = 0

    def measure(self, outputs, batch):
        self.measured += len(batch[0])
        return super().measure(outputs, batch)


def test_a_look_goes_on_where_the_last_one_ended(ds):
    """No sample is measured twice: what the passes add up to is all that was measured."""
    counting = Counting(batches(), paddle.metric.Accuracy())
    found = ds.search(counting, TARGET, progress=False, fast="off", spot_checks=0)
    sizes = [len(batch[0]) for batch in batches()]
    # The first batch is measured twice, to see whether it scores the same.
    assert counting.measured == pytest.approx(sum(sizes) * (1 + found.passes) + 2 * sizes[0])


def test_few_looks_if_the_metric_takes_long(monkeypatch):
    """Looking computes the metric dozens of times; where that takes longer than measuring, all data are measured at once."""
    seconds = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: seconds)  # a clock that only the metric moves

    class Slow(MetricEvaluator):
        scored = 0

        def score(self, measurements):
            nonlocal seconds
            self.scored += 1
            seconds += 0.2
            return super().score(measurements)

        def measure(self, outputs, batch):
            nonlocal seconds
            seconds += 0.001
            return super().measure(outputs, batch)

    slow = Slow(batches(), paddle.metric.Accuracy())
    ds = DygraphSensitivity(trained(), SHAPE)
    found = ds.search(slow, TARGET, target_vars="2.*", progress=False, fast="off", spot_checks=0)
    assert found.passes == round(found.passes)
    assert slow.scored <= 2 + 2 * found.passes + 1


class TestJournal:
    def test_partial_points_are_marked_and_never_pass_for_full(self, ds, sweep, tmp_path):
        journal = tmp_path / "s.jsonl"
        ds.search(evaluator(), TARGET, sen_file=journal, progress=False, fast="off")
        full = {point for point, share in shares(journal).items() if share == 1}
        assert 0 < len(full) < len(shares(journal))
        assert {(p.param, p.ratio) for p in Sensitivities.load(journal).points} == full
        after = ds.sensitive(evaluator(), sen_file=journal, progress=False, fast="off")
        assert len(after.points) == len(sweep.points)
        assert [p.metric for p in after.points] == [p.metric for p in sweep.points]

    def test_an_observer_sees_every_point_when_it_is_on_disk(self, ds, tmp_path):
        journal, seen = tmp_path / "s.jsonl", []

        def observer(point):
            assert shares(journal)[point.param, point.ratio] == pytest.approx(point.share)
            seen.append(point)

        ds.search(
            evaluator(),
            TARGET,
            sen_file=journal,
            target_vars="0.*",
            progress=False,
            fast="off",
            observer=observer,
        )
        assert {point.share < 1 for point in seen} == {True, False}
        assert {(point.param, point.ratio) for point in seen} == set(shares(journal))

    def test_goes_on_where_a_sweep_was(self, ds, swept, tmp_path):
        """Full points cost nothing again, and decide as they did."""
        journal = Path(shutil.copy(swept, tmp_path / "s.jsonl"))
        lines = journal.read_text().splitlines()
        found = ds.search(evaluator(), TARGET, sen_file=journal, progress=False, fast="off")
        assert found.passes == 0
        assert journal.read_text().splitlines() == lines

    def test_what_a_search_knows_for_sure_is_not_measured_again(self, ds, tmp_path):
        journal, again = tmp_path / "s.jsonl", []
        options = {"sen_file": journal, "progress": False, "fast": "off", "spot_checks": 0}
        ds.search(evaluator(), TARGET, **options)
        sure = {point for point, share in shares(journal).items() if share == 1}
        assert sure
        ds.search(evaluator(), TARGET, observer=again.append, **options)
        assert not sure & {(point.param, point.ratio) for point in again}

    def test_goes_on_after_a_restart_without_measuring_parts_again(self, ds, tmp_path):
        journal, again = tmp_path / "s.jsonl", []
        options = {"sen_file": journal, "progress": False, "fast": "off", "spot_checks": 0}
        first = ds.search(evaluator(), TARGET, **options)
        before = shares(journal)
        assert any(share < 1 for share in before.values())
        second = ds.search(evaluator(), TARGET, observer=again.append, **options)
        # It may ask for a ratio that nobody tried, since what trying costs is learnt anew; never for one that is known.
        assert not {(point.param, point.ratio) for point in again} & before.keys()
        assert second.passes < 0.2 * first.passes
        steps = [abs(a.ratio - b.ratio) for a, b in zip(first.groups, second.groups)]
        assert max(steps) < 0.15

    def test_broken_off_anywhere_it_finds_the_same(self, ds, tmp_path):
        """What is on disk when it ends is not measured again, unless more of the data is needed for it."""
        whole, journal = tmp_path / "whole.jsonl", tmp_path / "s.jsonl"
        options = {"progress": False, "fast": "off", "spot_checks": 0}
        first = ds.search(evaluator(), TARGET, sen_file=whole, **options)
        lines = whole.read_text().splitlines(keepends=True)
        journal.write_text("".join(lines[: len(lines) // 2]))
        before = shares(journal)
        again = []
        second = ds.search(evaluator(), TARGET, sen_file=journal, observer=again.append, **options)
        assert second.passes < first.passes
        assert all(point.share > before.get((point.param, point.ratio), 0.0) for point in again)
        apart = [
            abs(GRID.index(a.ratio) - GRID.index(b.ratio)) if a.ratio and b.ratio else 0
            for a, b in zip(first.groups, second.groups)
        ]
        assert max(apart) <= 1

    def test_evidence_of_a_search_with_another_target_decides_anew(self, ds, tmp_path):
        journal = tmp_path / "s.jsonl"
        options = {"progress": False, "fast": "off", "spot_checks": 0}
        ds.search(evaluator(), TARGET, sen_file=journal, **options)
        found = ds.search(evaluator(), 0.2, sen_file=journal, **options)
        fresh = ds.search(evaluator(), 0.2, **options)
        assert all(abs(a.ratio - b.ratio) < 0.15 for a, b in zip(found.groups, fresh.groups))

    def test_a_journal_without_evidence(self, ds, tmp_path):
        """As earlier versions wrote it: partial points are measured again."""
        journal, again = tmp_path / "s.jsonl", []
        options = {"sen_file": journal, "progress": False, "fast": "off", "spot_checks": 0}
        ds.search(evaluator(), TARGET, **options)
        lines = [json.loads(line) for line in journal.read_text().splitlines()]
        for line in lines:
            line.pop("evidence", None)
        journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
        ds.search(evaluator(), TARGET, observer=again.append, **options)
        assert again
        assert all(point.share < 1 or shares(journal)[point.param, point.ratio] == 1 for point in again)

    def test_of_another_model_is_refused(self, ds, tmp_path):
        journal = tmp_path / "s.jsonl"
        ds.search(evaluator(), TARGET, sen_file=journal, target_vars="0.*", progress=False, fast="off")
        other = trained()
        other[0].weight.set_value(other[0].weight * 1.1)
        with pytest.raises(JournalError, match="weights"):
            DygraphSensitivity(other, SHAPE).search(evaluator(), sen_file=journal, progress=False, fast="off")


def test_progress_counts_evaluations(ds, monkeypatch, caplog):
    from dysens import progress

    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    with caplog.at_level("INFO", logger="dysens.progress"):
        found = ds.search(evaluator(), TARGET, progress=True, fast="off")
    lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("search:")]
    done = [float(line.split()[1]) for line in lines]
    ahead = [float(line.split(" of about ")[1].split()[0]) for line in lines]
    assert done == sorted(done)
    assert done[-1] == pytest.approx(found.passes, abs=0.1)
    assert ahead[-1] == pytest.approx(done[-1], abs=0.1)  # nothing is left at the end
    assert max(ahead) < 4 * found.passes


def removed(model):
    """The share of channels that are masked now in a network of four equal groups, counted in the weights themselves."""
    consumers = [*model.convs][1:]
    zero = [float((c.weight.abs().sum(axis=[0, 2, 3]) == 0).astype("float32").mean()) for c in consumers]
    return max(*zero, float((model.head.weight.abs().sum(axis=1) == 0).astype("float32").mean()))


def test_losses_that_do_not_rise_are_reported():
    model = network()
    ds = DygraphSensitivity(model, SMALL_SHAPE)
    first = ds.search(lambda: 1.0 - removed(model), 0.45, progress=False, fast="off", spot_checks=4)
    assert [g.ratio for g in first.groups] == [0.4] * 4
    assert len(first.spot_checks) == 4
    assert all(check.rises for check in first.spot_checks)
    assert "4 of 4 spot checks agree" in str(first)

    def recovers():
        """Bad at 0.5 and nowhere else."""
        return 0.2 if abs(removed(model) - 0.5) < 0.01 else 1.0

    second = ds.search(recovers, 0.45, ratios=[0.3, 0.5, 0.7], progress=False, fast="off", spot_checks=2)
    assert [g.ratio for g in second.groups] == [0.3] * 4
    assert [(c.ratio, c.loss, c.rises) for c in second.spot_checks] == [(0.7, 0.0, False)] * 2
    assert "0 of 2 spot checks agree" in str(second)
    assert f"{second.spot_checks[0].name} loses only 0.0000 at 0.7" in str(second)


@pytest.mark.parametrize(("score", "ratio"), [(1.0, 0.9), (0.1, 0.0), (float("nan"), 0.0)])
def test_all_or_nothing(score, ratio):
    model = network()
    ds = DygraphSensitivity(model, SMALL_SHAPE)
    found = ds.search(lambda: score if removed(model) else 1.0, progress=False, fast="off")
    assert [g.ratio for g in found.groups] == [ratio] * 4
    assert [g.beyond for g in found.groups] == [None if ratio else 0.1] * 4
    assert len(found.ratios) == (4 if ratio else 0)


def test_an_error_may_fall():
    model = network()
    ds = DygraphSensitivity(model, SMALL_SHAPE)
    found = ds.search(lambda: 1.0 + removed(model), 0.35, progress=False, fast="off", higher_is_better=False)
    assert [g.ratio for g in found.groups] == [0.3] * 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target_loss": -0.1}, "target_loss has to be 0 or more"),
        ({"target_loss": float("nan")}, "target_loss has to be 0 or more"),
        ({"target_loss": "2 %"}, "target_loss must be a number"),
        ({"confidence": 1.0}, "confidence has to be"),
        ({"confidence": 0.2}, "confidence has to be"),
        ({"ratios": []}, "ratios is empty"),
        ({"ratios": [1.0]}, "under 1"),
        ({"spot_checks": -1}, "spot_checks has to be"),
        ({"spot_checks": 1.5}, "spot_checks has to be"),
        ({"target_vars": "nothing.*"}, "nothing"),
    ],
)
def test_bad_input_is_said(options, said):
    ds = DygraphSensitivity(network(), SMALL_SHAPE)
    with pytest.raises(InputError, match=said):
        ds.search(lambda: 1.0, progress=False, fast="off", **options)


@pytest.mark.parametrize("bad", [7, None])
def test_what_scores_nothing_is_refused(bad):
    with pytest.raises(InputError):
        DygraphSensitivity(network(), SMALL_SHAPE).search(bad, progress=False)


def test_the_model_is_left_as_found(ds):
    model = ds._model
    model.train()
    before = picture(model)
    ds.search(evaluator(), TARGET, target_vars="2.*", progress=False, fast="off")
    assert_same(before, picture(model))
    model.eval()


def test_table_for_people(ds):
    found = ds.search(evaluator(), TARGET, target_vars=["2.*", "4.*"], progress=False, fast="off")
    table = found.to_frame()
    assert list(table["ratio"]) == [group.ratio for group in found.groups]
    assert all(group.path in str(found) for group in found.groups)
    assert "target loss 0.02" in str(found)
