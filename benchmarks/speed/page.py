"""docs/benchmarks.md, written from the figures: ratios, and what they mean."""

from __future__ import annotations

from typing import Any

import numpy as np
from page_sweeps import (
    LABELS,
    NAMES,
    STACKS,
    analysis,
    estimate,
    limits,
    runtimes,
    samples_between,
    search,
    sweeps,
    told,
)
from page_table import table

Figures = dict[str, Any]

__all__ = ["mean_cost", "reference_of", "rendered", "samples_apart", "samples_between", "told"]

TOP = """# How fast it is

Written by `make bench` from the figures in [benchmarks.json](benchmarks.json); don't edit it by hand.

Everything here is a ratio of times that were measured in the same run, on a machine with {machine} and no GPU.
Seconds of one machine say little about another; the raw ones are in the JSON file. What is not in it was not measured.
The same part measured twice differed by up to a tenth on one such machine, and by a factor of two on a virtual one.

**What is measured.** MobileNetV1 (scale 1.0) on digits enlarged to 128x128, scored by accuracy; and PP-OCRv3 det with
the released weights on rendered scenes of 320x320, scored by PaddleOCR's own evaluation loop and metric (hmean). Filters
are ranked by FPGM.{others} The tables say on how
many images. Rows with other counts come from other runs, and may come from another machine or from earlier code.

**Against what.** PaddleSlim 2.6.0's `FPGMFilterPruner.sensitive` on Paddle 2.6.2, in the same process and run. It runs on Paddle
2.6 only; on Paddle 3 dysens is compared with its own live model. Both compute on one core, which is Paddle's default
(`OMP_NUM_THREADS` is 1); dysens's compiled copy takes all cores, and so there are columns for one core and for two.
"""


def rendered(figures: dict[str, Figures]) -> str:
    """The page."""
    slim, new = figures.get("paddle26", {}), figures.get("paddle3", {})
    sections = [
        TOP.format(machine=_machine(figures), others=_others(figures)),
        sweeps(slim, new),
        limits(slim, new),
        runtimes(slim, new),
        _points(slim, new),
        _breakdown(slim),
        search(slim, new),
        estimate(slim, new),
        _growth(slim),
        analysis(slim, new),
        _memory(slim, new),
        _reuse(slim),
    ]
    return "\n".join(section for section in sections if section)


def _machine(figures: dict[str, Figures]) -> str:
    """In words, and both if the stacks were measured on two machines."""
    machines = [parts["machine"] for parts in figures.values() if "machine" in parts]
    words = {f"{m['cores']} cores ({m['processor']} with {m['vectors'] or 'no AVX2'})" for m in machines}
    return " and another with ".join(sorted(words)) or "a few cores"


def _others(figures: dict[str, Figures]) -> str:
    """The networks of which only sweeps were measured."""
    found = dict.fromkeys(
        part["network"]
        for parts in figures.values()
        for name, part in parts.items()
        if name.startswith("sweep")
        and part.get("runtime")
        and not name.startswith(("sweep mob", "sweep ocr"))
    )
    listed = ", ".join(found)
    return f" Of these, sweeps were measured too, with released weights: {listed}." if listed else ""


def reference_of(part: Figures) -> str:
    """What dysens is compared with: PaddleSlim where it runs."""
    return "slim" if "slim" in part["points"][0]["cpu"] else "eager"


def mean_cost(part: Figures, way: str) -> float:
    """What a point costs, over the sample."""
    return float(np.mean([row["cpu"][way] for row in part["points"]]))


def samples_apart(part: Figures, way: str, other: str) -> float:
    """How many samples the largest difference of a loss is worth."""
    gaps = [abs(row["loss"][way] - row["loss"][other]) for row in part["points"]]
    return max(gaps) * (part["baseline"] + 1e-3) * part["images"]


