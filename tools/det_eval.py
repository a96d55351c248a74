#!/usr/bin/env python3
"""Score a PaddleDetection network as ppdet does: from a checkpoint, a pruned checkpoint, or an exported model.

python tools/det_eval.py -c configs/det/picodet_s_shapes.yml -o weights=output/picodet_s_shapes_pruned/model_final
python tools/det_eval.py -c configs/det/picodet_s_shapes.yml --exported output_inference/picodet_s_shapes
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dysens.adapters.det import DetTask, load_config, score_exported
from dysens.recipes.command import parser_for, run_tool
from dysens.recipes.det import INDICATOR
from dysens.recipes.recipe import scored


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = parser_for(__doc__, "PaddleDetection")
    parser.add_argument("--exported", type=Path, help="score this inference model, not the config's weights")
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> None:
    if args.exported is None:
        print(scored(DetTask(load_config(args.config, args.opt)), INDICATOR, "network"))
        return
    task = DetTask(load_config(args.config, [*args.opt, "weights=null"]))
    print(f"exported: {INDICATOR} {score_exported(task, args.exported):.4f} ({task.evaluator.name})")


def main(argv: list[str] | None = None) -> None:
    run_tool(lambda: run(parse(argv)))


if __name__ == "__main__":
    main()
