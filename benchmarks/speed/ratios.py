"""Ratios for a target loss: the whole grid, the search, and the first look by gradients."""

from __future__ import annotations

import math
import time

from store import Figures, load
from subjects import SUBJECTS, Subject

from dysens import DygraphSensitivity
from dysens.results.sensitivities import Sensitivities

TARGET = 0.02
MOST_GROUPS = 16  # spread over the network: the whole grid is measured too, to compare with
GRID = [0.0, *(round(0.1 * step, 1) for step in range(1, 10))]


def measure(name: str) -> Figures:
    """One network, over the groups that PaddleSlim has too."""
    subject = SUBJECTS[name]()
    ds = DygraphSensitivity(subject.model, subject.shape)
    common = _common(name, ds)
    groups = common[:: math.ceil(len(common) / MOST_GROUPS)]
    start = time.perf_counter()
    found = ds.search(subject.evaluator, TARGET, target_vars=groups, progress=False, fast="on")
    search_seconds = time.perf_counter() - start
    print(found, search_seconds, flush=True)
    start = time.perf_counter()
    sens = ds.sensitive(subject.evaluator, target_vars=groups, progress=False, fast="on")
    sweep_seconds = time.perf_counter() - start
    answers = {group.name: group.ratio for group in found.groups}
    return {
        "network": subject.name,
        "groups": len(groups),
        "points": len(sens.points),
        "search_seconds": search_seconds,
        "sweep_seconds": sweep_seconds,
        "passes": found.passes,
        "answers": answers,
        "expected": {name: largest_within(sens, name) for name in answers},
        "losses": {name: dict(sens[name]) for name in answers},
        "spot_checks": [check.rises for check in found.spot_checks],
        "estimate": _estimate(subject, ds, sens),
    }


def _common(name: str, ds: DygraphSensitivity) -> list[str]:
    """The groups that PaddleSlim finds too, as the points part noted them; names are the same in every process."""
    found = load().get("paddle26", {}).get(f"points {name}", {}).get("common")
    return found or [group.name for group in ds.groups]


def largest_within(sens: Sensitivities, name: str) -> float:
    """The last ratio before the first one that is beyond the target."""
    within = 0.0
    for ratio, loss in sorted(sens[name].items()):
        if loss > TARGET:
            break
        within = ratio
    return within


def _estimate(subject: Subject, ds: DygraphSensitivity, sens: Sensitivities) -> Figures | None:
    """How well one pass with gradients orders the points; for networks whose training loss the evaluator's batches define."""
    if subject.loss is None:
        return None
    start = time.perf_counter()
    curves = ds.estimate(list(subject.evaluator.batches())[:8], subject.loss)
    seconds = time.perf_counter() - start
    return {"rank_correlation": curves.rank_correlation(sens), "seconds": seconds}
