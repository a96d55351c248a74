"""The raw figures, docs/benchmarks.json: by stack, then by part. Each part is written when it is done."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import paddle
from filelock import FileLock

DOCS = Path(__file__).parents[2] / "docs"
DATA, PAGE = DOCS / "benchmarks.json", DOCS / "benchmarks.md"
LOCK = Path(__file__).parents[2] / "output" / "bench.lock"
Figures = dict[str, Any]


def stack() -> str:
    """The stack that this process runs in."""
    return "paddle26" if paddle.__version__.startswith("2.") else "paddle3"


def load() -> dict[str, Figures]:
    """All figures that there are."""
    return json.loads(DATA.read_text()) if DATA.exists() else {}


def save(part: str, figures: Figures) -> None:
    """Replace one part's figures of this stack."""
    with FileLock(LOCK):
        everything = load()
        everything.setdefault(stack(), {}).update({part: figures, "machine": machine()})
        DATA.write_text(json.dumps(everything, indent=1, sort_keys=True) + "\n")


def machine() -> Figures:
    """What the figures of a processor depend on most."""
    information = Path("/proc/cpuinfo")
    flags = information.read_text().split() if information.is_file() else []
    vectors = next((name for name, flag in (("AVX-512", "avx512f"), ("AVX2", "avx2")) if flag in flags), None)
    return {"cores": os.cpu_count(), "processor": platform.machine(), "vectors": vectors}
