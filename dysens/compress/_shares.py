"""Calibration in parts, which others may do: the same parts, added in the same order, whoever does them.

Mean, covariance and count of two parts give those of the whole, so every part is a `Calibration` of its own. The data are always
cut into the same parts, in one process too; where a part was run does not show in the result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dysens.compress._calibrate import Calibration, Reading
from dysens.compress._gradients import Answer
from dysens.compress._samples import Call

PARTS = 4
"""At most; statistics of a part are as large as the layers are wide, squared, and have to travel."""


def parts_of(calls: Sequence[Call]) -> list[list[Call]]:
    """Neighbouring calls together, in at most `PARTS` parts of about the same length."""
    edges = np.linspace(0, len(calls), min(PARTS, len(calls)) + 1).round().astype(int)
    return [list(calls[start:stop]) for start, stop in zip(edges, edges[1:])]


def merged(parts: Sequence[Calibration], training: Calibration | None = None) -> Calibration:
    """What a calibration on all the data of the parts gives, up to rounding.

    Args:
        parts: In the order of the data.
        training: Of training forwards; only layers that no part has run are taken from it.
    """
    paths = list(dict.fromkeys(path for part in parts for path in part.readings))
    readings = {path: _reading([p.readings[path] for p in parts if path in p.readings]) for path in paths}
    norms = {path: _norms(path, parts) for path in paths if all(_normed(path, part) for part in parts)}
    if training is not None:
        new = [path for path in training.readings if path not in readings]
        readings.update({path: training.readings[path] for path in new})
    short = {
        path: (round(reading.count), len(reading.covariance))
        for path, reading in readings.items()
        if reading.count < len(reading.covariance)
    }
    answers = {path: _answer([p.answers[path] for p in parts if path in p.answers]) for path in paths}
    weights = {path: [each for part in parts for each in part.weights.get(path, ())] for path in paths}
    return Calibration(
        readings,
        norms,
        short,
        {path: answer for path, answer in answers.items() if answer is not None},
        {path: some for path, some in weights.items() if some},
    )


def _answer(seen: Sequence[Answer]) -> Answer | None:
    """The mean of the parts, which are about as large as each other."""
    if not seen:
        return None
    weights = np.mean([each.weights for each in seen], axis=0)
    return Answer(weights, float(np.mean([each.power for each in seen])))


def _normed(path: str, part: Calibration) -> bool:
    """Whether batch norms stood right behind a layer whenever a part ran it."""
    return path in part.norms or path not in part.readings


def _norms(path: str, parts: Sequence[Calibration]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(norm for part in parts for norm in part.norms.get(path, ())))


def _reading(seen: Sequence[Reading]) -> Reading:
    if len(seen) == 1:
        return seen[0]
    count, repeat = sum(each.count for each in seen), seen[0].repeat
    mean = sum(each.mean * (each.count / count) for each in seen)
    assert isinstance(mean, np.ndarray)
    covariance = np.zeros_like(seen[0].covariance)
    for each in seen:
        apart = (each.mean - mean).reshape(-1, repeat)
        between = np.square(apart).mean(axis=1) if covariance.ndim == 1 else apart @ apart.T / repeat
        covariance += (each.covariance + between) * (each.count / count)
    return Reading(count, mean, covariance, repeat)
