"""What docs/compress.md says first: what was wanted, what was reached, and where `compress` is not the first."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from typing import Any

from compress_cases import LAYOUT, NETWORKS, SHAPES

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


def summary(rows: Rows, times: Rows) -> list[str]:
    """What was wanted, and what was reached."""
    lines = []
    for goal, parts in GOALS.items():
        lines.append(f"- {goal}: {_reached(rows, parts)}.")
    for key, when in ((CUT, "without training"), (TRAINED, "after the short training")):
        number, behind = first(rows, key)
        others = f"; not at {'; '.join(behind)}" if behind else ""
        ahead, compared = draw_by_draw(rows, key)
        lines.append(
            f"- `compress` first of the ways measured, {when}: at {number - len(behind)} of {number} budgets{others}. "
            f"Against each way on each draw: not behind in {ahead} of {compared}."
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
        cells = [_lost(rows, some_of(rows, network, budget, COMPRESS)) for budget in budgets]
        if any(cells):
            lines.append(f"| {network} | {' | '.join(cells)} |")
    return lines


def _reached(rows: Rows, parts: Iterable[tuple[str, float, str, float]]) -> str:
    """Who reached a goal and who did not, with the points lost."""
    found: dict[bool, list[str]] = {True: [], False: []}
    missing = []
    for network, budget, key, most in parts:
        lost = _below(rows, some_of(rows, network, budget, COMPRESS), key)
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
    for network, budget in budgets_of(rows):
        compared = [(way, both) for way, both in _paired(rows, network, budget, key) if both]
        number += bool(compared)
        better = []
        for way, both in compared:
            theirs, own = (statistics.mean(each) for each in zip(*both))
            if theirs > own + 1e-9:
                better.append(f"{_short(way)} {theirs:.3f} to {own:.3f} ({_draws(len(both))})")
        if better:
            behind.append(f"{network} -{budget:.0%}: {', '.join(better)}")
    return number, behind


def draw_by_draw(rows: Rows, key: str) -> tuple[int, int]:
    """How often `compress` is ahead of another way or equal to it on one draw, and of how many such comparisons."""
    each = [
        ours >= theirs - 1e-9
        for network, budget in budgets_of(rows)
        for _, both in _paired(rows, network, budget, key)
        for theirs, ours in both
    ]
    return sum(each), len(each)


def _paired(
    rows: Rows, network: str, budget: float, key: str
) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """For every other way, its scores and those of `compress` on the draws that both have."""
    ours = {row["seed"]: row for row in some_of(rows, network, budget, COMPRESS)}
    for way in WAYS:
        if way not in (WHOLE, COMPRESS):
            both = [
                (row[key], ours[row["seed"]][key])
                for row in some_of(rows, network, budget, way)
                if row["seed"] in ours
                and row["whole"]
                == ours[row["seed"]]["whole"]  # other pictures, or another training, elsewhere
                and None not in (row[key], ours[row["seed"]][key])
            ]
            yield way, both


def _short(way: str) -> str:
    return {"uniform": "equal ratios", "loss": "equal losses", "sweep": "`ratios_by_flops`"}[way]


def _faster(times: Rows, rows: Rows) -> Iterator[str]:
    """For each network the fastest cut that keeps its score; where rows of FLOPs time the same inputs, of those too."""
    for network, (wanted, most) in FASTER.items():
        cuts = [[row] for row in times if row["network"] == network]
        if network == REC:
            cuts += [some_of(rows, REC, budget, COMPRESS) for _, budget in budgets_of(rows)]
        good = [
            some for some in cuts if some and statistics.mean(points(r, CUT) or 0.0 for r in some) <= most
        ]
        if not good:
            yield f"{network} was not measured at at most {most:g} points below the whole network ({wanted} times wanted)"
            continue
        best = max(good, key=_factor)
        missed = "" if _factor(best) >= wanted else ", **not** reached"
        yield (
            f"{network} {_factor(best):.2f}{busy(best)} times ({wanted} wanted{missed}), "
            f"{statistics.mean(r['whole'] for r in best):.3f} → {statistics.mean(r[CUT] for r in best):.3f}"
        )


def _factor(some: Rows) -> float:
    """How many times as fast."""
    return statistics.mean(row["ms_before"] / row["ms_after"] for row in some)


def _lost(rows: Rows, some: Rows) -> str:
    lost = [_below(rows, some, key) for key in (CUT, TRAINED)]
    return " → ".join(f"{statistics.mean(each):.1f}" for each in lost if each)


def budgets_of(rows: Rows) -> list[tuple[str, float]]:
    found = {(NETWORKS.index(row["network"]), row["budget"]) for row in rows}
    return [(NETWORKS[number], budget) for number, budget in sorted(found)]


def some_of(rows: Rows, network: str, budget: float, way: str) -> Rows:
    return [r for r in rows if (r["network"], r["budget"], r["way"]) == (network, budget, way)]


def points(row: dict[str, Any], key: str) -> float | None:
    """What a score is below the whole network's, in hundredths."""
    return None if row[key] is None else 100 * (row["whole"] - row[key])


def busy(rows: Rows) -> str:
    return "*" if any(row.get("load") is None or row["load"] > IDLE for row in rows) else ""
