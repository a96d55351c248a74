"""What `compress` is worth against PaddleSlim's way and against ratios from a sweep, without training: writes docs/compress.md.

    .venvs/paddle3/bin/python benchmarks/compress.py "PP-OCRv4 det" --budgets 0.3 0.5 0.6 --seeds 0 1

Every seed draws its own calibration and test images. Each row is stored in docs/compress.json as soon as it is measured, and
replaces an earlier one of the same network, way, budget and seed; `--page` only writes the page anew.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from zoo import CONFIGS, OCR

from dysens import DygraphSensitivity
from dysens.adapters.ocr import OcrTask, load_config
from dysens.compress import UNIFORM, Allocator, Stopwatch
from dysens.data import write_lines, write_scenes
from dysens.evaluators import Evaluator, evaluate

DOCS = Path(__file__).parent.parent / "docs"
DATA, PAGE = DOCS / "compress.json", DOCS / "compress.md"
RATIOS = (0.1, 0.3, 0.5, 0.7, 0.9)  # of the sweep
IDLE = 1.0  # processes for every core; with more, times are rough
WAYS = {
    "uniform": "FPGM, equal ratios",
    "sweep": "FPGM, sweep and `ratios_by_flops`",
    "compress": "`compress`",
}


class FewBatches(Evaluator):
    """An evaluator on the first so many batches of another, kept in memory."""

    def __init__(self, whole: Evaluator, number: int) -> None:
        self.name = f"{whole.name}, {number} batches"
        self.higher_is_better = whole.higher_is_better
        self._whole = whole
        self._batches = list(islice(iter(whole.batches()), number))

    def batches(self) -> list[Any]:
        return self._batches

    def arguments(self, batch: Any) -> tuple[Any, ...]:
        return self._whole.arguments(batch)

    def measure(self, outputs: Any, batch: Any) -> Any:
        return self._whole.measure(outputs, batch)

    def score(self, measurements: Any) -> float:
        return self._whole.score(measurements)


@dataclass
class Case:
    """A released network, with generated images to calibrate on and others to score on."""

    network: str
    seed: int
    folder: Path
    calibration_images: int = 16
    test_images: int = 40

    @cached_property
    def task(self) -> OcrTask:
        return self._task("calibration", self.calibration_images, 2 * self.seed)

    @cached_property
    def test(self) -> Evaluator:
        task = self._task("test", self.test_images, 2 * self.seed + 1)
        return FewBatches(task.evaluator, self.test_images)

    @cached_property
    def calibration(self) -> Evaluator:
        return FewBatches(self.task.evaluator, self.calibration_images)

    @cached_property
    def ds(self) -> DygraphSensitivity:
        self.task.model.eval()
        return DygraphSensitivity(self.task.model, self.task.example_inputs)

    @cached_property
    def whole(self) -> float:
        return evaluate(self.task.model, self.test)

    @cached_property
    def stopwatch(self) -> Stopwatch:
        return Stopwatch(self.task.model, self.ds._views[0], "paddle", self.folder)

    def _task(self, part: str, count: int, seed: int) -> OcrTask:
        config, weights = OCR[self.network]
        target = self.folder / part
        (write_scenes if "det" in self.network else write_lines)(target, count, seed)
        settings = [
            f"{mode}.dataset.{key}"
            for mode in ("Train", "Eval")
            for key in (f"data_dir={target}", f"label_file_list=[{target}/label.txt]")
        ]
        return OcrTask(
            load_config(CONFIGS / "ocr" / config, [*settings, f"Global.pretrained_model={weights}"])
        )


@contextmanager
def cut_by(case: Case, way: str, budget: float) -> Iterator[dict[str, Any]]:
    """The network, cut in one of the ways, and what is known of the cut."""
    start = time.process_time()
    if way == "compress":
        unlabelled = [case.calibration.arguments(batch) for batch in case.calibration.batches()]
        with case.ds.compressed(unlabelled, flops=budget, progress=False) as outcome:
            seconds = time.process_time() - start
            yield {
                "seconds": seconds,
                "removed": _removed(outcome),
                "proof": outcome.proof,
                "how": outcome.allocation,
            }
        return
    ratios = uniform(case, budget) if way == "uniform" else by_sweep(case, budget)
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


def by_sweep(case: Case, budget: float) -> dict[str, float]:
    """Ratios from a sweep on the calibration images with their labels; the sweep is made once."""
    journal = case.folder / "sweep.jsonl"
    sens = case.ds.sensitive(case.calibration, ratios=RATIOS, sen_file=journal, progress=False)
    return dict(case.ds.ratios_by_flops(sens, budget, align=8))


def measure(case: Case, way: str, budget: float) -> dict[str, Any]:
    """One row."""
    whole, stopwatch = case.whole, case.stopwatch  # both of the whole network, so before it is cut
    before = {name: tensor.numpy() for name, tensor in case.task.model.state_dict().items()}
    with cut_by(case, way, budget) as found:
        score = evaluate(case.task.model, case.test)
        ms_before, ms_after = stopwatch.times()
    after = case.task.model.state_dict()
    return {
        "network": case.network,
        "way": way,
        "budget": budget,
        "seed": case.seed,
        "whole": whole,
        "score": score,
        "ms_before": ms_before,
        "ms_after": ms_after,
        "load": os.getloadavg()[0] / (os.cpu_count() or 1),
        "restored": all((after[name].numpy() == values).all() for name, values in before.items()),
        **found,
    }


def page(rows: list[dict[str, Any]]) -> str:
    """The document."""
    seeds = len({row["seed"] for row in rows})
    lines = [
        "# What compress is worth",
        "",
        "Written by `benchmarks/compress.py`. Released weights, no training. Calibrated on 16 generated images without labels",
        "(the sweep: with labels), scored on 40 others; widths are multiples of 8. Mean and, where there are several, spread",
        f"(largest minus smallest) over sets of images: {seeds}. Time is that of the exported network on one thread with oneDNN,",
        "in turns with the whole one; * means that the machine was busy with other work, or that its load was not noted: rough.",
        "A sweep is made once for all budgets; its seconds are in the row of the first.",
        "",
        "| network | FLOPs removed | way | score, whole | score, cut | time left | CPU s to decide | masked against cut |",
        "|---|---|---|---|---|---|---|---|",
    ]
    keys = sorted({(row["network"], row["budget"], list(WAYS).index(row["way"])) for row in rows})
    for network, budget, place in keys:
        way = list(WAYS)[place]
        some = [r for r in rows if (r["network"], r["budget"], r["way"]) == (network, budget, way)]
        lines.append(
            f"| {network} | {budget:.0%} | {WAYS[way]} | {_mean(some, lambda r: r['whole'])} | "
            f"{_mean(some, lambda r: r['score'])} | "
            f"{_mean(some, lambda r: r['ms_after'] / r['ms_before'], 2)}{_busy(some)} | "
            f"{statistics.mean(r['seconds'] for r in some):.0f} | "
            f"{max(r['proof'] for r in some):.0e} |"
        )
    exact = "bit for bit in every row" if all(row["restored"] for row in rows) else "NOT exact in every row"
    return "\n".join([*lines, "", f"Restored afterwards: {exact}.", ""])


def _busy(rows: list[dict[str, Any]]) -> str:
    return "*" if any(row.get("load") is None or row["load"] > IDLE for row in rows) else ""


def _mean(rows: list[dict[str, Any]], value: Callable[[dict[str, Any]], float], digits: int = 3) -> str:
    values = [value(row) for row in rows]
    text = f"{statistics.mean(values):.{digits}f}"
    return f"{text} (spread {max(values) - min(values):.{digits}f})" if len(values) > 1 else text


def stored() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else []
    return rows


def store(row: dict[str, Any]) -> None:
    same = ("network", "way", "budget", "seed")
    rows = [r for r in stored() if any(r[key] != row[key] for key in same)] + [row]
    DATA.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(rows), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", default=["PP-OCRv4 det"], help=f"of {', '.join(OCR)}")
    parser.add_argument("--budgets", nargs="+", type=float, default=[0.3, 0.5, 0.6])
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--page", action="store_true", help="only write the page from what was measured")
    arguments = parser.parse_args()
    if arguments.page:
        PAGE.write_text(page(stored()), encoding="utf-8")
        return
    for network in arguments.networks:
        for seed in arguments.seeds:
            with tempfile.TemporaryDirectory() as folder:
                case = Case(network, seed, Path(folder))
                for way in arguments.ways:
                    for budget in arguments.budgets:
                        row = measure(case, way, budget)
                        store(row)
                        print(
                            f"{network}, seed {seed}, -{budget:.0%}, {way}: {row['whole']:.3f} -> {row['score']:.3f}, "
                            f"time left {row['ms_after'] / row['ms_before']:.2f}, {row['seconds']:.0f} CPU s",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
