"""PP-OCRv5 mobile, compressed, and with shorter dictionaries: writes the tables of docs/ocr.md.

    .venvs/paddle3/bin/python benchmarks/ocr_v5.py --only det-whole det-30 det-50 det-60
    .venvs/paddle3/bin/python benchmarks/ocr_v5.py --time
    .venvs/paddle3/bin/python benchmarks/ocr_v5.py --page

Every row is stored in docs/ocr_v5.json as soon as it is measured, with the commit that measured it and a name for the pictures;
a row that is there is not measured again without `--again`.
Times are taken of all exported models of a kind in turns, in a run of their own. Images are generated: those to train and
calibrate on and those to score on have seeds of their own. They are the same on every machine: English in matplotlib's fonts,
and Chinese in WenQuanYi Micro Hei alone (fonts-wqy-microhei).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
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
from dysens.costs import Predictor, cost_of, file_size
from dysens.data import Fonts, find_fonts, write_lines, write_scenes
from dysens.demos.ocr import TRAIN_BY_CTC
from dysens.evaluators import evaluate
from dysens.model import doubled, in_double_precision, view_of

ROOT = Path(__file__).parent.parent
DATA = ROOT / "docs" / "ocr_v5.json"
BEGIN, END = "<!-- written by benchmarks/ocr_v5.py -->", "<!-- until here -->"
# Images of each set; the lines of "rec" are ASCII.
TEST = {"det": 32, "rec": 128, "chinese": 128}
TRAIN = {"det": 64, "rec": 192, "chinese": 192}
SETS = {"det": "det", "chinese": "chinese"}  # by the first word of a row; all others are of "rec"
ROUNDS = 40  # of timing
IDLE = 1.0  # processes for every core; with more, times are rough
SEEDS = {"train": 12, "test": 13}
CHINESE_FONT = "wqy-microhei.ttc"
# A short training with PaddleOCR's loop: 32 steps of 4 scenes, 12 steps of 16 lines.
TRAINING = {
    "det": ("Global.epoch_num=2",),
    "rec": ("Global.epoch_num=1", "Optimizer.lr.learning_rate=0.0002", *TRAIN_BY_CTC),
}


class Bench:
    """The generated sets, and the configs on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def drawn(self, name: str, part: str) -> Path:
        """The folder of one of the sets, which is drawn unless it is there."""
        target, seed = self.folder / f"{name}_{part}", SEEDS[part]
        count = (TRAIN if part == "train" else TEST)[name]
        if (target / "label.txt").is_file():
            return target
        fonts = find_fonts()
        if name == "det":
            write_scenes(target, count, seed, fonts=Fonts(fonts.latin))
        elif name == "rec":
            write_lines(target, count, seed, Fonts(fonts.latin))
        else:
            chinese = tuple(path for path in fonts.chinese if path.name == CHINESE_FONT)[:1]
            if not chinese:
                raise SystemExit(
                    f"Chinese rows are of lines in {CHINESE_FONT}, which is not installed: `apt install fonts-wqy-microhei`."
                )
            common = "".join(
                sorted(each for each in preset_characters("chinese") if "\u4e00" <= each <= "\u9fff")
            )
            write_lines(target, count, seed, Fonts(fonts.latin, chinese), common)
        return target

    def settings(self, name: str) -> list[str]:
        """Overrides that point a config at the sets of a row, and make its training short."""
        kind = SETS.get(name, "rec")
        parts = {"Train": self.drawn(kind, "train"), "Eval": self.drawn(kind, "test")}
        return [
            *(f"{mode}.dataset.data_dir={path}" for mode, path in parts.items()),
            *(f"{mode}.dataset.label_file_list=[{path}/label.txt]" for mode, path in parts.items()),
            *TRAINING["det" if name == "det" else "rec"],
        ]

    def task(self, name: str, config: Path | None = None, *more: str) -> OcrTask:
        """The released network, or that of another config, on the sets of a row."""
        return OcrTask(load_config(config or released_config(name), [*self.settings(name), *more]))


