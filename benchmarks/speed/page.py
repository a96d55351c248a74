"""docs/benchmarks.md, written from the figures: ratios, and what they mean."""

from __future__ import annotations

from typing import Any

import numpy as np

Figures = dict[str, Any]
LABELS = {"slim": "PaddleSlim", "eager": "dysens, live model"}
NAMES = {"mobilenet": "MobileNetV1", "ocr": "PP-OCRv3 det"}
GRID = [round(0.1 * step, 1) for step in range(10)]

TOP = """# How fast it is

Written by `make bench` from the figures in [benchmarks.json](benchmarks.json); don't edit it by hand.

Everything here is a ratio of times that were measured in the same run, on a machine with two cores (x86-64 with AVX-512) and no
GPU. Seconds of one machine say little about another; the raw ones are in the JSON file. What is not in it was not measured.

**What is measured.** MobileNetV1 (scale 1.0) on {digits} digits enlarged to 128x128, scored by accuracy; and PP-OCRv3 det with
the released weights on {scenes} rendered scenes of 320x320, scored by PaddleOCR's own evaluation loop and metric (hmean). Filters
are ranked by FPGM.

**Against what.** PaddleSlim 2.6.0's `FPGMFilterPruner.sensitive` on Paddle 2.6.2, in the same process and in turns with dysens,
point by point. It runs on Paddle 2.6 only; on Paddle 3 dysens is compared with its own live model.
"""


def rendered(figures: dict[str, Figures]) -> str:
    """The page."""
    slim, new = figures.get("paddle26", {}), figures.get("paddle3", {})
    counts = {"digits": _images(figures, "mobilenet"), "scenes": _images(figures, "ocr")}
    sections = [
        TOP.format(**counts),
        _points(slim, new),
        _breakdown(slim),
        _search(slim, new),
        _estimate(slim, new),
        _growth(slim),
        _memory(slim),
        _reuse(slim),
    ]
    return "\n".join(section for section in sections if section)


def _images(figures: dict[str, Figures], name: str) -> int | str:
    found = [parts[f"points {name}"]["images"] for parts in figures.values() if f"points {name}" in parts]
    return found[0] if found else "?"


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


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
                    f"{base / part['all_cores']:.1f}x" if "all_cores" in part else "not measured",
                    f"{samples_apart(part, 'fast', reference_of(part)):.2f}",
                ]
            )
    if not rows:
        return ""
    return f"""## A point of a sweep

How many points are measured in the time in which the reference measures one.

{
        _table(
            [
                "network",
                "reference",
                "dysens, live model",
                "compiled, the same `eval_func`",
                "compiled, `Evaluator`",
                "the same on all cores",
                "samples apart",
            ],
            rows,
        )
    }
Five groups from the first layer to the last, each at another ratio, measured in turns by all, on one core and in processor
seconds, so that other work on the machine counts little. PaddleSlim and a live model compute on one core by Paddle's default
(`OMP_NUM_THREADS`). The compiled copy takes all of them: the column before the last is its wall time on two cores against the
same reference, and other work on the machine lowers it. "Samples apart" is the largest difference between two losses, in images.

Compiling (a few seconds, once a sweep) is not in this table. It is in the next ones.
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

{_table([*header, "post-process and metric, compiled"], rows)}"""


def steps_apart(part: Figures) -> list[int]:
    """Steps of the grid between what was found and what the whole grid says, group by group."""
    return [
        abs(GRID.index(round(part["answers"][name], 1)) - GRID.index(round(part["expected"][name], 1)))
        for name in part["answers"]
    ]


def _search(slim: Figures, new: Figures) -> str:
    rows = []
    for label, parts in (("Paddle 2.6", slim), ("Paddle 3", new)):
        for name, network in NAMES.items():
            part, points = parts.get(f"ratios {name}"), parts.get(f"points {name}")
            if part is None or points is None:
                continue
            whole = mean_cost(points, reference_of(points)) * (part["points"] + 1)
            apart = steps_apart(part)
            rows.append(
                [
                    f"{network}, {label}",
                    LABELS[reference_of(points)],
                    f"{part['groups']} x 9",
                    f"{whole / part['sweep_seconds']:.1f}x",
                    f"{whole / part['search_seconds']:.1f}x",
                    f"{part['passes']:.0f} of {part['points']}",
                    f"{np.mean([step <= 1 for step in apart]):.0%}",
                    f"{np.mean([step == 0 for step in apart]):.0%}",
                ]
            )
    if not rows:
        return ""
    header = ["network", "reference", "points", "whole grid", "search", "passes over the data"]
    return f"""## Ratios for a loss of 0.02

`ds.search(evaluator, target_loss=0.02)` against the whole grid of nine ratios, everything included (compiling, the baseline,
spot checks). The reference takes hours for its grid, so **its time is seconds a point, from the first table, times the
number of points**, and one more for the baseline. Only groups that PaddleSlim finds too are counted.

{_table([*header, "within one step", "the same"], rows)}
Groups are spread over the network, 16 at most. dysens is timed by the wall clock on all cores, the reference in processor
seconds on one, as in the first table. "Within one step": the share of groups whose ratio is at most one step (0.1) from
the one that dysens's whole grid gives: the last before the first that loses more than 0.02. The points of that grid agree
with PaddleSlim's, as the first table shows.
"""


def _estimate(slim: Figures, new: Figures) -> str:
    found = [
        (label, part["estimate"]["rank_correlation"], part["sweep_seconds"] / part["estimate"]["seconds"])
        for label, parts in (("Paddle 2.6", slim), ("Paddle 3", new))
        if (part := parts.get("ratios mobilenet")) is not None and part.get("estimate")
    ]
    if not found:
        return ""
    told = "; ".join(f"{label}: {rank:.2f}, in 1/{times:.0f} of the time" for label, rank, times in found)
    return f"""## A first look

`ds.estimate`, one pass with gradients over 64 images of MobileNetV1. Its rank correlation (Spearman) with the losses of
the whole compiled grid, over all groups and ratios: {told}.
"""


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

{_table(["doubled", "from, to", "time", "exponent"], rows)}"""


def _memory(slim: Figures) -> str:
    rows = []
    for name, network in NAMES.items():
        part = slim.get(f"memory {name}")
        if part is not None:
            alone = part["model alone"]
            ways = ("slim", "eager", "fast", "search")
            rows.append([network, *(f"{part[way] / alone:.2f}x" for way in ways)])
    if not rows:
        return ""
    header = ["network", "PaddleSlim", "dysens, live model", "compiled", "search"]
    text = f"""## Memory

Peak of the process, against one that builds the network and its data and evaluates once. Each in a process of its own.

{_table(header, rows)}"""
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

{_table(["MobileNetV1", "points", "after 25", "after 100"], lines)}"""


def _reuse(slim: Figures) -> str:
    part = slim.get("reuse")
    if part is None:
        return ""
    rows = [
        [network, str(figures["points"]), f"{figures['without'] / figures['with']:.2f}x"]
        for network, figures in part.items()
    ]
    return f"""## Shared beginnings

All ratios of a group share what lies before its first consumer. dysens computes that once where compiling a copy that begins in
the middle pays. How much faster a whole sweep gets by it:

{_table(["network", "points", "with shared beginnings"], rows)}"""
