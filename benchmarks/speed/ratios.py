"""Ratios for a target loss: the search against the whole grid, and the first look by gradients."""

from __future__ import annotations

import math
import time

from grid import TARGET
from store import Figures, load, sized, stack
from subjects import SUBJECTS, Subject, slim_of, spread
from sweeps import common_groups, reference_point

from dysens import DygraphSensitivity, Sensitivities

IMAGES = sized(
    {"mobilenet": 400, "ocr": 64, "v4 rec": 96}, {"mobilenet": 16, "ocr": 6, "v4 rec": 8}
)  # a search stops early where there is more to stop before
MOST_GROUPS = sized(8, 1)  # spread over the network: the whole grid is measured too, to compare with
SAMPLE = sized(2, 1)  # points of the reference


def measure_grid(name: str) -> Figures:
    """What all data say at every ratio, measured by dysens: what the search is held against."""
    subject, ds, groups = _prepared(name)
    start = time.perf_counter()
    sens = ds.sensitive(subject.evaluator, target_vars=groups, progress=False, fast="on")
    seconds = time.perf_counter() - start
    return {
        "images": subject.samples,
        "seconds": seconds,
        "baseline": sens.baseline,
        "points": len(sens.points),
        "losses": {group: {str(ratio): loss for ratio, loss in sens[group].items()} for group in groups},
        "estimate": _estimate(subject, ds, sens),
    }


def measure(name: str) -> Figures:
    """The search, and some points of the reference, by the wall clock."""
    subject, ds, groups = _prepared(name)
    losses = load()[stack()][f"grid {name}"]["losses"]
    baseline = subject.eval_func()
    slim = slim_of(subject)
    rows = [reference_point(subject, ds, slim, *point, baseline) for point in spread(groups, SAMPLE)]
    start = time.perf_counter()
    found = ds.search(subject.evaluator, TARGET, target_vars=groups, progress=False, fast="on")
    seconds = time.perf_counter() - start
    print(found, seconds, flush=True)
    for row in rows:
        row["fast_loss"] = losses[row["group"]][str(row["ratio"])]
    return {
        "network": subject.name,
        "reference": "eager" if slim is None else "slim",
        "images": subject.samples,
        "baseline": baseline,
        "groups": len(groups),
        "points": 9 * len(groups),
        "sample": rows,
        "seconds": seconds,
        "passes": found.passes,
        "answers": {group.name: group.ratio for group in found.groups},
        "spot_checks": [check.rises for check in found.spot_checks],
    }


def _prepared(name: str) -> tuple[Subject, DygraphSensitivity, list[str]]:
    subject = SUBJECTS[name](IMAGES[name])
    ds = DygraphSensitivity(subject.model, subject.shape)
    common = common_groups(name, ds)
    return subject, ds, common[:: math.ceil(len(common) / MOST_GROUPS)]


def _estimate(subject: Subject, ds: DygraphSensitivity, sens: Sensitivities) -> Figures | None:
    """How well one pass with gradients orders the points; for networks whose training loss the evaluator's batches define."""
    if subject.loss is None:
        return None
    start = time.perf_counter()
    curves = ds.estimate(list(subject.evaluator.batches())[:8], subject.loss)
    seconds = time.perf_counter() - start
    return {"rank_correlation": curves.rank_correlation(sens), "seconds": seconds}
