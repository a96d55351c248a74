"""docs/compress.md from what benchmarks/compress.py has stored."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compress_cases import NETWORKS
from compress_summary import (
    CUT,
    TRAINED,
    WAYS,
    WHOLE,
    Rows,
    budgets_of,
    busy,
    points,
    some_of,
    summary,
)

DOCS = Path(__file__).parent.parent / "docs"
DATA, PAGE, HEAD = DOCS / "compress.json", DOCS / "compress.md", Path(__file__).with_name("compress_head.md")
COSTS, TIMES, PARTS = (DOCS / f"compress_{what}.json" for what in ("costs", "times", "parts"))
RATIOS = (0.2, 0.4, 0.6, 0.8)  # of the sweep
DEPTHWISE = ", depthwise"  # ends the names of parts


def page(rows: Rows) -> str:
    """The document."""
    summarised = "\n".join(summary(rows, stored(TIMES)))
    lines = [
        HEAD.read_text(encoding="utf-8").rstrip().replace("{summary}", summarised),
        *scores_table(rows),
        *costs_table(stored(COSTS), rows),
        *times_table(stored(TIMES)),
        *parts_table(stored(PARTS)),
    ]
    return "\n".join([*lines, ""])


def parts_table(parts: Rows) -> list[str]:
    """Where the time of a network goes."""
    lines: list[str] = []
    for row in parts:
        layers = sum(part["ms"] for part in row["parts"])
        flops = sum(part["flops"] for part in row["parts"])
        narrow = [part for part in row["parts"] if part["name"].endswith(DEPTHWISE)]
        lines += [
            "",
            f"## Where the time of {row['network']} goes",
            "",
            "Layers of the whole network, each exported by itself and timed on one thread with oneDNN; shares of their sum. "
            "Activations, softmax and normalisation are not in it. Depthwise convolutions take "
            f"{sum(part['ms'] for part in narrow) / layers:.0%} of the time for "
            f"{sum(part['flops'] for part in narrow) / flops:.0%} of the FLOPs: to remove FLOPs is not to remove time.",
            "",
            "| part | share of the time | share of the FLOPs |",
            "|---|---|---|",
            *(
                f"| {part['name']} | {part['ms'] / layers:.0%}{busy([row])} | {part['flops'] / flops:.0%} |"
                for part in row["parts"]
            ),
        ]
    return lines


def scores_table(rows: Rows) -> list[str]:
    """All rows, the draws of the data in one."""
    lines = [
        "",
        "## All rows",
        "",
        "| network | FLOPs removed | way | draws | score, whole | score, cut | points lost | fine-tuned | points lost "
        "| time left | CPU s to decide | masked against cut | live against exported |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for network, budget in budgets_of(rows):
        for way, name in WAYS.items():
            some = some_of(rows, network, budget, way)
            if some:
                lines.append(
                    f"| {network} | {budget:.0%} | {name} | {len(some)} | {_mean(some, lambda r: r['whole'])} | "
                    f"{_mean(some, lambda r: r[CUT])} | {_mean(some, lambda r: points(r, CUT), 1)} | "
                    f"{_mean(some, lambda r: r[TRAINED])} | {_mean(some, lambda r: points(r, TRAINED), 1)} | "
                    f"{_mean(some, lambda r: r['ms_after'] / r['ms_before'], 2)}{busy(some)} | "
                    f"{statistics.mean(r['seconds'] for r in some):.0f} | "
                    f"{max(r['proof'] for r in some):.0e} | {max(r['exported'] for r in some):.0e} |"
                )
    cut = [row for row in rows if row["way"] != WHOLE]
    exact = "bit for bit in every row" if all(row["restored"] for row in cut) else "NOT exact in every row"
    most = max((row["memory"] for row in rows), default=0.0)
    return [*lines, "", f"Restored afterwards: {exact}. Largest memory of a whole run: {most:.0f} MiB."]


def costs_table(rows: Rows, decided: Rows) -> list[str]:
    """What deciding takes, network by network."""
    lines = [
        "",
        "## What deciding takes",
        "",
        f"A sweep of {len(RATIOS)} ratios on the calibration data, and `compress` on the same data, in CPU seconds. "
        "`ds.estimate` foresees the points of the sweep: rank correlation (Spearman) of its error curves, which need no labels, "
        "and where the training loss is at hand of the Taylor estimate, which needs them.",
        "",
        "| network | groups | points | sweep | `compress` | `estimate` | rank correlation | Taylor's |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: NETWORKS.index(row["network"])):
        some = [r["seconds"] for r in decided if r["network"] == row["network"] and r["way"] == "compress"]
        taylor = "" if row["taylor"] is None else f"{row['taylor']:.2f}"
        lines.append(
            f"| {row['network']} | {row['groups']} | {row['points']} | {row['sweep']:.0f} | "
            f"{statistics.mean(some) if some else math.nan:.0f} | {row['estimate']:.0f} | {row['errors']:.2f} | {taylor} |"
        )
    return lines if rows else []


def times_table(rows: Rows) -> list[str]:
    """Cuts that were asked for by time."""
    lines = [
        "",
        "## Time as the target",
        "",
        "`compress(latency=...)`: cut until the exported network really takes so much less time (one thread, oneDNN, medians "
        "taken in turns; text detectors at 736 x 736). * means that the machine was busy.",
        "",
        "| network | time to remove | ms before | ms after | times as fast | FLOPs removed | score, whole | score, cut | CPU s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (NETWORKS.index(row["network"]), row["share"], row["seed"])):
        lines.append(
            f"| {row['network']} | {row['share']:.0%} | {row['ms_before']:.1f} | {row['ms_after']:.1f} | "
            f"{row['ms_before'] / row['ms_after']:.2f}{busy([row])} | {row['flops']:.0%} | {row['whole']:.3f} | "
            f"{row['score']:.3f} | {row['seconds']:.0f} |"
        )
    return lines if rows else []


def _mean(rows: Rows, value: Callable[[dict[str, Any]], Any], digits: int = 3) -> str:
    values = [value(row) for row in rows if value(row) is not None]
    if not values:
        return ""
    text = f"{statistics.mean(values):.{digits}f}"
    return f"{text} (spread {max(values) - min(values):.{digits}f})" if len(values) > 1 else text


def stored(file: Path) -> Rows:
    rows: Rows = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    return rows
