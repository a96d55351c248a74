"""The raw figures, docs/benchmarks.json: by stack, then by part. Each part is written when it is done.

With DYSENS_BENCH_SMALLEST set, every part runs at the smallest size that runs at all, and its figures, which mean nothing, go to
output/bench-smallest.json: for trying a change before a long run.
"""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any, TypeVar

import paddle
from filelock import FileLock

from dysens import __version__

ROOT = Path(__file__).parents[2]
SMALLEST = "DYSENS_BENCH_SMALLEST"
_FILES = ROOT / ("output/bench-smallest" if os.environ.get(SMALLEST) else "docs/benchmarks")
DATA, PAGE = _FILES.with_suffix(".json"), _FILES.with_suffix(".md")
LOCK, LOG = ROOT / "output" / "bench.lock", ROOT / "output" / "bench.log"
Figures = dict[str, Any]
Size = TypeVar("Size")


def sized(full: Size, smallest: Size) -> Size:
    """The size to measure at."""
    return smallest if os.environ.get(SMALLEST) else full


def stack() -> str:
    """The stack that this process runs in."""
    return "paddle26" if paddle.__version__.startswith("2.") else "paddle3"


def load() -> dict[str, Figures]:
    """All figures that there are."""
    return json.loads(DATA.read_text()) if DATA.exists() else {}


def save(part: str, figures: Figures) -> None:
    """Replace one part's figures of this stack."""
    LOCK.parent.mkdir(exist_ok=True)
    with FileLock(LOCK):
        everything = load()
        figures = {**figures, "version": __version__}
        everything.setdefault(stack(), {}).update({part: figures, "machine": machine()})
        _write(everything)


def forget() -> None:
    """Drop all figures of this stack."""
    LOCK.parent.mkdir(exist_ok=True)
    with FileLock(LOCK):
        _write({name: parts for name, parts in load().items() if name != stack()})


def _write(everything: dict[str, Figures]) -> None:
    DATA.write_text(json.dumps(everything, indent=1, sort_keys=True) + "\n")


def machine() -> Figures:
    """What the figures of a processor depend on most."""
    information = Path("/proc/cpuinfo")
    flags = information.read_text().split() if information.is_file() else []
    vectors = next((name for name, flag in (("AVX-512", "avx512f"), ("AVX2", "avx2")) if flag in flags), None)
    return {"cores": os.cpu_count(), "processor": platform.machine(), "vectors": vectors}
