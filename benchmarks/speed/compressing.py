"""What compressing takes, against one evaluation of the live model."""

from __future__ import annotations

import time

from store import Figures, sized
from subjects import SUBJECTS

from dysens import DygraphSensitivity

FLOPS = 0.5


def measure() -> Figures:
    """Half of the FLOPs of two networks, by processor seconds; the models are left as found."""
    found = {}
    for name in sized(("mobilenet", "v4 det"), ("v4 det",)):
        subject = SUBJECTS[name]()
        start = time.process_time()
        subject.eval_func()
        evaluation = time.process_time() - start
        ds = DygraphSensitivity(subject.model, subject.shape)
        start = time.process_time()
        with ds.compressed(subject.evaluator, flops=FLOPS, progress=False):
            seconds = time.process_time() - start
        found[subject.name] = {"seconds": seconds, "evaluation": evaluation}
    return found