def state_of(bench: Bench, row: str) -> dict[str, str]:
    """What a row was measured with: the commit of the code, and a name for the pictures, which may come from other fonts."""
    kind = SETS.get(row.partition("-")[0], "rec")
    files = [file for part in SEEDS for file in sorted(bench.drawn(kind, part).iterdir())]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    return {
        "commit": commit,
        "pictures": hashlib.sha1(b"".join(each.read_bytes() for each in files)).hexdigest()[:8],
    }


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
    """A released network; what it says on the test set is compared with its ONNX model, and with double precision."""
    task = bench.task(name)
    session = onnxruntime.InferenceSession(
        str(released_model(f"PP-OCRv5_mobile_{'det' if name == 'det' else 'rec'}"))
    )
    place = -1 if name != "det" else 0  # of what is exported among the outputs

    def live(images: paddle.Tensor) -> np.ndarray:
        with paddle.no_grad():
            return paddle.utils.flatten(task.model(images))[place].numpy()

    def exported(images: paddle.Tensor) -> np.ndarray:
        return session.run(None, {session.get_inputs()[0].name: images.numpy()})[0]

    task.model.eval()
    worst = (-1.0, task.example_inputs[0])
    for images, *_ in task.evaluator.batches():
        apart = np.abs(live(images) - exported(images))
        row = int(apart.reshape(len(apart), -1).max(axis=1).argmax())
        worst = max(worst, (float(apart.max()), images[row : row + 1]), key=lambda each: each[0])
    with in_double_precision(task.model):
        truth = live(doubled(worst[1]))
    rounding = [float(np.abs(said(worst[1]) - truth).max()) for said in (live, exported)]
    return {**measured(task, folder / "inference"), "onnx": worst[0], "rounding": rounding}


def tuned(bench: Bench, name: str, folder: Path) -> dict[str, Any]:
    """How a released network scores after the training that the others get: their gain or loss without a cut."""
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
    """One row by its name, such as det-50, rec-whole, ascii-cut, ascii-20, chinese-before."""
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
    "det-tuned": "det, whole, trained the same",
    "det-30": "det, `compress --flops 30%`",
    "det-50": "det, `compress --flops 50%`",
    "det-60": "det, `compress --flops 60%`",
    "rec-whole": "rec, as released",
    "rec-tuned": "rec, whole, trained the same",
    "rec-20": "rec, `compress --flops 20%`",
    "rec-30": "rec, `compress --flops 30%`",
    "ascii-cut": "rec, `characters --preset ascii`",
    "ascii-20": "then `compress --flops 20%`",
    "chinese-before": "rec, as released, lines of common Chinese characters",
    "chinese-tuned": "the same, whole, trained the same",
    "chinese-cut": "rec, `characters --preset chinese`",
    "chinese-20": "then `compress --flops 20%`",
}


def take_times(bench: Bench, rows: dict[str, dict[str, Any]]) -> None:
    """The median CPU time of one image of every exported model, on one thread, in turns with the others of its kind.

    Models that are not in the folder of this run keep no time: one of another run could not be compared.
    """
    for row in rows.values():
        row.pop("ms", None)
    for kind in ("det", "rec"):
        folders = {row: bench.folder / row / "inference" for row in ROWS if row in rows}
        predictors = {
            row: Predictor(folder / "inference")
            for row, folder in folders.items()
            if row.startswith("det") == (kind == "det") and folder.is_dir()
        }
        if not predictors:
            continue
        inputs = bench.task(kind, None, "Global.pretrained_model=null").timing_inputs()
        seconds: dict[str, list[float]] = {row: [] for row in predictors}
        for number in range(ROUNDS + 2):
            for row, predictor in predictors.items():
                start = time.process_time()
                predictor.answer(inputs)
                if number >= 2:
                    seconds[row].append(time.process_time() - start)
        for row, values in seconds.items():
            rows[row]["ms"] = 1000 * statistics.median(values)
            rows[row]["load"] = os.getloadavg()[0] / (os.cpu_count() or 1)


@dataclass(frozen=True)
class Words:
    """A page's language."""

    header: str
    titles: dict[str, str]
    how: str
    cut: str
    onnx: str
    exported: str


