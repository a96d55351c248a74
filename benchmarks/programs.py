"""Exported models as live layers: imported, compared, compressed, written back. Writes the table of docs/programs.md.

Run it in each stack; each run replaces its own stack's rows in docs/programs.json and rewrites the table:

    .venvs/paddle3/bin/python benchmarks/programs.py
    .venvs/paddle26/bin/python benchmarks/programs.py

Each network is stored as soon as it is measured; --missing goes on where a run was broken off.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import zoo
from paddle.static import InputSpec

from dysens import DygraphSensitivity
from dysens._pickle import read_plain
from dysens.adapters.det import DetTask
from dysens.adapters.det import load_config as load_det
from dysens.adapters.ocr import OcrTask, load_config, load_ppocr, released_model
from dysens.costs import Predictor, file_size, median_seconds
from dysens.data import write_lines, write_scenes
from dysens.model import tensors_by_path
from dysens.programs import ProgramLayer, load_inference, outputs_apart, run_eagerly, save_inference

DOCS = Path(__file__).parent.parent / "docs"
DATA, PAGE = DOCS / "programs.json", DOCS / "programs.md"
BEGIN, END = "<!-- table: benchmarks/programs.py -->", "<!-- end of table -->"

RELEASED = {
    "PP-OCRv3 det": "ch_PP-OCRv3_det",
    "PP-OCRv4 det": "ch_PP-OCRv4_det",
    "PP-OCRv3 rec": "ch_PP-OCRv3_rec",
    "PP-OCRv4 rec": "ch_PP-OCRv4_rec",
    "PP-OCRv2 cls": "ch_ppocr_mobile_v2.0_cls",
}
VISION = (
    "LeNet",
    "vgg11",
    "resnet18",
    "resnet50",
    "resnext50_32x4d",
    "mobilenet_v1",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mobilenet_v3_large",
    "squeezenet1_0",
    "densenet121",
    "shufflenet_v2_x1_0",
)
NETWORKS = (*RELEASED, "CRNN MobileNetV3", *zoo.DET, *VISION)
SHAPES = {"det": [1, 3, 320, 320], "rec": [1, 3, 48, 320], "cls": [1, 3, 48, 192]}
EQUAL = 0.3  # of every group of networks whose weights are random: there is nothing to keep

Members = list[list[tuple[str, int]]]


def members(ds: DygraphSensitivity, names: dict[str, str], common: set[str]) -> Members:
    """The groups by what they cut of the parameters that network and export have in common.

    Branches that only train are not in an export, and convolutions that it made of several (PP-YOLOE) are not in the network.
    """
    found = [[(names.get(name, name), axis) for name, axis in group.members] for group in ds.groups]
    kept = [sorted(pair for pair in group if pair[0] in common) for group in found]
    return sorted(group for group in kept if group)


def live_and_exported(name: str, folder: Path) -> tuple[Any, Any, Path, dict[str, str]]:
    """The live network with its inputs, its exported model, and what its parameters are called in the latter."""
    if name in RELEASED:
        prefix = released_model(RELEASED[name]) / "inference"
        info = read_plain(Path(f"{prefix}.pdiparams.info"), "such files")
        names = {variable: str(about.get("structured_name", variable)) for variable, about in info.items()}
        live = zoo.build(name) if name in zoo.OCR else classifier()
        return *live, prefix, names
    if name in zoo.OCR or name in zoo.DET:
        if name in zoo.OCR:
            task: Any = OcrTask(load_config(zoo.CONFIGS / "ocr" / zoo.OCR[name][0], []))
        else:
            task = DetTask(load_det(zoo.CONFIGS / "det" / zoo.DET[name], ["weights=null"]))
        zoo._enliven(task.model)
        task.model.eval()
        return task.model, task.example_inputs, task.export(folder).prefix, {}
    model, shape = zoo.build(name)
    spec = [InputSpec([None, *shape[1:]], "float32", "image")]
    names_before = {path: tensor.name for path, tensor in tensors_by_path(model).items()}
    paddle.jit.save(paddle.jit.to_static(model, input_spec=spec, full_graph=True), str(folder / "inference"))
    again, shape = zoo.build(name)  # exporting leaves a static forward on a network
    for path, tensor in tensors_by_path(again).items():
        tensor.name = names_before[path]
    return again, shape, folder / "inference", {}


def classifier() -> tuple[paddle.nn.Layer, list[int]]:
    """The direction classifier as PaddleOCR's ch_ppocr_mobile_v2.0_cls builds it."""
    load_ppocr()
    from ppocr.modeling.architectures import build_model

    backbone = {"name": "MobileNetV3", "scale": 0.35, "model_name": "small"}
    head = {"name": "ClsHead", "class_dim": 2}
    model = build_model({"model_type": "cls", "algorithm": "CLS", "Backbone": backbone, "Head": head})
    model.eval()
    return model, SHAPES["cls"]


