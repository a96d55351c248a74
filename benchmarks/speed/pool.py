"""Whether measuring in processes of its own would pay: passes as they are, and with `measure` handed to one process or two."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import paddle
from store import Figures, sized
from subjects import SUBJECTS

from dysens import DygraphSensitivity
from dysens.evaluators import Evaluator
from dysens.groups import roles_of
from dysens.sweep import RunOptions, scorer_of

PROCESSES = (1, 2)
PASSES = sized(7, 1)
_EVALUATOR: list[tuple[Evaluator, list[Any]]] = []  # of a process that measures


def measure(name: str) -> Figures:
    """Seconds of a pass by the wall clock, the shortest of several, on all cores."""
    subject = SUBJECTS[name]()
    ds = DygraphSensitivity(subject.model, subject.shape)
    found: Figures = {"network": subject.name, "images": subject.samples}
    found["in the thread"] = _passes(subject.model, ds, _Numbered(subject.evaluator, None))
    for count in PROCESSES:
        with ProcessPoolExecutor(count, get_context("spawn"), _begin, (name,)) as pool:
            list(pool.map(_ready, range(8 * count)))
            found[f"{count} processes"] = _passes(subject.model, ds, _Numbered(subject.evaluator, pool))
    print(found, flush=True)
    return found


def _passes(model: paddle.nn.Layer, ds: DygraphSensitivity, evaluator: Evaluator) -> Figures:
    cores = len(os.sched_getaffinity(0))
    options = RunOptions(fast="openvino")
    scorer = scorer_of(model, roles_of(model), ds.groups, evaluator, options=options, cores=cores)
    scores, seconds = [scorer.score()], []
    for _ in range(PASSES):
        start = time.perf_counter()
        scores.append(scorer.score())
        seconds.append(time.perf_counter() - start)
    return {"seconds": float(np.min(seconds)), "scores": sorted(set(scores)), "ran": scorer.runtime}


class _Numbered(Evaluator):
    """An evaluator whose batches have numbers, and which may let a pool measure them."""

    def __init__(self, evaluator: Evaluator, pool: ProcessPoolExecutor | None) -> None:
        self.name = evaluator.name
        self.higher_is_better = evaluator.higher_is_better
        self._evaluator = evaluator
        self._pool = pool

    def batches(self) -> Iterable[Any]:
        return [[number, list(batch)] for number, batch in enumerate(self._evaluator.batches())]

    def arguments(self, batch: Any) -> tuple[Any, ...]:
        return self._evaluator.arguments(batch[1])

    def measure(self, outputs: Any, batch: Any) -> Any:
        if self._pool is None:
            return self._evaluator.measure(outputs, batch[1])
        return self._pool.submit(_measured, {key: value.numpy() for key, value in outputs.items()}, batch[0])

    def score(self, measurements: Sequence[Any]) -> float:
        known = [each.result() if isinstance(each, Future) else each for each in measurements]
        return self._evaluator.score(known)


def _begin(name: str) -> None:
    evaluator = SUBJECTS[name]().evaluator
    _EVALUATOR.append((evaluator, list(evaluator.batches())))


def _ready(number: int) -> int:
    time.sleep(0.05)  # so that every process gets one, and has built its evaluator
    return number


def _measured(outputs: dict[str, np.ndarray], number: int) -> Any:
    evaluator, batches = _EVALUATOR[0]
    return evaluator.measure(
        {key: paddle.to_tensor(value) for key, value in outputs.items()}, batches[number]
    )
