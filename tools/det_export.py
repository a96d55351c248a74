#!/usr/bin/env python3
"""Export a PaddleDetection network, pruned or not, as the inference model that PaddleDetection's deployment loads.

    python tools/det_export.py -c configs/det/picodet_s_shapes.yml -o weights=output/picodet_s_shapes_pruned/model_final

A checkpoint with a .plan.json beside it is one of a pruned network: the config's is cut in the same way first.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dysens.adapters.det import DetTask, export, load_config
from dysens.errors import InputError
from dysens.recipes.command import parser_for, run_tool


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = parser_for(__doc__, "PaddleDetection")
    parser.add_argument(
        "--out", type=Path, help="folder; default: output_inference/<name of the config>, as PaddleDetection"
    )
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> None:
    config = load_config(args.config, args.opt)
    task = DetTask(config)
    images, where = images_to_compare(task)
    exported = export(task, args.out or Path("output_inference") / config["filename"], images)
    print(f"exported to {exported.prefix} ({exported.bytes:,} bytes)")
    if exported.boxes:
        print(
            f"its {exported.boxes} boxes in {where} differ from the network's by {exported.difference:.1e} at most"
        )
    else:
        print(f"not compared: the network finds no box in {where}")


def images_to_compare(task: DetTask) -> tuple[dict[str, Any], str]:
    """Images of the config's data, and what to call them; noise for who exports without having data."""
    try:
        inputs = task.evaluator.first_inputs()
    except InputError as error:
        print(f"without images to compare on: {error}")
        return task.example_inputs, "noise"
    return inputs, f"{len(inputs['image'])} images of EvalDataset"


def main(argv: list[str] | None = None) -> None:
    run_tool(lambda: run(parse(argv)))


if __name__ == "__main__":
    main()
