#!/usr/bin/env python3
"""Export a PaddleOCR network, pruned or not, as the inference model that PaddleOCR's predictors load.

    python tools/ocr_export.py -c configs/ocr/ch_PP-OCRv3_det.yml -o Global.pretrained_model=output/ch_PP-OCRv3_det/latest

A checkpoint with a .plan.json beside it is one of a pruned network: the config's is cut in the same way first.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dysens.adapters.ocr import OcrTask, export
from dysens.errors import InputError
from dysens.recipes.command import run_tool
from dysens.recipes.ocr_command import config_of, ocr_parser

if TYPE_CHECKING:
    import paddle


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = ocr_parser(__doc__)
    parser.add_argument(
        "--out",
        type=Path,
        help="folder; default: Global.save_inference_dir, or inference in Global.save_model_dir",
    )
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> None:
    config = config_of(args)
    settings = config.get("Global", {})
    default = (
        settings.get("save_inference_dir") or Path(settings.get("save_model_dir", "output")) / "inference"
    )
    task = OcrTask(config, args.submodel)
    images = images_to_compare(task)
    exported = export(task, args.out or default, images)
    where = "noise" if images is None else f"{len(images)} of Eval's images"
    print(f"exported to {exported.prefix} ({exported.bytes:,} bytes)")
    print(f"its outputs on {where} differ from the network's by {exported.difference:.1e} at most")


def images_to_compare(task: OcrTask) -> paddle.Tensor | None:
    """The first of the config's data; None for who exports without having data."""
    try:
        return next(iter(task.evaluator.batches()))[0]
    except InputError as error:
        print(f"without images to compare on: {error}")
        return None


def main(argv: list[str] | None = None) -> None:
    run_tool(lambda: run(parse(argv)))


if __name__ == "__main__":
    main()
