"""PP-OCRv5 mobile, compressed, and with shorter dictionaries: writes the tables of docs/ocr.md.

    .venvs/paddle3/bin/python benchmarks/ocr_v5.py --only det-whole det-30 det-50 det-60
    .venvs/paddle3/bin/python benchmarks/ocr_v5.py --time
    .venvs/paddle3/bin/python benchmarks/ocr_v5.py --page

Every row is stored in docs/ocr_v5.json as soon as it is measured; a row that is there is not measured again without `--again`.
Times are taken of all exported models of a kind in turns, in a run of their own. Images are generated: those to train and
calibrate on and those to score on have seeds of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import paddle

from dysens.adapters.ocr import (
    OcrTask,
    cut_characters,
    export,
    load_config,
    preset_characters,
    released_model,
    score_exported,
)
from dysens.costs import Predictor, cost_of, file_size, median_seconds
from dysens.data import Fonts, find_fonts, write_lines, write_scenes
from dysens.demos.ocr import TRAIN_BY_CTC
from dysens.evaluators import evaluate
from dysens.model import view_of

ROOT = Path(__file__).parent.parent
DATA, PAGES = ROOT / "docs" / "ocr_v5.json", (ROOT / "docs" / "ocr.md", ROOT / "docs" / "cn" / "ocr.md")
BEGIN, END = "<!-- written by benchmarks/ocr_v5.py -->", "<!-- until here -->"
# Images of each set; a recogniser cut to ASCII or to Chinese is scored on lines of these characters alone.
TEST = {"det": 32, "rec": 128, "ascii": 128, "chinese": 128}
TRAIN = {"det": 64, "rec": 192, "ascii": 192, "chinese": 192}
SEEDS = {"train": 12, "test": 13}
# A short training with PaddleOCR's loop: 32 steps of 4 scenes, 12 steps of 16 lines.
TRAINING = {
    "det": ("Global.epoch_num=2",),
    "rec": ("Global.epoch_num=1", "Optimizer.lr.learning_rate=0.0002", *TRAIN_BY_CTC),
}


class Bench:
    """The generated sets, and the configs on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        latin = Fonts(find_fonts().latin)
        common = "".join(
            sorted(each for each in preset_characters("chinese") if "\u4e00" <= each <= "\u9fff")
        )
        for part, counts in (("train", TRAIN), ("test", TEST)):
            for name, count in counts.items():
                target, seed = folder / f"{name}_{part}", SEEDS[part]
                if (target / "label.txt").is_file():
                    continue
                if name == "det":
                    write_scenes(target, count, seed)
                elif name == "chinese":
                    write_lines(target, count, seed, characters=common)
                else:
                    write_lines(target, count, seed, latin if name == "ascii" else None)

    def settings(self, name: str) -> list[str]:
        """Overrides that point a config at the sets of a name, and make its training short."""
        parts = {"Train": self.folder / f"{name}_train", "Eval": self.folder / f"{name}_test"}
        return [
            *(f"{mode}.dataset.data_dir={path}" for mode, path in parts.items()),
            *(f"{mode}.dataset.label_file_list=[{path}/label.txt]" for mode, path in parts.items()),
            *TRAINING["det" if name == "det" else "rec"],
        ]

    def task(self, name: str, config: Path | None = None, *more: str) -> OcrTask:
        """The released network, or that of another config, on the sets of a name."""
        return OcrTask(load_config(config or released_config(name), [*self.settings(name), *more]))


def released_config(name: str) -> Path:
    """The config of the released detector or recogniser."""
    return ROOT / f"configs/ocr/PP-OCRv5_mobile_{'det' if name == 'det' else 'rec'}.yml"


def measured(task: OcrTask, folder: Path) -> dict[str, Any]:
    """Costs, file and score of a network as it is; it is exported into a folder, and what is exported is scored."""
    exported = export(task, folder, task.images_to_compare())
    cost = cost_of(task.model, view_of(task.example_inputs))
    return {
        "score": score_exported(task, folder),
        "apart": exported.difference,
        "flops": cost.flops,
        "bytes": file_size(exported.prefix),
    }


