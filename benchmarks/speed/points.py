"""Seconds a point: PaddleSlim, dysens with the live model, dysens with the compiled copy, on the same points in turns."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
from store import Figures, stack
from subjects import SUBJECTS, Subject

from dysens import DygraphSensitivity

SAMPLE = 5


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
        "one_core": _on_one_core(subject, ds, rows[len(rows) // 2]["group"]),
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
    return list(zip(chosen, (0.5, 0.1, 0.7, 0.3, 0.9)))


def _in_turns(
    subject: Subject, ds: DygraphSensitivity, slim: Any, group: str, ratio: float, baseline: float
) -> Figures:
    """One point by every way. Processor seconds tell the same as wall seconds where one thread works, on a busy machine too."""
    row: Figures = {"group": group, "ratio": ratio, "seconds": {}, "cpu": {}, "loss": {}}

    def note(way: str, action: Callable[[], float]) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        row["loss"][way] = action()
        row["seconds"][way], row["cpu"][way] = time.perf_counter() - wall, time.process_time() - cpu

    if slim is not None:
        note("slim", lambda: slim.point(group, ratio, baseline))
    options = {"ratios": [ratio], "target_vars": [group], "progress": False}
    known = remembering(subject.eval_func, baseline)
    note("eager", lambda: ds.sensitive(known, fast="off", **options).points[0].loss)
    for way, score in (("function", subject.eval_func), ("fast", subject.evaluator)):
        point = ds.sensitive(score, fast="on", **options).points[0]
        row["loss"][way], row["seconds"][way] = point.loss, point.seconds
    print(row, flush=True)
    return row


def _on_one_core(subject: Subject, ds: DygraphSensitivity, group: str) -> Figures:
    """A point of the compiled copy when it may use one core only, as the live model does by Paddle's default.

    What more points take more is what points take: compiling and the baseline are in both sweeps.
    """
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    few, many = [0.5], [0.3, 0.4, 0.5, 0.6, 0.7]
    spent = []
    try:
        for ratios in (few, many):
            wall, cpu = time.perf_counter(), time.process_time()
            ds.sensitive(subject.evaluator, ratios, target_vars=[group], progress=False, fast="on")
            spent.append(np.array([time.perf_counter() - wall, time.process_time() - cpu]))
    finally:
        os.sched_setaffinity(0, cores)
    wall, cpu = (spent[1] - spent[0]) / (len(many) - len(few))
    return {"seconds": float(wall), "cpu": float(cpu)}


def remembering(eval_func: Callable[[], float], baseline: float) -> Callable[[], float]:
    """The function, with its first answer known."""
    answers = [baseline]
    return lambda: answers.pop() if answers else eval_func()


def _breakdown(subject: Subject) -> Figures:
    """Where an evaluation of the live model spends its processor seconds."""
    evaluator, model = subject.evaluator, subject.model
    spent = {"load": 0.0, "forward": 0.0, "measure": 0.0}
    since = time.process_time()

    def note(what: str) -> None:
        nonlocal since
        spent[what] += time.process_time() - since
        since = time.process_time()

    with paddle.no_grad():
        for batch in evaluator.batches():
            note("load")
            outputs = model(*evaluator.arguments(batch))
            note("forward")
            evaluator.measure(outputs, batch)
            note("measure")
    return spent