def _points(slim: Figures, new: Figures) -> str:
    rows = []
    for label, parts in (("Paddle 2.6", slim), ("Paddle 3", new)):
        for name, network in NAMES.items():
            part = parts.get(f"points {name}")
            if part is None:
                continue
            base = mean_cost(part, reference_of(part))
            rows.append(
                [
                    f"{network}, {label}",
                    LABELS[reference_of(part)],
                    *(f"{base / mean_cost(part, way):.1f}x" for way in ("eager", "function", "fast")),
                    f"{samples_apart(part, 'fast', reference_of(part)):.2f}",
                ]
            )
    if not rows:
        return ""
    return f"""## A point of a sweep

How many points are measured in the time in which the reference measures one.

{
        table(
            [
                "network",
                "reference",
                "dysens, live model",
                "compiled, the same `eval_func`",
                "compiled, `Evaluator`",
                "samples apart",
            ],
            rows,
        )
    }
Five groups from the first layer to the last, each at another ratio, measured in turns by all, on one core and in processor
seconds, so that other work on the machine counts little; two points of a group at a time, so that beginnings are not shared.
"Samples apart" is the largest difference between two losses, in images. Compiling (a few seconds, once a sweep) is not in this
table; it is in the others.
"""


def _breakdown(slim: Figures) -> str:
    rows = []
    for name, network in NAMES.items():
        part = slim.get(f"points {name}")
        if part is None:
            continue
        times = part["breakdown"]
        fast = mean_cost(part, "fast")
        whole = times["load"] + times["forward"] + times["measure"]
        left = fast - times["measure"]
        rows.append(
            [
                network,
                *(f"{times[key] / whole:.0%}" for key in ("load", "forward", "measure")),
                f"{times['forward'] / left:.1f}x",
                f"{times['measure'] / fast:.0%}",
            ]
        )
    if not rows:
        return ""
    header = ["network", "loading", "forward", "post-process and metric", "forward alone, compiled"]
    return f"""## Where the time goes

Of an evaluation with the live model, Paddle 2.6; then how much faster the forward alone is when compiled, and which share of a
compiled point is left for post-process and metric (data are kept in memory, so loading is gone).

{table([*header, "post-process and metric, compiled"], rows)}"""


def _growth(slim: Figures) -> str:
    part = slim.get("growth")
    if part is None:
        return ""
    start = part["from"]
    rows = [
        [what, f"{start[what]} to {2 * start[what]}", f"{2**exponent:.2f}x", f"{exponent:.2f}"]
        for what, exponent in part["exponents"].items()
    ]
    return f"""## How the cost grows

A whole sweep of MobileNetV1, compiled, compiling included, when one thing is doubled. An exponent of 1 is
proportional; it is lower where what is paid once (compiling, comparing, the baseline) still counts.

{table(["doubled", "from, to", "time", "exponent"], rows)}"""


def _memory(slim: Figures, new: Figures) -> str:
    rows = []
    for stack, parts in zip(STACKS, (slim, new)):
        for name, network in NAMES.items():
            part = parts.get(f"memory {name}")
            if part is not None:
                cells = [part.get(way) for way in ("slim", "fast", "search")]
                alone = part["model alone"]
                rows.append(
                    [
                        f"{network}, {stack}",
                        *(f"{each / alone:.2f}x" if each else "not run" for each in cells),
                    ]
                )
    if not rows:
        return ""
    header = ["network", "PaddleSlim", "compiled sweep", "search"]
    text = f"""## Memory

Peak of the process on a few images, against one that builds the network and its data and evaluates once. Each in a process of its
own. With more images more is kept: the data, up to `cache_gib` (2 GiB), and what shared beginnings begin with, until the process
has grown by a sixth.

{table(header, rows)}"""
    many = slim.get("many points")
    if many is None:
        return text
    lines = []
    for way, label in (("eager", "live model"), ("fast", "compiled")):
        after = {int(count): value for count, value in many[way]["after"].items()}
        first, last = after[100], after[max(after)]
        lines.append([label, str(many[way]["points"]), f"{last / after[25]:.3f}x", f"{last / first:.3f}x"])
    return f"""{text}
Over hundreds of points it does not grow: memory after the last point, against that after 25 and after 100.

{table(["MobileNetV1", "points", "after 25", "after 100"], lines)}"""


def _reuse(slim: Figures) -> str:
    part = slim.get("reuse")
    if part is None:
        return ""
    rows = [
        [network, str(figures["points"]), f"{figures['without'] / figures['with']:.2f}x"]
        for network, figures in part.items()
        if network != "version"
    ]
    return f"""## Shared beginnings

All ratios of a group share what lies before its first consumer. dysens computes that once where compiling a copy that begins in
the middle pays. How much faster a whole sweep gets by it:

{table(["network", "points", "with shared beginnings"], rows)}"""
