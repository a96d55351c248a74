"""OpenVINO beside Paddle's predictor: passes over the data by the same copy of the whole network, on one core and on two."""

from __future__ import annotations

import os
import time

import numpy as np
from points import Clocked
from store import Figures, sized
from subjects import SUBJECTS

from dysens import DygraphSensitivity
from dysens.compiled import is_installed
from dysens.groups import roles_of
from dysens.sweep import RunOptions, scorer_of

NAMES = ("paddle", "openvino")
PASSES = sized(5, 1)


def measure(name: str) -> Figures:
    """Seconds of a pass by the wall clock, and of those that measuring took; the shortest of several."""
    subject = SUBJECTS[name]()
    ds = DygraphSensitivity(subject.model, subject.shape)
    roles = roles_of(subject.model)
    found: Figures = {"network": subject.name, "images": subject.samples}
    every = sorted(os.sched_getaffinity(0))
    for runtime in filter(is_installed, NAMES):
        for cores in sorted(
            {1, len(every)}, reverse=True
        ):  # threads that are there keep the cores that they began with
            os.sched_setaffinity(0, every[-cores:])
            clocked = Clocked(subject.evaluator)
            options = RunOptions(fast=runtime)
            scorer = scorer_of(subject.model, roles, ds.groups, clocked, options=options, cores=cores)
            baseline = scorer.score()
            passes = []
            for _ in range(PASSES):
                clocked.restart()
                start = time.perf_counter()
                scorer.score()
                passes.append((time.perf_counter() - start, clocked.measure_seconds + clocked.score_seconds))
            seconds, measuring = np.min(passes, axis=0)
            found[f"{runtime}, {cores}"] = {
                "ran": scorer.runtime,
                "seconds": seconds,
                "measuring": measuring,
                "baseline": baseline,
            }
            print(runtime, cores, found[f"{runtime}, {cores}"], flush=True)
    return found