SIZES = {
    "det": TEST["det"],
    "train": TRAIN["det"],
    "lines": TEST["rec"],
    "train_lines": TRAIN["rec"],
    "rounds": ROUNDS,
}
ENGLISH = Words(
    "| PP-OCRv5 mobile | hmean or acc | after a short training | FLOPs | file, KiB | ms |",
    ROWS,
    "{train} generated scenes or {train_lines} lines to calibrate and train on (32 steps of 4 scenes, 12 of 16 lines), "
    "{det} others or {lines} to score on: one box or line more or less is about one percent. The released models never saw "
    "such images. The file is the exported model; ms is the CPU time of one image "
    "(320x320, a line of 48x320) in Paddle's predictor with oneDNN on one thread, median of {rounds} in turns; a star means "
    "that the machine was busy with other work: rough.",
    "- {title}: {characters:,} characters, {params:,} of {params_before:,} parameters; logits of kept characters differ by "
    "{difference:.1e} at most from those before.",
    "- {title}: outputs on the images to score differ by {onnx:.1e} at most from those of the ONNX model; on the image "
    "where they do, the network is {rounding[0]:.1e} and the ONNX model {rounding[1]:.1e} from what double precision gives.",
    "- Scores of exported and live networks differ by {apart:.4f} at most.",
)
CHINESE = Words(
    "| PP-OCRv5 mobile | hmean 或 acc | 短训练之后 | FLOPs | 文件，KiB | ms |",
    {
        "det-whole": "det，公开模型",
        "det-tuned": "det，不剪，同样训练",
        "det-30": "det，`compress --flops 30%`",
        "det-50": "det，`compress --flops 50%`",
        "det-60": "det，`compress --flops 60%`",
        "rec-whole": "rec，公开模型",
        "rec-tuned": "rec，不剪，同样训练",
        "rec-20": "rec，`compress --flops 20%`",
        "rec-30": "rec，`compress --flops 30%`",
        "ascii-cut": "rec，`characters --preset ascii`",
        "ascii-20": "再 `compress --flops 20%`",
        "chinese-before": "rec，公开模型，常用汉字的文字行",
        "chinese-tuned": "同上，不剪，同样训练",
        "chinese-cut": "rec，`characters --preset chinese`",
        "chinese-20": "再 `compress --flops 20%`",
    },
    "用 {train} 张生成的场景图或 {train_lines} 行文字校准和训练（4 张一步共 32 步，16 行一步共 12 步），"
    "在另外 {det} 张或 {lines} 行上打分：一个框或一行的差别约为百分之一。"
    "公开模型没有见过这样的图片。文件指导出的模型；"
    "ms 是单线程、oneDNN、Paddle predictor 处理一张图（320x320，或 48x320 的一行）的 CPU 时间，"
    "轮流测 {rounds} 次取中位数；带星号的是在机器忙于其他工作时测的，只供粗略参考。",
    "- {title}：保留 {characters:,} 个字符，参数 {params_before:,} -> {params:,}；"
    "保留字符的 logits 与裁剪前最多相差 {difference:.1e}。",
    "- {title}：在打分图片上的输出与 ONNX 模型最多相差 {onnx:.1e}；在相差最大的图片上，"
    "网络与双精度结果相差 {rounding[0]:.1e}，ONNX 模型相差 {rounding[1]:.1e}。",
    "- 导出的模型与动态图网络的得分最多相差 {apart:.4f}。",
)
PAGES = {ROOT / "docs" / "ocr.md": ENGLISH, ROOT / "docs" / "cn" / "ocr.md": CHINESE}


def page(rows: dict[str, dict[str, Any]], words: Words) -> str:
    """The table, and what else was measured in sentences."""
    lines = ["", words.header, "|---|---|---|---|---|---|"]
    for name, title in words.titles.items():
        row = rows.get(name)
        if row is None:
            continue
        cells = [
            f"{row['score']:.3f}" if "score" in row else "",
            f"{row['trained']:.3f}" if "trained" in row else "",
            f"{row['flops']:,}" if "flops" in row else "",
            f"{row['bytes'] / 1024:,.0f}" if "bytes" in row else "",
            f"{row['ms']:.1f}{'*' if row.get('load', IDLE + 1) > IDLE else ''}" if "ms" in row else "",
        ]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    lines += ["", words.how.format(**SIZES), ""]
    known_rows = [(words.titles[name], rows[name]) for name in ROWS if name in rows]
    lines += [words.cut.format(title=title, **row) for title, row in known_rows if "characters" in row]
    lines += [words.onnx.format(title=title, **row) for title, row in known_rows if "onnx" in row]
    apart = [abs(row["score_exported"] - row["trained"]) for _, row in known_rows if "score_exported" in row]
    lines += [words.exported.format(apart=max(apart))] if apart else []
    return "\n".join([*lines, ""])


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
        row = {**row_of(bench, name), **state_of(bench, name)}
        print(name, row, flush=True)
        rows = {**known(), name: row}  # several may measure side by side
        DATA.write_text(json.dumps(rows, indent=1) + "\n")
    if options.time and bench is not None:
        take_times(bench, rows)
        DATA.write_text(json.dumps(rows, indent=1) + "\n")
    for place, words in PAGES.items():
        before, mark, rest = place.read_text(encoding="utf-8").partition(BEGIN)
        if mark:
            text = f"{before}{BEGIN}\n{page(rows, words)}\n{END}{rest.partition(END)[2]}"
            place.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
