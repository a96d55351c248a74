#!/usr/bin/env python3
"""Score a PaddleOCR network as PaddleOCR does: from a checkpoint, a pruned checkpoint, or an exported model.

python tools/ocr_eval.py -c configs/ocr/ch_PP-OCRv3_det.yml -o Global.pretrained_model=output/ch_PP-OCRv3_det/latest
python tools/ocr_eval.py -c configs/ocr/ch_PP-OCRv3_det.yml --exported output/ch_PP-OCRv3_det/inference
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dysens.adapters.ocr import OcrTask, override, score_exported
from dysens.recipes.command import run_tool
from dysens.recipes.ocr_command import config_of, ocr_parser
from dysens.recipes.recipe import scored


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = ocr_parser(__doc__)
    parser.add_argument("--exported", type=Path, help="score this inference model, not the config's weights")
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> None:
    config = config_of(args)
    if args.exported is None:
        task = OcrTask(config, args.submodel)
        print(scored(task, task.main_indicator, "network"))
        return
    task = OcrTask(
        override(config, ["Global.pretrained_model=null", "Global.checkpoints=null"]), args.submodel
    )
    print(
        f"exported: {task.main_indicator} {score_exported(task, args.exported):.4f} ({task.evaluator.name})"
    )


def main(argv: list[str] | None = None) -> None:
    run_tool(lambda: run(parse(argv)))


if __name__ == "__main__":
    main()
