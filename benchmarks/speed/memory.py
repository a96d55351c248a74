"""Peak memory of each way, every one in a process of its own, and whether it grows over hundreds of points."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import paddle
import psutil
from store import Figures, sized, stack
from subjects import SUBJECTS, enlarged, mobilenet, slim_of

from dysens import DygraphSensitivity
from dysens.data import load_digits
from dysens.evaluators import MetricEvaluator

WAYS = ("model alone", "slim", "fast", "search")
POINTS = sized(252, 126)
# More take longer, and hold only their own bytes more.
IMAGES = sized(
    {"mobilenet": 32, "ocr": 8, "v4 det": 8, "v4 rec": 32, "layout": 4},
    {"mobilenet": 8, "ocr": 2, "v4 det": 2, "v4 rec": 4, "layout": 2},
)
# For many points: memory, not time, is in question; of fewer images none may be right.
SMALL_SIDE, SMALL_IMAGES = 64, 32


def measure(name: str) -> Figures:
    """Peaks in MiB."""
    ways = [way for way in WAYS if way != "slim" or stack() == "paddle26"]
    return {way: _elsewhere(f"{name}: {way}")["peak"] for way in ways}


def measure_growth() -> Figures:
    """MiB after some points and after all, MobileNetV1."""
    return {way: _elsewhere(f"many points: {way}") for way in ("eager", "fast")}


def _elsewhere(job: str) -> Figures:
    command = [sys.executable, str(Path(__file__).parent), "--memory", job]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output.splitlines()[-1])


def here(job: str) -> Figures:
    """One job in this process, such as "ocr: fast"."""
    name, _, way = job.partition(": ")
    return _many_points(way) if name == "many points" else _one_way(name, way)


def _one_way(name: str, way: str) -> Figures:
    subject = SUBJECTS[name](IMAGES[name])
    if way == "model alone":
        subject.eval_func()
        return {"peak": _peak()}
    if way == "slim":
        slim = slim_of(subject)
        if slim is None:
            return {"peak": None}
        slim.point(slim.groups[len(slim.groups) // 2], 0.5, subject.eval_func())
        return {"peak": _peak()}
    ds = DygraphSensitivity(subject.model, subject.shape)
    groups = [group.name for group in ds.groups][:: sized(6, 20)]
    if way == "search":
        ds.search(subject.evaluator, target_vars=groups, progress=False, fast="on")
    else:
        score = subject.evaluator if way == "fast" else subject.eval_func
        ds.sensitive(score, [0.5], target_vars=groups, progress=False, fast="on" if way == "fast" else "off")
    return {"peak": _peak()}


class Watched(MetricEvaluator):
    """Notes the memory of the process at every score."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.mebibytes: list[float] = []

    def score(self, measurements: Sequence[Any]) -> float:
        self.mebibytes.append(psutil.Process().memory_info().rss / 2**20)
        return super().score(measurements)


def _many_points(way: str) -> Figures:
    test = enlarged(load_digits()[1], SMALL_SIDE)
    some = [test.images[:SMALL_IMAGES], test.labels[:SMALL_IMAGES, None]]
    evaluator = Watched([[paddle.to_tensor(array) for array in some]], paddle.metric.Accuracy())
    ds = DygraphSensitivity(mobilenet(SMALL_IMAGES).model, [1, 3, SMALL_SIDE, SMALL_SIDE])
    count = POINTS // len(ds.groups)
    grid = [(step + 1) / (count + 1) for step in range(count)]
    sens = ds.sensitive(evaluator, grid, progress=False, fast="on" if way == "fast" else "off")
    seen = evaluator.mebibytes
    return {"points": len(sens.points), "after": {str(n): seen[n] for n in (25, 100, len(seen) - 1)}}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
