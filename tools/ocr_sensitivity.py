#!/usr/bin/env python3
"""Prune a PaddleOCR network: measure sensitivities, choose ratios, prune, and train on with PaddleOCR's own loop.

    python tools/ocr_sensitivity.py -c configs/ocr/ch_PP-OCRv3_det.yml --ratios 0.25 0.5 0.75 --flops 0.3
    python tools/ocr_sensitivity.py -c configs/ocr/ch_PP-OCRv3_det.yml --target_loss 0.03 --flops 0.3

do all four steps. Each also runs alone (--steps) from the files that the one before wrote.
"""

from __future__ import annotations

import argparse

from dysens.criteria import CRITERIA
from dysens.recipes.command import add_pruning, options_of, run_recipe, run_tool
from dysens.recipes.ocr import FOLDER_KEY, OcrRecipe, folder_of
from dysens.recipes.ocr_command import config_of, ocr_parser
from dysens.recipes.recipe import VARIANCE


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = ocr_parser(__doc__)
    add_pruning(parser, FOLDER_KEY, [*CRITERIA, VARIANCE])
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> None:
    config = config_of(args)
    run_recipe(args, OcrRecipe(config, options_of(args, folder_of(config)), print, args.submodel))


def main(argv: list[str] | None = None) -> None:
    run_tool(lambda: run(parse(argv)))


if __name__ == "__main__":
    main()
