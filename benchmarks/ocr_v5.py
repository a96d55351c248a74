"""PP-OCRv5 mobile, compressed, and with shorter dictionaries: writes the tables of docs/ocr.md.

    .venvs/paddle3/bin/python benchmarks/ocr_v5.py --only det-whole det-30 det-50 det-60
    .venvs/paddle3/bin/python benchmarks/ocr_v5.py --page

Every row is stored in docs/ocr_v5.json as soon as it is measured; a row that is there is not measured again without `--again`.
Images are generated: calibration and test sets have seeds of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from dysens import DygraphSensitivity
from dysens.adapters.ocr import OcrTask, cut_characters, load_config, preset_characters
from dysens.costs import Predictor, cost_of, file_size, median_seconds
from dysens.data import Fonts, find_fonts, write_lines, write_scenes
from dysens.evaluators import evaluate
from dysens.model import view_of

ROOT = Path(__file__).parent.parent
DATA, PAGE = ROOT / "docs" / "ocr_v5.json", ROOT / "docs" / "ocr.md"
BEGIN, END = "<!-- written by benchmarks/ocr_v5.py -->", "<!-- until here -->"
IMAGES = {"det": 24, "rec": 150}
CALIBRATION = {"det": 16, "rec": 100}


class Bench:
    """The generated sets, and the tasks on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        latin = Fonts(find_fonts().latin)
        for part, seed in (("calibration", 12), ("test", 13)):
            for kind in ("det", "rec"):
                target = folder / f"{kind}_{part}"
                if (target / "label.txt").is_file():
                    continue
                count = (CALIBRATION if part == "calibration" else IMAGES)[kind]
                if kind == "det":
                    write_scenes(target, count, seed)
                else:
                    write_lines(target, count, seed)
        if not (folder / "rec_ascii" / "label.txt").is_file():
            write_lines(folder / "rec_ascii", IMAGES["rec"], 14, latin)

    def task(self, kind: str, part: str, config: Path | None = None, weights: str | None = None) -> OcrTask:
        """PP-OCRv5 mobile, or another config, with one of the sets to score on."""
        score = self.folder / f"{kind}_{part}"
        settings = [
            f"Eval.dataset.data_dir={score}",
            f"Eval.dataset.label_file_list=[{score}/label.txt]",
            *([f"Global.pretrained_model={weights}"] if weights else []),
        ]
        return OcrTask(load_config(config or ROOT / f"configs/ocr/PP-OCRv5_mobile_{kind}.yml", settings))


def measured(bench: Bench, task: OcrTask, name: str) -> dict[str, Any]:
    """Score, costs, file and time of a network as it is."""
    folder = bench.folder / "exports" / name
    exported = task.export(folder)
    cost = cost_of(task.model, view_of(task.example_inputs))
    seconds = median_seconds({name: Predictor(exported.prefix)}, task.timing_inputs(), 30)[name]
    return {
        "score": evaluate(task.model, task.evaluator),
        "flops": cost.flops,
        "bytes": file_size(exported.prefix),
        "ms": 1000 * seconds,
        "load": os.getloadavg()[0],
    }


def compressed(
    bench: Bench, kind: str, share: float, part: str, name: str, folder: Path | None = None
) -> dict[str, Any]:
    """A row of `compress`, of the released network or of one whose dictionary was cut into a folder."""
    config = folder / "config.yml" if folder else None
    task = bench.task(kind, "calibration", config, str(folder / "characters") if folder else None)
    data = [task.evaluator.arguments(batch) for batch in task.evaluator.batches()]
    ds = DygraphSensitivity(task.model, task.example_inputs)
    outcome = ds.compress(data, flops=share, progress=False)
    judged = bench.task(kind, part, config)
    task.__dict__["evaluator"] = judged.evaluator
    row = measured(bench, task, name)
    return {**row, "removed": 1 - outcome.flops_after / outcome.flops_before, "proof": outcome.proof}


def row_of(bench: Bench, name: str) -> dict[str, Any]:
    """One row by its name, such as det-50, rec-whole, ascii, ascii-20, chinese."""
    kind, _, what = name.partition("-")
    if kind in ("det", "rec"):
        if what == "whole":
            return measured(bench, bench.task(kind, "test"), name)
        return compressed(bench, kind, int(what) / 100, "test", name)
    part = "ascii" if kind == "ascii" else "test"
    if what == "before":
        return measured(bench, bench.task("rec", part), name)
    folder = bench.folder / kind
    if not (folder / "config.yml").is_file() or not what:
        task = bench.task("rec", part)
        cut = cut_characters(task, preset_characters(kind), folder)
        row = measured(bench, task, name)
        known = {"characters": cut.after, "params": cut.params_after, "params_before": cut.params_before}
        if not what:
            return {**row, **known, "difference": cut.difference}
    return compressed(bench, "rec", int(what) / 100, part, name, folder)


ROWS: tuple[str, ...] = (
    "rec-whole",
    "ascii-before",
    "ascii",
    "chinese",
    "det-whole",
    "det-30",
    "det-50",
    "det-60",
    "rec-20",
    "rec-30",
    "ascii-20",
)
TITLES: dict[str, str] = {
    "det-whole": "det, as released",
    "rec-whole": "rec, as released",
    "ascii-before": "rec, as released, on lines in ASCII",
    "ascii": "rec, `--preset ascii`, the same lines",
    "ascii-20": "rec, `--preset ascii`, then `compress` at 20 %, the same lines",
    "chinese": "rec, `--preset chinese`",
}


def page(rows: dict[str, dict[str, Any]]) -> str:
    """The table."""
    lines = [
        "",
        "| PP-OCRv5 mobile | hmean or acc | FLOPs | file, KiB | ms |",
        "|---|---|---|---|---|",
    ]
    for name in ROWS:
        if name in rows:
            row = rows[name]
            kind, _, share = name.partition("-")
            title = TITLES.get(name, f"{kind}, `compress` at {share} % of the FLOPs, not trained")
            lines.append(
                f"| {title} | {row['score']:.3f} | {row['flops']:,} | {row['bytes'] / 1024:,.0f} | {row['ms']:.1f} |"
            )
    told = [
        f"{TITLES[name]}: {row['characters']:,} characters, {row['params']:,} of {row['params_before']:,} parameters, logits of "
        f"kept characters differ by {row['difference']:.1e} at most."
        for name, row in rows.items()
        if "characters" in row
    ]
    return "\n".join([*lines, "", *told, ""])


def main() -> None:
    """Measure what is asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "ocr_v5")
    options = parser.parse_args()
    rows: dict[str, dict[str, Any]] = json.loads(DATA.read_text()) if DATA.is_file() else {}
    wanted = [] if options.page else [name for name in options.only if options.again or name not in rows]
    bench = Bench(options.folder) if wanted else None
    for name in wanted:
        assert bench is not None
        rows[name] = row_of(bench, name)
        print(name, rows[name], flush=True)
        DATA.write_text(json.dumps(rows, indent=1) + "\n")
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    if rest:
        PAGE.write_text(f"{before}{BEGIN}\n{page(rows)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