def whole(bench: Bench, name: str, folder: Path) -> dict[str, Any]:
    """A released network; what it says on the test set is compared with its ONNX model."""
    task = bench.task(name)
    session = onnxruntime.InferenceSession(
        str(released_model(f"PP-OCRv5_mobile_{'det' if name == 'det' else 'rec'}"))
    )
    task.model.eval()
    apart = 0.0
    for batch in task.evaluator.batches():
        with paddle.no_grad():
            got = paddle.utils.flatten(task.model(batch[0]))[-1 if name != "det" else 0].numpy()
        wanted = session.run(None, {session.get_inputs()[0].name: batch[0].numpy()})[0]
        apart = max(apart, float(np.abs(got - wanted).max()))
    return {**measured(task, folder / "inference"), "onnx": apart}


def tuned(bench: Bench, name: str, folder: Path) -> dict[str, Any]:
    """How a released network scores after the training that the others get: what of their gain is no recovery."""
    task = bench.task(name, None, f"Global.save_model_dir={folder}")
    task.train()
    return {"trained": evaluate(task.model, task.evaluator)}


def compressed(
    bench: Bench, name: str, share: int, folder: Path, config: Path, *options: str
) -> dict[str, Any]:
    """What `dysens compress --train --export` says of a config on the sets of a name."""
    sets = [word for text in bench.settings(name) for word in ("--set", text)]
    command = [
        sys.executable,
        "-m",
        "dysens",
        "compress",
        str(config),
        *sets,
        *options,
        "--flops",
        f"{share}%",
    ]
    command += ["--train", "--anyway", "--export", "--force", "--json", "-o", str(folder)]
    answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    states = {state["state"]: state for state in answer["states"]}
    return {
        "score": states["pruned"]["score"],
        "trained": states["trained"]["score"],
        "score_exported": states["exported"]["score"],
        "flops": answer["flops_after"],
        "bytes": file_size(folder / "inference" / "inference"),
        "removed": 1 - answer["flops_after"] / answer["flops_before"],
        "proof": answer["difference"],
    }


def row_of(bench: Bench, row: str) -> dict[str, Any]:
    """One row by its name, such as det-50, rec-whole, ascii-before, ascii-cut, ascii-20."""
    name, _, what = row.partition("-")
    folder = bench.folder / row
    if what == "whole":
        return whole(bench, name, folder)
    if what == "tuned":
        return tuned(bench, name, folder)
    if what == "before":
        return measured(bench.task(name), folder / "inference")
    if name in ("det", "rec"):
        return compressed(bench, name, int(what), folder, released_config(name))
    if what == "cut":
        task = bench.task(name)
        cut = cut_characters(task, preset_characters(name), folder)
        known = {"characters": cut.after, "params": cut.params_after, "params_before": cut.params_before}
        return {**measured(task, folder / "inference"), **known, "difference": cut.difference}
    before = bench.folder / f"{name}-cut"
    weights = ("--weights", str(before / "characters"))
    return compressed(bench, name, int(what), folder, before / "config.yml", *weights)


ROWS: dict[str, str] = {
    "det-whole": "det, as released",
    "det-tuned": "det, whole, trained like the rows below",
    "det-30": "det, `compress --flops 30%`",
    "det-50": "det, `compress --flops 50%`",
    "det-60": "det, `compress --flops 60%`",
    "rec-whole": "rec, as released",
    "rec-tuned": "rec, whole, trained like the rows below",
    "rec-20": "rec, `compress --flops 20%`",
    "rec-30": "rec, `compress --flops 30%`",
    "ascii-before": "rec, as released, lines in ASCII",
    "ascii-cut": "rec, `characters --preset ascii`",
    "ascii-20": "then `compress --flops 20%`",
    "chinese-before": "rec, as released, lines of common Chinese characters",
    "chinese-cut": "rec, `characters --preset chinese`",
    "chinese-20": "then `compress --flops 20%`",
}


