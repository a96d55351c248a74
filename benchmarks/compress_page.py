"""docs/compress.md from what benchmarks/compress.py has stored."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from compress_cases import LAYOUT, NETWORKS, SHAPES

DOCS = Path(__file__).parent.parent / "docs"
DATA, PAGE, HEAD = DOCS / "compress.json", DOCS / "compress.md", Path(__file__).with_name("compress_head.md")
COSTS, TIMES, PARTS = (DOCS / f"compress_{what}.json" for what in ("costs", "times", "parts"))
RATIOS = (0.2, 0.4, 0.6, 0.8)  # of the sweep
IDLE = 1.0  # processes for every core; with more, times are rough
WHOLE, COMPRESS = "whole", "compress"
WAYS = {
    WHOLE: "nothing cut",
    "uniform": "PaddleSlim's: FPGM, equal ratios",
    "loss": "PaddleSlim's: FPGM, equal losses",
    "sweep": "`ratios_by_flops` (FPGM, a sweep)",
    COMPRESS: "**`compress`**",
}
DETECTORS, REC = ("PP-OCRv3 det", "PP-OCRv4 det", LAYOUT, SHAPES), "PP-OCRv4 rec"
CUT, TRAINED = "score", "trained"
DEPTHWISE = ", depthwise"  # ends the names of parts
Rows = list[dict[str, Any]]
# What is wanted of `compress`: network, share of the FLOPs, which score, points that it may lose.
GOALS: dict[str, list[tuple[str, float, str, float]]] = {
    "Detectors at -50 % lose at most 2 points without training": [(n, 0.5, CUT, 2.0) for n in DETECTORS],
    "The recogniser at -20 % loses at most 3 points without training": [(REC, 0.2, CUT, 3.0)],
    "At most 1 point after the short training, at -50 % (recogniser: -30 %)": [
        (n, 0.3 if n == REC else 0.5, TRAINED, 1.0) for n in NETWORKS
    ],
}
# How many times as fast, at most so many points below the whole network.
FASTER = {"PP-OCRv4 det": (1.6, 2.0), REC: (1.3, 3.0)}


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


def summary(rows: Rows, times: Rows) -> list[str]:
    """What was wanted, and what was reached."""
    lines = []
    for goal, parts in GOALS.items():
        lines.append(f"- {goal}: {_reached(rows, parts)}.")
    for key, when in ((CUT, "without training"), (TRAINED, "after the short training")):
        number, behind = first(rows, key)
        others = f"; not at {'; '.join(behind)}" if behind else ""
        lines.append(
            f"- `compress` first of the ways measured, {when}: at {number - len(behind)} of {number} budgets{others}."
        )
    lines.append(f"- Faster, at these scores: {'; '.join(_faster(times, rows))}.")
    most = max((max(row["proof"], row["exported"]) for row in rows), default=math.nan)
    lines.append(f"- Masked against cut, and exported against live, in every row: at most {most:.0e} apart.")
    lines += [
        "",
        "Points that `compress` loses, without training → after the short one; means over the draws.",
        "",
    ]
    budgets = sorted({row["budget"] for row in rows if row["way"] == COMPRESS})
    lines.append(f"| network | {' | '.join(f'-{budget:.0%}' for budget in budgets)} |")
    lines.append("|---|" + "---|" * len(budgets))
    for network in NETWORKS:
        cells = [_lost(rows, _some(rows, network, budget, COMPRESS)) for budget in budgets]
        if any(cells):
            lines.append(f"| {network} | {' | '.join(cells)} |")
    return lines


def _reached(rows: Rows, parts: Iterable[tuple[str, float, str, float]]) -> str:
    """Who reached a goal and who did not, with the points lost."""
    found: dict[bool, list[str]] = {True: [], False: []}
    missing = []
    for network, budget, key, most in parts:
        lost = _below(rows, _some(rows, network, budget, COMPRESS), key)
        if lost:
            mean = statistics.mean(lost)
            found[mean <= most].append(f"{network} ({mean:.2f}, {_draws(len(lost))})")
        else:
            missing.append(network)
    said = {
        "reached by": found[True],
        "**not** by": found[False],
        "not measured": missing,
    }
    return "; ".join(f"{word} {', '.join(names)}" for word, names in said.items() if names)


def _below(rows: Rows, some: Rows, key: str) -> list[float]:
    """How many points cut networks are below the whole one, or, once trained, below what it is after the same training if that
    is known to be better."""
    trained = {
        (r["network"], r["seed"]): r[TRAINED] for r in rows if r["way"] == WHOLE and r[TRAINED] is not None
    }
    found = []
    for row in some:
        if row[key] is not None:
            control = trained.get((row["network"], row["seed"]), 0.0) if key == TRAINED else 0.0
            found.append(100 * (max(row["whole"], control) - row[key]))
    return found


def _draws(number: int) -> str:
    return "one draw" if number == 1 else f"{number} draws"


def first(rows: Rows, key: str) -> tuple[int, list[str]]:
    """At how many budgets `compress` can be compared, and where another way is ahead of it on the draws that both have."""
    number, behind = 0, []
    for network, budget in _budgets(rows):
        ours = {row["seed"]: row for row in _some(rows, network, budget, COMPRESS)}
        better, compared = [], False
        for way in WAYS:
            if way in (WHOLE, COMPRESS):
                continue
            both = [
                (row[key], ours[row["seed"]][key])
                for row in _some(rows, network, budget, way)
                if row["seed"] in ours
                and row["whole"]
                == ours[row["seed"]]["whole"]  # other pictures, or another training, elsewhere
                and None not in (row[key], ours[row["seed"]][key])
            ]
            if not both:
                continue
            compared = True
            theirs, own = (statistics.mean(each) for each in zip(*both))
            if theirs > own + 1e-9:
                better.append(f"{_short(way)} {theirs:.3f} to {own:.3f} ({_draws(len(both))})")
        number += compared
        if better:
            behind.append(f"{network} -{budget:.0%}: {', '.join(better)}")
    return number, behind


def _short(way: str) -> str:
    return {"uniform": "equal ratios", "loss": "equal losses", "sweep": "`ratios_by_flops`"}[way]


def _faster(times: Rows, rows: Rows) -> Iterator[str]:
    """For each network the fastest cut that keeps its score; where rows of FLOPs time the same inputs, of those too."""
    for network, (wanted, most) in FASTER.items():
        cuts = [[row] for row in times if row["network"] == network]
        if network == REC:
            cuts += [_some(rows, REC, budget, COMPRESS) for _, budget in _budgets(rows)]
        good = [
            some for some in cuts if some and statistics.mean(_points(r, CUT) or 0.0 for r in some) <= most
        ]
        if not good:
            yield f"{network} was not measured at at most {most:g} points below the whole network ({wanted} times wanted)"
            continue
        best = max(good, key=_factor)
        missed = "" if _factor(best) >= wanted else ", **not** reached"
        yield (
            f"{network} {_factor(best):.2f}{_busy(best)} times ({wanted} wanted{missed}), "
            f"{statistics.mean(r['whole'] for r in best):.3f} → {statistics.mean(r[CUT] for r in best):.3f}"
        )


def _factor(some: Rows) -> float:
    """How many times as fast."""
    return statistics.mean(row["ms_before"] / row["ms_after"] for row in some)


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
                f"| {part['name']} | {part['ms'] / layers:.0%}{_busy([row])} | {part['flops'] / flops:.0%} |"
                for part in row["parts"]
            ),
        ]
    return lines


def _lost(rows: Rows, some: Rows) -> str:
    lost = [_below(rows, some, key) for key in (CUT, TRAINED)]
    return " → ".join(f"{statistics.mean(each):.1f}" for each in lost if each)


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
    for network, budget in _budgets(rows):
        for way, name in WAYS.items():
            some = _some(rows, network, budget, way)
            if some:
                lines.append(
                    f"| {network} | {budget:.0%} | {name} | {len(some)} | {_mean(some, lambda r: r['whole'])} | "
                    f"{_mean(some, lambda r: r[CUT])} | {_mean(some, lambda r: _points(r, CUT), 1)} | "
                    f"{_mean(some, lambda r: r[TRAINED])} | {_mean(some, lambda r: _points(r, TRAINED), 1)} | "
                    f"{_mean(some, lambda r: r['ms_after'] / r['ms_before'], 2)}{_busy(some)} | "
                    f"{statistics.mean(r['seconds'] for r in some):.0f} | "
                    f"{max(r['proof'] for r in some):.0e} | {max(r['exported'] for r in some):.0e} |"
                )
    cut = [row for row in rows if row["way"] != WHOLE]
    exact = "bit for bit in every row" if all(row["restored"] for row in cut) else "NOT exact in every row"
    most = max((row["memory"] for row in rows), default=0.0)
    return [*lines, "", f"Restored afterwards: {exact}. Largest memory of a whole run: {most:.0f} MiB."]


def _budgets(rows: Rows) -> list[tuple[str, float]]:
    found = {(NETWORKS.index(row["network"]), row["budget"]) for row in rows}
    return [(NETWORKS[number], budget) for number, budget in sorted(found)]


def _some(rows: Rows, network: str, budget: float, way: str) -> Rows:
    return [r for r in rows if (r["network"], r["budget"], r["way"]) == (network, budget, way)]


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
            f"{row['ms_before'] / row['ms_after']:.2f}{_busy([row])} | {row['flops']:.0%} | {row['whole']:.3f} | "
            f"{row['score']:.3f} | {row['seconds']:.0f} |"
        )
    return lines if rows else []


def _points(row: dict[str, Any], key: str) -> float | None:
    """What a score is below the whole network's, in hundredths."""
    return None if row[key] is None else 100 * (row["whole"] - row[key])


def _busy(rows: Rows) -> str:
    return "*" if any(row.get("load") is None or row["load"] > IDLE for row in rows) else ""


def _mean(rows: Rows, value: Callable[[dict[str, Any]], Any], digits: int = 3) -> str:
    values = [value(row) for row in rows if value(row) is not None]
    if not values:
        return ""
    text = f"{statistics.mean(values):.{digits}f}"
    return f"{text} (spread {max(values) - min(values):.{digits}f})" if len(values) > 1 else text


def stored(file: Path) -> Rows:
    rows: Rows = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    return rows
