"""How fast dysens is, against PaddleSlim in the same process: docs/benchmarks.json and .md, and a line of the READMEs.

    .venvs/paddle26/bin/python benchmarks/speed               parts that have no figures yet, those that matter most first
    .venvs/paddle26/bin/python benchmarks/speed PART ...      these parts again
    .venvs/paddle26/bin/python benchmarks/speed --again       all parts again: what was known of this stack is forgotten
    .venvs/paddle26/bin/python benchmarks/speed --minutes 20  as above, but no part begins after so many minutes
    .venvs/paddle26/bin/python benchmarks/speed --smallest    every part at the smallest size, only to see that it runs
    .venvs/paddle26/bin/python benchmarks/speed --page        nothing: only the page and the READMEs from the figures

Each part runs in a process of its own, is on disk when it is done, and is told in a line (all else is in output/bench.log); what
was broken off goes on when it is called again without --again. On Paddle 3 the same groups are swept as on Paddle 2.6, so that
stack goes first. `make bench` runs both.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2])]

import page  # noqa: E402
import readme  # noqa: E402
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


def _runtimes(name: str) -> store.Figures:
    import runtimes

    return runtimes.measure(name)


def _pool(name: str) -> store.Figures:
    import pool

    return pool.measure(name)


def _compress() -> store.Figures:
    import compressing

    return compressing.measure()


def _reuse() -> store.Figures:
    import reuse

    return reuse.measure()


NETWORKS = ("mobilenet", "ocr", "v4 det", "v4 rec", "layout")
SEARCHED = ("mobilenet", "ocr", "v4 rec")
# Those that matter most first.
PARTS: dict[str, Callable[[], store.Figures]] = {
    **{
        f"sweep {name}{cores}": partial(_sweep, name)
        for name in ("ocr", "v4 rec", "mobilenet", "v4 det", "layout")
        for cores in ("", ", one core")
    },
    **{f"runtimes {name}": partial(_runtimes, name) for name in NETWORKS},
    **{f"pool {name}": partial(_pool, name) for name in ("ocr", "v4 det")},
    **{
        f"memory {name}": partial(_memory, name)
        for name in ("ocr", "v4 rec", "v4 det", "layout", "mobilenet")
    },
    **{
        f"{what} {name}": partial(measured, name)
        for name in SEARCHED
        for what, measured in (("grid", _grid), ("ratios", _ratios))
    },
    "compress": _compress,
    **{f"points {name}": partial(_points, name) for name in NETWORKS[:2]},
    "reuse": _reuse,
    "growth": _growth,
    "many points": _many_points,
}
ON_ALL_CORES = tuple(
    part
    for part in PARTS
    if part.startswith(("sweep", "grid", "ratios", "runtimes", "pool")) and not part.endswith(", one core")
)
# What says nothing new on the second stack.
ONLY_WITH_SLIM = ("growth", "many points", "reuse")


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("parts", nargs="*", help=f"any of: {', '.join(PARTS)}")
    options.add_argument(
        "--again", action="store_true", help="forget what is known of this stack, and measure all"
    )
    options.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no part after so many minutes"
    )
    options.add_argument("--smallest", action="store_true", help="only try all parts, as small as they get")
    options.add_argument("--page", action="store_true", help="only write the page and the READMEs")
    options.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("--memory", help=argparse.SUPPRESS)
    arguments = options.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        options.error(f"no such part: {', '.join(sorted(unknown))}")
    if arguments.smallest and not os.environ.get(store.SMALLEST):
        os.environ[store.SMALLEST] = "yes"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    if arguments.memory:
        import memory

        print(json.dumps(memory.here(arguments.memory)))
    elif arguments.here:
        if arguments.parts[0] not in ON_ALL_CORES:
            _keep_to_one_core()
        store.save(arguments.parts[0], PARTS[arguments.parts[0]]())
    elif arguments.page:
        _write()
    else:
        if arguments.again:
            store.forget()
        failed = _run(arguments.parts or _missing(), 60 * arguments.minutes)
        if failed:
            raise SystemExit(f"Failed, and to be measured again: {', '.join(failed)}")


def _run(parts: Sequence[str], seconds: float) -> list[str]:
    """Measure parts one after the other; one that fails does not keep the others from running.

    Returns:
        Those that failed.
    """
    failed, first = [], time.perf_counter()
    store.LOG.parent.mkdir(exist_ok=True)
    for part in parts:
        start = time.perf_counter()
        if start - first > seconds:
            print("The time is over; called again, it goes on.", flush=True)
            break
        print(f"{store.stack()}: {part}", flush=True)
        with store.LOG.open("ab") as log:
            command = [sys.executable, str(Path(__file__).parent), "--here", part]
            done = subprocess.run(command, check=False, stdout=log, stderr=log)
        if done.returncode:
            failed.append(part)
            last = store.LOG.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
            print("\n".join(["  failed:", *last]), flush=True)
        else:
            print(f"  {page.told(part, store.load()[store.stack()][part])}", flush=True)
        print(f"  took {time.perf_counter() - start:.0f} s", flush=True)
        _write()
    print(f"Written: {store.DATA}, {store.PAGE}")
    return failed


def _write() -> None:
    """The page, and what the READMEs say of speed."""
    figures = store.load()
    store.PAGE.write_text(page.rendered(figures), encoding="utf-8")
    if not os.environ.get(store.SMALLEST):
        readme.write(store.ROOT, figures)


def _keep_to_one_core() -> None:
    """Where PaddleSlim and a live model compute by Paddle's default; and processor seconds then do not depend on other work."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})


def _missing() -> list[str]:
    wanted = [part for part in PARTS if store.stack() == "paddle26" or part not in ONLY_WITH_SLIM]
    known = store.load().get(store.stack(), {})
    return [part for part in wanted if part not in known]


if __name__ == "__main__":
    main()
