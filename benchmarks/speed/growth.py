"""How the seconds of a sweep grow when groups, ratios or images are doubled."""

from __future__ import annotations

import math
import time

from store import Figures, sized
from subjects import mobilenet

from dysens import DygraphSensitivity

GROUPS, RATIOS, IMAGES = 7, *sized((3, 64), (1, 8))


def measure() -> Figures:
    """MobileNetV1, compiled: seconds of the whole call, compiling included."""
    whole = _seconds(GROUPS, RATIOS, IMAGES)
    doubled = {
        "groups": _seconds(2 * GROUPS, RATIOS, IMAGES),
        "ratios": _seconds(GROUPS, 2 * RATIOS, IMAGES),
        "images": _seconds(GROUPS, RATIOS, 2 * IMAGES),
    }
    return {
        "from": {"groups": GROUPS, "ratios": RATIOS, "images": IMAGES},
        "seconds": whole,
        "doubled": doubled,
        "exponents": {what: math.log2(seconds / whole) for what, seconds in doubled.items()},
    }


def _seconds(groups: int, ratios: int, images: int) -> float:
    subject = mobilenet(images)
    ds = DygraphSensitivity(subject.model, subject.shape)
    # Every other group, then all: wide and narrow ones in both.
    names = [group.name for group in ds.groups][:: 2 if groups == GROUPS else 1]
    grid = [(step + 1) / (ratios + 1) for step in range(ratios)]
    start = time.process_time()
    sens = ds.sensitive(subject.evaluator, grid, target_vars=names, progress=False, fast="on")
    seconds = time.process_time() - start
    assert len(sens.points) == groups * ratios
    return seconds