def take_times(bench: Bench, rows: dict[str, dict[str, Any]]) -> None:
    """The median time of one image of every exported model, in turns with the others of its kind."""
    for kind in ("det", "rec"):
        names = [
            row for row in ROWS if "bytes" in rows.get(row, {}) and row.startswith("det") == (kind == "det")
        ]
        predictors = {row: Predictor(bench.folder / row / "inference" / "inference") for row in names}
        if not predictors:
            continue
        seconds = median_seconds(predictors, bench.task(kind).timing_inputs(), 100)
        for row, value in seconds.items():
            rows[row].update(ms=1000 * value, load=os.getloadavg()[0])


def page(rows: dict[str, dict[str, Any]]) -> str:
    """The table."""
    lines = [
        "",
        "| PP-OCRv5 mobile | hmean or acc | after a short training | FLOPs | file, KiB | ms |",
        "|---|---|---|---|---|---|",
    ]
    for name, title in ROWS.items():
        if name in rows:
            row = rows[name]
            trained = f"{row['trained']:.3f}" if "trained" in row else ""
            ms = f"{row['ms']:.1f}{'*' if row['load'] > 2 else ''}" if "ms" in row else ""
            if "score" not in row:
                lines.append(f"| {title} | | {trained} | | | |")
                continue
            lines.append(
                f"| {title} | {row['score']:.3f} | {trained} | {row['flops']:,} | {row['bytes'] / 1024:,.0f} | {ms} |"
            )
    return "\n".join([*lines, "", *told(rows), ""])


def told(rows: dict[str, dict[str, Any]]) -> list[str]:
    """What else was measured, in sentences."""
    lines = [
        f"- {ROWS[name]}: {row['characters']:,} characters, {row['params']:,} of {row['params_before']:,} parameters; logits of "
        f"kept characters differ by {row['difference']:.1e} at most from those before."
        for name, row in rows.items()
        if "characters" in row
    ]
    lines += [
        f"- {ROWS[name]}: outputs on the test images differ by {row['onnx']:.1e} at most from those of the ONNX model."
        for name, row in rows.items()
        if "onnx" in row
    ]
    apart = [
        abs(row["score_exported"] - row.get("trained", row["score"]))
        for row in rows.values()
        if "removed" in row
    ]
    if apart:
        lines.append(
            f"- Scores of exported models differ by {max(apart):.4f} at most from those of the live ones."
        )
    return lines


def known() -> dict[str, dict[str, Any]]:
    """What was measured already."""
    return json.loads(DATA.read_text()) if DATA.is_file() else {}


def main() -> None:
    """Measure what is asked for, and write the pages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--time", action="store_true", help="time what was measured")
    parser.add_argument("--page", action="store_true", help="only write the pages")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "ocr_v5")
    options = parser.parse_args()
    rows = known()
    asked = not (options.page or options.time)
    wanted = [name for name in options.only if asked and (options.again or name not in rows)]
    bench = None if options.page else Bench(options.folder)
    for name in wanted:
        assert bench is not None
        row = row_of(bench, name)
        print(name, row, flush=True)
        rows = {**known(), name: row}  # several may measure side by side
        DATA.write_text(json.dumps(rows, indent=1) + "\n")
    if options.time and bench is not None:
        take_times(bench, rows)
        DATA.write_text(json.dumps(rows, indent=1) + "\n")
    for place in PAGES:
        before, mark, rest = place.read_text(encoding="utf-8").partition(BEGIN)
        if mark:
            place.write_text(
                f"{before}{BEGIN}\n{page(rows)}\n{END}{rest.partition(END)[2]}", encoding="utf-8"
            )


if __name__ == "__main__":
    main()
