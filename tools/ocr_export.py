#!/usr/bin/env python3
"""Export a PaddleOCR network, pruned or not, as the inference model that PaddleOCR's predictors load.

    python tools/ocr_export.py -c configs/ocr/ch_PP-OCRv3_det.yml -o Global.pretrained_model=output/ch_PP-OCRv3_det/latest

A checkpoint with a .plan.json beside it is one of a pruned network: the config's is cut in the same way first.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dysens.adapters.ocr import OcrTask, export
from dysens.recipes.command import run_tool
from dysens.recipes.ocr_command import config_of, ocr_parser


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
    exported = export(OcrTask(config, args.submodel), args.out or default)
    print(f"exported to {exported.prefix} ({exported.bytes:,} bytes)")
    print(f"its outputs differ from the network's by {exported.difference:.1e} at most")


def main(argv: list[str] | None = None) -> None:
    run_tool(lambda: run(parse(argv)))


if __name__ == "__main__":
    main()
