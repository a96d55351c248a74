"""Seconds a point: PaddleSlim, dysens with the live model, dysens with the compiled copy, on the same points in turns."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import paddle
from store import Figures, stack
from subjects import SUBJECTS, Subject

from dysens import DygraphSensitivity
from dysens.sweep.evaluators import Evaluator

SAMPLE = 6


def measure(name: str) -> Figures:
    """One network."""
    subject = SUBJECTS[name]()
    baseline = subject.eval_func()
    slim = _slim(subject)
    ds = DygraphSensitivity(subject.model, subject.shape)
    names = [group.name for group in ds.groups]
    common = [group for group in names if slim is None or group in slim.groups]
    rows = [_in_turns(subject, ds, slim, group, ratio, baseline) for group, ratio in _spread(common)]
    return {
        "network": subject.name,
        "images": subject.samples,
        "baseline": baseline,
        "groups": len(names),
        "slim_groups": len(slim.groups) if slim is not None else None,
        "common": common,
        "points": rows,
        "one_core": _on_one_core(subject, ds, rows),
        "breakdown": _breakdown(subject),
    }


def _slim(subject: Subject) -> Any:
    if stack() != "paddle26":
        return None
    from slim import Slim

    return Slim(subject)


def _spread(groups: list[str]) -> list[tuple[str, float]]:
    """Groups from the first to the last, each with another ratio."""
    chosen = [groups[index] for index in np.linspace(0, len(groups) - 1, SAMPLE).round().astype(int)]
    return list(zip(chosen, (0.5, 0.1, 0.7, 0.3, 0.9, 0.5)))


def _in_turns(
    subject: Subject, ds: DygraphSensitivity, slim: Any, group: str, ratio: float, baseline: float
) -> Figures:
    row: Figures = {"group": group, "ratio": ratio, "seconds": {}, "loss": {}}
    if slim is not None:
        row["loss"]["slim"], row["seconds"]["slim"] = slim.point(group, ratio, baseline)
    for way, score, fast in (
        ("eager", subject.eval_func, "off"),
        ("function", subject.eval_func, "on"),
        ("fast", subject.evaluator, "on"),
    ):
        sens = ds.sensitive(score, [ratio], target_vars=[group], progress=False, fast=fast)
        row["loss"][way], row["seconds"][way] = sens.points[0].loss, sens.points[0].seconds
    print(row, flush=True)
    return row


def _on_one_core(subject: Subject, ds: DygraphSensitivity, rows: list[Figures]) -> float:
    """Seconds a point of the compiled copy when it may use one core only, as the live model does by Paddle's default."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        groups = [row["group"] for row in rows[::3]]
        sens = ds.sensitive(subject.evaluator, [0.5], target_vars=groups, progress=False, fast="on")
    finally:
        os.sched_setaffinity(0, cores)
    return float(np.mean([point.seconds for point in sens.points]))


def _breakdown(subject: Subject) -> Figures:
    """Where an evaluation of the live model spends its seconds."""
    evaluator, model = subject.evaluator, subject.model
    load, forward, measuring = [], [], []
    start = time.perf_counter()
    with paddle.no_grad():
        for batch in evaluator.batches():
            load.append(time.perf_counter() - start)
            outputs, seconds = _timed(lambda batch=batch: model(*evaluator.arguments(batch)))
            forward.append(seconds)
            measuring.append(_timed(lambda out=outputs, batch=batch: evaluator.measure(out, batch))[1])
            start = time.perf_counter()
    return {"load": sum(load), "forward": sum(forward), "measure": sum(measuring), **_post(evaluator)}


def _post(evaluator: Evaluator) -> Figures:
    return {"has_post_process": hasattr(evaluator, "_post_process")}


def _timed(action: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    found = action()
    return found, time.perf_counter() - start
