"""How fast dysens is, against PaddleSlim in the same process: writes docs/benchmarks.json and docs/benchmarks.md.

    .venvs/paddle26/bin/python benchmarks/speed           all parts that have no figures yet
    .venvs/paddle26/bin/python benchmarks/speed PART ...  these parts again
    .venvs/paddle26/bin/python benchmarks/speed --again   all parts again

Each part runs in a process of its own and is on disk when it is done. `make bench` runs both stacks.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2])]

import page  # noqa: E402
import store  # noqa: E402

import dysens  # noqa: E402, F401  before Paddle: see dysens/__init__.py


def _points(name: str) -> store.Figures:
    import points

    return points.measure(name)


def _ratios(name: str) -> store.Figures:
    import ratios

    return ratios.measure(name)


def _sweep(name: str) -> store.Figures:
    import sweeps

    return sweeps.measure(name)


def _grid(name: str) -> store.Figures:
    import ratios

    return ratios.measure_grid(name)


def _memory(name: str) -> store.Figures:
    import memory

    return memory.measure(name)


def _many_points() -> store.Figures:
    import memory

    return memory.measure_growth()


def _growth() -> store.Figures:
    import growth

    return growth.measure()


def _compress() -> store.Figures:
    import compressing

    return compressing.measure()


def _reuse() -> store.Figures:
    import reuse

    return reuse.measure()


NETWORKS = ("mobilenet", "ocr", "v4 det", "v4 rec", "layout")
SEARCHED = ("mobilenet", "ocr")
PARTS: dict[str, Callable[[], store.Figures]] = {
    **{f"points {name}": partial(_points, name) for name in SEARCHED},
    **{f"sweep {name}": partial(_sweep, name) for name in NETWORKS},
    **{f"sweep {name}, one core": partial(_sweep, name) for name in NETWORKS},
    **{f"grid {name}": partial(_grid, name) for name in SEARCHED},
    **{f"ratios {name}": partial(_ratios, name) for name in SEARCHED},
    "compress": _compress,
    "growth": _growth,
    **{f"memory {name}": partial(_memory, name) for name in NETWORKS[:4]},
    "many points": _many_points,
    "reuse": _reuse,
}
ON_ALL_CORES = tuple(
    part for part in PARTS if part.startswith(("sweep", "grid", "ratios")) and not part.endswith(", one core")
)
# What says nothing new on the second stack.
ONLY_WITH_SLIM = (
    "growth",
    "memory mobilenet",
    "memory ocr",
    "memory v4 det",
    "many points",
    "reuse",
    "compress",
)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("parts", nargs="*", help=f"any of: {', '.join(PARTS)}")
    options.add_argument("--again", action="store_true", help="measure what has figures already")
    options.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("--memory", help=argparse.SUPPRESS)
    arguments = options.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        options.error(f"no such part: {', '.join(sorted(unknown))}")
    if arguments.memory:
        import memory

        print(json.dumps(memory.here(arguments.memory)))
        return
    if arguments.here:
        if arguments.parts[0] not in ON_ALL_CORES:
            _keep_to_one_core()
        store.save(arguments.parts[0], PARTS[arguments.parts[0]]())
        return
    for part in arguments.parts or _missing(arguments.again):
        print(f"{store.stack()}: {part}", flush=True)
        start = time.perf_counter()
        subprocess.run([sys.executable, str(Path(__file__).parent), "--here", part], check=True)
        print(f"  took {time.perf_counter() - start:.0f} s", flush=True)
    store.PAGE.write_text(page.rendered(store.load()), encoding="utf-8")
    print(f"Written: {store.DATA}, {store.PAGE}")


def _keep_to_one_core() -> None:
    """Where PaddleSlim and a live model compute by Paddle's default; and processor seconds then do not depend on other work."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})


def _missing(again: bool) -> list[str]:
    wanted = [part for part in PARTS if store.stack() == "paddle26" or part not in ONLY_WITH_SLIM]
    known = store.load().get(store.stack(), {})
    return [part for part in wanted if again or part not in known]


if __name__ == "__main__":
    main()