def measure(name: str, rounds: int) -> dict[str, Any]:
    """One row."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        live, inputs, prefix, names = live_and_exported(name, folder)
        model = load_inference(prefix)
        kind = name.rpartition(" ")[2]
        arrays = model.example_inputs([SHAPES[kind]] if kind in SHAPES else ())
        ds = DygraphSensitivity(model, tuple(map(paddle.to_tensor, arrays)))
        exported = {names.get(tensor.name, tensor.name) for tensor in tensors_by_path(model).values()}
        paths = {tensor.name: path for path, tensor in tensors_by_path(live).items()} if names else {}
        common = exported & {paths.get(tensor.name, tensor.name) for tensor in tensors_by_path(live).values()}
        wanted = members(DygraphSensitivity(live, inputs), paths, common)
        whole = Predictor(prefix, onednn=False)(*arrays)
        row = {
            "network": name,
            "difference": outputs_apart(run_eagerly(model, arrays), whole),
            "groups": len(ds.groups),
            "live": len(wanted),
            "equal": members(ds, names, common) == wanted,
            **shrink(name, ds, model, folder),
        }
        saved = save_inference(model, folder / "small" / "inference", arrays)
        both = {
            "before": Predictor(prefix, onednn=name in RELEASED),
            "after": Predictor(saved.prefix, onednn=name in RELEASED),
        }
        return {
            **row,
            "written": saved.difference,
            "bytes": [file_size(prefix), saved.bytes],
            "seconds": list(median_seconds(both, arrays, rounds).values()),
            "again": len(
                DygraphSensitivity(load_inference(saved.prefix), tuple(map(paddle.to_tensor, arrays))).groups
            ),
        }


def shrink(name: str, ds: DygraphSensitivity, model: ProgramLayer, folder: Path) -> dict[str, Any]:
    """Cut the network with `compress`: detectors by half of their FLOPs, what reads text by a fifth; others by equal ratios."""
    if name in VISION:
        outcome = ds.prune_vars({group.name: EQUAL for group in ds.groups})
        return {"way": "equal ratios", "flops": outcome.flops_removed}
    flops = 0.5 if name in zoo.DET or "det" in name else 0.2
    if name in RELEASED and name in zoo.OCR:
        samples: Any = calibration(name, folder)
    else:  # nothing to read: noise shows that the cut is carried out and written back
        shapes = [SHAPES["cls"]] if name in RELEASED else ()
        samples = [tuple(model.example_inputs(shapes, seed)) for seed in range(8)]
    outcome = ds.compress(samples, flops=flops, samples=16, progress=False)
    return {"way": "compress", "flops": outcome.flops_removed}


def calibration(name: str, folder: Path) -> list[np.ndarray]:
    """Generated images as the config's evaluation reads them."""
    target = folder / "images"
    (write_scenes if "det" in name else write_lines)(target, 16, 0)
    settings = [f"Eval.dataset.data_dir={target}", f"Eval.dataset.label_file_list=[{target}/label.txt]"]
    task = OcrTask(
        load_config(zoo.CONFIGS / "ocr" / zoo.OCR[name][0], [*settings, "Global.pretrained_model=null"])
    )
    evaluator = task.evaluator
    return [evaluator.arguments(batch)[0] for batch in evaluator.batches()]


def table(rows: list[dict[str, Any]]) -> str:
    """The table of the document."""
    lines = [
        "| network | stack | import differs by | groups (live network) | FLOPs removed | written back differs by | KiB | ms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    order = {name: number for number, name in enumerate(NETWORKS)}
    for row in sorted(rows, key=lambda row: (order[row["network"]], row["stack"] != "paddle3")):
        live = f"{row['live']}, {'equal' if row['equal'] else 'DIFFERENT'}"
        before, after = (size / 1024 for size in row["bytes"])
        slow, fast = (1000 * seconds for seconds in row["seconds"])
        lines.append(
            f"| {row['network']} | {row['stack']} | {row['difference']:.1e} | {row['groups']} ({live}) | "
            f"{row['flops']:.1%} ({row['way']}) | {row['written']:.1e} | {before:,.0f} -> {after:,.0f} | "
            f"{slow:.1f} -> {fast:.1f} |"
        )
    return "\n".join(lines)


def write_page(rows: list[dict[str, Any]]) -> None:
    """Put the table where the document has its place."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n\n{table(rows)}\n\n{END}{tail}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", help="only these (default: all)")
    parser.add_argument("--missing", action="store_true", help="only those that this stack has no row of yet")
    parser.add_argument("--one", action="store_true", help="measure one network and print its row as JSON")
    parser.add_argument("--rounds", type=int, default=20, help="how often each exported model is timed (20)")
    parser.add_argument("--page", action="store_true", help="only write the table anew")
    arguments = parser.parse_args()
    rows = json.loads(DATA.read_text()) if DATA.exists() else []
    if arguments.page:
        write_page(rows)
        return
    if arguments.one:
        print("ROW " + json.dumps(measure(arguments.networks[0], arguments.rounds)))
        return
    stack = "paddle26" if paddle.__version__.startswith("2.") else "paddle3"
    known = {r["network"] for r in rows if r["stack"] == stack} if arguments.missing else set()
    for name in [n for n in arguments.networks or NETWORKS if n not in known]:
        # A process of its own: PaddleDetection keeps one global config, and names start anew.
        command = [sys.executable, __file__, "--one", name, "--rounds", str(arguments.rounds)]
        done = subprocess.run(command, capture_output=True, text=True)
        found = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
        if not found:
            print(f"{name}: failed\n{done.stderr[-3000:]}", flush=True)
            continue
        row = {**json.loads(found[0]), "stack": stack}
        print(json.dumps(row), flush=True)
        rows = json.loads(DATA.read_text()) if DATA.exists() else []
        rows = [r for r in rows if (r["network"], r["stack"]) != (name, stack)] + [row]
        DATA.write_text(json.dumps(rows, indent=1) + "\n")
        if PAGE.exists():
            write_page(rows)


if __name__ == "__main__":
    main()
