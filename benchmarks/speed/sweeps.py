"""A whole sweep with everything that belongs to it, against PaddleSlim's points in the same process."""

from __future__ import annotations

import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

from points import Clocked, remembering
from store import Figures, load, sized
from subjects import SUBJECTS, Subject, slim_of, spread

from dysens import DygraphSensitivity
from dysens.compiled import EvaluatorScorer

SAMPLE = sized(4, 2)
MOST_GROUPS = sized(8, 1)  # spread over the network: a point costs what it costs, however many there are


def measure(name: str) -> Figures:
    """One network: half of the sampled points, the sweep, the other half; all by the wall clock."""
    subject = SUBJECTS[name]()
    baseline = subject.eval_func()
    slim = slim_of(subject)
    start = time.perf_counter()
    ds = DygraphSensitivity(subject.model, subject.shape)
    analysis = time.perf_counter() - start
    every = common_groups(name, ds, slim)
    groups = every[:: math.ceil(len(every) / MOST_GROUPS)]
    sample = spread(groups, SAMPLE)
    rows = [reference_point(subject, ds, slim, *point, baseline) for point in sample[::2]]
    clocked = Clocked(subject.evaluator)
    forward = clocked.around(EvaluatorScorer._forward)
    with tempfile.TemporaryDirectory() as folder, patch.object(EvaluatorScorer, "_forward", forward):
        journal = Path(folder, "sweep.jsonl")
        start, worked = time.perf_counter(), time.process_time()
        sens = ds.sensitive(clocked, sen_file=journal, target_vars=groups, progress=False, fast="on")
        seconds, worked = time.perf_counter() - start, time.process_time() - worked
        header = json.loads(journal.read_text().splitlines()[0])
    rows += [reference_point(subject, ds, slim, *point, baseline) for point in sample[1::2]]
    for row in rows:
        row["fast_loss"] = sens[row["group"]][row["ratio"]]
    return {
        "network": subject.name,
        "reference": "eager" if slim is None else "slim",
        "images": subject.samples,
        "baseline": baseline,
        "groups": len(groups),
        "names": groups,
        "all_groups": len(ds.groups),
        "analysis_seconds": analysis,
        "slim_analysis_seconds": slim.analysis_seconds if slim is not None else None,
        "runtime": header.get("runtime", ""),
        "points": len(sens.points),
        "seconds": seconds,
        "processor_seconds": worked,
        "forward_seconds": clocked.forward_seconds,
        "measure_seconds": clocked.measure_seconds,
        "score_seconds": clocked.score_seconds,
        "point_seconds": sum(point.seconds for point in sens.points),
        "sample": rows,
    }


def common_groups(name: str, ds: DygraphSensitivity, slim: Any = None) -> list[str]:
    """The groups that PaddleSlim finds too; where it does not run, those that were swept where it does: names are the same."""
    noted = load().get("paddle26", {}).get(f"sweep {name}", {}).get("names")
    found = slim.groups if slim is not None else noted
    return [group.name for group in ds.groups if found is None or group.name in found]


def reference_point(
    subject: Subject, ds: DygraphSensitivity, slim: Any, group: str, ratio: float, baseline: float
) -> Figures:
    """One point by PaddleSlim; by dysens with the live model where that does not run."""
    start = time.perf_counter()
    if slim is not None:
        loss = slim.point(group, ratio, baseline)
    else:
        known = remembering(subject.eval_func, baseline)
        loss = ds.sensitive(known, [ratio], target_vars=[group], progress=False, fast="off")[group][ratio]
    return {"group": group, "ratio": ratio, "seconds": time.perf_counter() - start, "loss": loss}
