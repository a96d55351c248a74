"""`analysis_prune` of an exported MobileNetV1 against PaddleSlim's: the same losses, and the CPU time of each, in turns.

Runs where PaddleSlim does:

    .venvs/paddle26/bin/python benchmarks/analysis_prune.py

Every run is a process of its own, import and analysis included. It writes the lines of docs/programs.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import dysens  # noqa: F401  before Paddle: see dysens/__init__.py

PAGE = Path(__file__).parent.parent / "docs" / "programs.md"
BEGIN, END = "<!-- speed: benchmarks/analysis_prune.py -->", "<!-- end of speed -->"
RATIOS = [0.1, 0.2, 0.3, 0.4, 0.5]
SIDE = 224


def export(folder: Path) -> None:
    """MobileNetV1 with batch norms that have seen something."""
    import paddle

    paddle.seed(0)
    network = paddle.vision.models.mobilenet_v1()
    network.train()
    for _ in range(3):
        network(paddle.randn([4, 3, 96, 96]))
    network.eval()
    spec = [paddle.static.InputSpec([None, 3, SIDE, SIDE], "float32", "image")]
    paddle.jit.save(paddle.jit.to_static(network, input_spec=spec), str(folder / "inference"))


def measure(library: str, folder: Path, images: int, batch: int) -> dict[str, Any]:
    """One call: its losses, and the CPU seconds of this process from before the import of the library."""
    import numpy as np

    begin = time.process_time()
    import paddle

    if library == "paddleslim":
        from paddleslim.auto_compression.analysis import analysis_prune
    else:
        from dysens.compat import analysis_prune
    paddle.enable_static()
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(batch, 3, SIDE, SIDE)).astype("float32") for _ in range(images // batch)]
    wanted: list[Any] = []

    def eval_function(program: Any, exe: Any, feed_names: Any, fetch_list: Any) -> float:
        found = [exe.run(program, feed={feed_names[0]: x}, fetch_list=fetch_list)[0] for x in data]
        wanted.extend([] if wanted else found)
        return 1 / (1 + float(np.mean([np.abs(a - b).mean() for a, b in zip(found, wanted)])))

    with tempfile.TemporaryDirectory() as place:
        file = f"{place}/analysis.data"
        ratios = analysis_prune(
            eval_function, str(folder), "inference.pdmodel", "inference.pdiparams", file, RATIOS, 0.05
        )
        from dysens.compat import load_sensitivities

        losses = load_sensitivities(file)
    return {"cpu": time.process_time() - begin, "ratios": ratios, "losses": losses}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=2, help="how often each is run (2)")
    parser.add_argument("--images", type=int, default=32, help="how many images the callback scores (32)")
    parser.add_argument("--batch", type=int, default=8, help="how many at once (8)")
    parser.add_argument("--one", nargs=2, metavar=("LIBRARY", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        library, folder = options.one
        print("ROW " + json.dumps(measure(library, Path(folder), options.images, options.batch)))
        return
    found: dict[str, list[dict[str, Any]]] = {"paddleslim": [], "dysens": []}
    with tempfile.TemporaryDirectory() as place:
        export(Path(place))
        for _ in range(options.turns):
            for library, runs in found.items():
                sizes = ["--images", str(options.images), "--batch", str(options.batch)]
                command = [sys.executable, __file__, "--one", library, place, *sizes]
                done = subprocess.run(command, capture_output=True, text=True)
                rows = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
                if not rows:
                    raise SystemExit(done.stderr[-3000:])
                runs.append(json.loads(rows[0]))
                print(library, f"{runs[-1]['cpu']:.1f} CPU s", flush=True)
    cpu = {library: statistics.median(run["cpu"] for run in runs) for library, runs in found.items()}
    slim, ours = found["paddleslim"][0], found["dysens"][0]
    apart = max(
        abs(loss - ours["losses"][name][ratio])
        for name, curve in slim["losses"].items()
        for ratio, loss in curve.items()
    )
    chosen = max(abs(ratio - ours["ratios"][name]) for name, ratio in slim["ratios"].items())
    points = sum(map(len, slim["losses"].values()))
    text = (
        f"`analysis_prune` of an exported MobileNetV1 ({SIDE}x{SIDE}, {points} points on {options.images} images, one thread, "
        f"Paddle 2.6, import and analysis included): PaddleSlim {cpu['paddleslim']:.0f} CPU seconds, dysens {cpu['dysens']:.0f}, "
        f"**{cpu['paddleslim'] / cpu['dysens']:.1f} times as fast** (medians of {options.turns} in turns); losses differ by "
        f"{apart:.1e} at most, chosen ratios by {chosen:.1e}."
    )
    print(text)
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    if rest:
        PAGE.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
