"""The memory of the process: what was needed for a moment goes back to the system."""

from __future__ import annotations

import ctypes
import os


def give_memory_back() -> None:
    """Let the system have what finding groups or compiling needed for a moment: the C library keeps it, hundreds of MiB."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)
