"""A whole sweep with everything that belongs to it, against PaddleSlim's points in the same process."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from points import remembering
from store import Figures, load
from subjects import SUBJECTS, Subject, slim_of, spread

from dysens import DygraphSensitivity

SAMPLE = 8


def measure(name: str) -> Figures:
    """One network: half of the sampled points, the sweep, the other half; all by the wall clock."""
    subject = SUBJECTS[name]()
    baseline = subject.eval_func()
    slim = slim_of(subject)
    ds = DygraphSensitivity(subject.model, subject.shape)
    groups = common_groups(name, ds, slim)
    sample = spread(groups, SAMPLE)
    rows = [reference_point(subject, ds, slim, *point, baseline) for point in sample[::2]]
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        sens = ds.sensitive(
            subject.evaluator,
            sen_file=Path(folder, "sweep.jsonl"),
            target_vars=groups,
            progress=False,
            fast="on",
        )
        seconds = time.perf_counter() - start
    rows += [reference_point(subject, ds, slim, *point, baseline) for point in sample[1::2]]
    for row in rows:
        row["fast_loss"] = sens[row["group"]][row["ratio"]]
    return {
        "network": subject.name,
        "reference": "eager" if slim is None else "slim",
        "images": subject.samples,
        "baseline": baseline,
        "groups": len(groups),
        "points": len(sens.points),
        "seconds": seconds,
        "point_seconds": sum(point.seconds for point in sens.points),
        "sample": rows,
    }


def common_groups(name: str, ds: DygraphSensitivity, slim: Any = None) -> list[str]:
    """The groups that PaddleSlim finds too, where it does not run as the points part noted them: names are the same there."""
    found = (
        slim.groups
        if slim is not None
        else load().get("paddle26", {}).get(f"points {name}", {}).get("common")
    )
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
