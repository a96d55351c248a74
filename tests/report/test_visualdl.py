"""Sweeps in VisualDL's own log files, read back by VisualDL."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
from results.common import point
from sweep import sweeping

from dysens import DygraphSensitivity, Sensitivities
from dysens.errors import MissingExtraError
from dysens.report import SweepLog, log_sensitivities, open_writer

RATIOS = [0.25, 0.5, 0.75]


def read(folder: Path):
    """Tag to steps and values of the scalars (VisualDL keeps single precision), and the tags of the pictures."""
    from visualdl import LogReader

    (file,) = folder.glob("vdlrecords*")
    reader = LogReader(file_path=str(file))
    tags = reader.get_tags()
    scalars = {
        tag: [(record.id, record.value) for record in reader.get_data("scalar", tag)]
        for tag in tags.get("scalar", [])
    }
    return scalars, tags.get("image", [])


def test_a_sweep_is_logged_point_by_point_and_curve_by_curve(tmp_path):
    model, evaluate = sweeping.made()
    ds = DygraphSensitivity(model, sweeping.SHAPE)
    with open_writer(tmp_path / "vdl") as writer:
        sens = ds.sensitive(evaluate, RATIOS, progress=False, fast="off", observer=SweepLog(writer))
        log_sensitivities(writer, sens)
    scalars, pictures = read(tmp_path / "vdl")
    assert [step for step, _ in scalars["sweep/loss"]] == list(range(1, 13))
    logged = sorted(value for _, value in scalars["sweep/metric"])
    assert logged == pytest.approx(sorted(each.metric for each in sens.points), rel=1e-6)
    for name, curve in sens.items():
        label = sens.paths[name].removesuffix(".weight")
        steps, losses = zip(*scalars[f"sensitivity/{label}"])
        assert steps == (250, 500, 750)
        assert losses == pytest.approx(tuple(curve.values()), rel=1e-6)
    assert set(pictures) == {"sensitivity/heat map", "sensitivity/curves"}


def test_an_observer_sees_every_point_once_old_ones_first(tmp_path):
    model, evaluate = sweeping.made()
    ds = DygraphSensitivity(model, sweeping.SHAPE)
    settings = {"sen_file": tmp_path / "sens.jsonl", "progress": False, "fast": "off"}
    before = ds.sensitive(evaluate, [0.5], **settings)
    seen = []
    after = ds.sensitive(evaluate, RATIOS, **settings, observer=seen.append)
    assert seen[:4] == list(before.points)
    assert sorted(seen, key=str) == sorted(after.points, key=str)


def test_an_observer_s_error_is_not_swallowed_and_the_point_is_safe(tmp_path):
    model, evaluate = sweeping.made()
    ds = DygraphSensitivity(model, sweeping.SHAPE)

    def fails(_):
        raise OSError("no room for logs")

    with pytest.raises(OSError, match="no room for logs"):
        ds.sensitive(
            evaluate, RATIOS, sen_file=tmp_path / "sens.jsonl", progress=False, fast="off", observer=fails
        )
    assert len(Sensitivities.load(tmp_path / "sens.jsonl").points) == 1


def test_points_without_a_score_and_strange_names(tmp_path):
    points = [point("a%b", 0.25, 0.1, path="a%b.weight"), point("a%b", 0.5, math.inf, path="a%b.weight")]
    with open_writer(tmp_path) as writer:
        log = SweepLog(writer)
        for each in points:
            log(each)
        log_sensitivities(writer, Sensitivities(points))
    scalars, _ = read(tmp_path)
    assert scalars["sweep/loss"] == [(1, pytest.approx(0.1))]
    assert scalars["sensitivity/a_b"] == [(250, pytest.approx(0.1))]


def test_without_visualdl(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "visualdl", None)
    with pytest.raises(MissingExtraError, match=r'pip install "dysens\[vdl\]"'):
        open_writer(tmp_path)
