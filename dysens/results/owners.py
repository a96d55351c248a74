"""Who holds a claim on a point, and whether that process still lives."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

import psutil  # type: ignore[import-untyped]

START_TOLERANCE = 2.0
"""Seconds by which a process's start time may be read differently: it is derived from the boot time, which a
clock correction moves a little. A recycled process id is far further off."""


@dataclass(frozen=True)
class Owner:
    """One process on one machine.

    The start time tells a process from a later one that was given the same id.
    """

    host: str
    pid: int
    started: float

    @classmethod
    def current(cls) -> Owner:
        """This process."""
        return cls(platform.node(), os.getpid(), psutil.Process().create_time())

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine, so that `is_alive` can know."""
        return self.host == platform.node()

    def is_alive(self) -> bool:
        """Whether the process still runs; a killed child that its parent hasn't collected yet does not."""
        try:
            process = psutil.Process(self.pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            return bool(abs(process.create_time() - self.started) <= START_TOLERANCE)
        except (psutil.NoSuchProcess, ValueError, OverflowError):
            return False
        except psutil.AccessDenied:
            return True
