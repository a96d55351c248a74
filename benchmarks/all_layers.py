"""What `layers="all"` brings to `compress`: PP-OCRv4 rec at equal FLOPs, with and without. Writes into docs/coverage.md.

    .venvs/paddle3/bin/python benchmarks/all_layers.py --budgets 0.3 0.5
    .venvs/paddle3/bin/python benchmarks/coverage.py --page

Each row is stored in docs/coverage_all_layers.json as soon as it is measured.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from compress_cases import CHINESE_FONT, OcrCase, case_of

from dysens import DygraphSensitivity
from dysens.evaluators import evaluate

DATA = Path(__file__).parent.parent / "docs" / "coverage_all_layers.json"


def measure(network: str, layers: str, budgets: list[float], seed: int, folder: Path) -> None:
    """A row for each budget: what is left, and the scores of the whole and of the cut network."""
    case = case_of(network, seed, folder, folder)
    whole = evaluate(case.model, case.test)
    ds = DygraphSensitivity(case.model, case.inputs, train_inputs=case.train_inputs, layers=layers)
    for budget in budgets:
        start = time.process_time()
        with ds.compressed(case.unlabelled, flops=budget, progress=False) as outcome:
            seconds = time.process_time() - start
            row = {
                "network": network,
                "layers": layers,
                "budget": budget,
                "seed": seed,
                "groups": len(ds.groups),
                "flops_left": outcome.flops_after / outcome.flops_before,
                "params_left": outcome.params_after / outcome.params_before,
                "whole": whole,
                "score": evaluate(case.model, case.test),
                "proof": outcome.proof,
                "seconds": seconds,
            }
        store(row)
        print(row, flush=True)


def store(row: dict[str, Any]) -> None:
    """Keep a row in place of an earlier one of the same kind."""
    rows = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else []
    same = ("network", "layers", "budget", "seed")
    rows = [r for r in rows if any(r[key] != row[key] for key in same)] + [row]
    DATA.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("network", nargs="?", default="PP-OCRv4 rec")
    parser.add_argument("--layers", nargs="+", choices=["filters", "all"], default=["filters", "all"])
    parser.add_argument("--budgets", nargs="+", type=float, default=[0.3])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--chinese-font", type=Path, help=f"the file of {CHINESE_FONT} that lines are drawn with"
    )
    arguments = parser.parse_args()
    OcrCase.chinese_font = arguments.chinese_font
    for layers in arguments.layers:
        with tempfile.TemporaryDirectory() as folder:
            measure(arguments.network, layers, arguments.budgets, arguments.seed, Path(folder))


if __name__ == "__main__":
    main()
