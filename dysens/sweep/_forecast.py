"""What a sweep is going to take: said before it starts, from one point that is measured."""

from __future__ import annotations

import resource
import sys
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Forecast:
    """What a sweep is going to take.

    Attributes:
        groups: How many groups.
        points: How many points in all.
        known: How many of them the journal holds.
        evaluations: How many evaluations are left: ratios that remove the same units take one.
        seconds_a_point: What one evaluation takes, measured on one with half of the units masked.
        seconds: What all of them take, with so many workers.
        workers: How many processes share them.
        runtime: Who runs the forward: "live", "paddle", "openvino".
        memory_mib: The largest memory that this process had so far, times the workers.
        disk_kib: What the journal is going to take.
    """

    groups: int
    points: int
    known: int
    evaluations: int
    seconds_a_point: float
    seconds: float
    workers: int
    runtime: str
    memory_mib: float
    disk_kib: float

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    def __str__(self) -> str:
        alike = self.points - self.known - self.evaluations
        others = (
            f", {alike} remove the same channels as another ratio and need no evaluation" if alike > 0 else ""
        )
        rows = [
            (
                "points",
                f"{self.points} ({self.groups} groups): {self.known} known, {self.evaluations} to measure{others}",
            ),
            ("seconds a point", f"{self.seconds_a_point:.3g} (measured on one; forward: {self.runtime})"),
            ("in all", f"{in_words(self.seconds)} with {self.workers} worker{'s' * (self.workers > 1)}"),
            ("memory", f"{self.memory_mib:.0f} MiB"),
            ("disk", f"{self.disk_kib:.0f} KiB"),
        ]
        return "\n".join(f"{name:16} {value}" for name, value in rows)


def in_words(seconds: float) -> str:
    """A duration.

    Example:
        >>> in_words(59), in_words(3700)
        ('59 s', '1 h 2 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def peak_mib() -> float:
    """The largest memory that this process had so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
