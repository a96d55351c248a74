#!/usr/bin/env python3
"""Prune a PaddleDetection network: measure sensitivities, choose ratios, prune, and train on with ppdet's own Trainer.

    python tools/det_sensitivity.py -c configs/det/picodet_lcnet_layout.yml --pruned_ratios "0.25 0.5 0.75" --flops 0.3
    python tools/det_sensitivity.py -c configs/det/picodet_lcnet_layout.yml --target_loss 0.02 --flops 0.3

do all four steps. Each also runs alone (--steps) from the files that the one before wrote. The ratios are a slim config of
PaddleDetection.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dysens.adapters.det import load_config
from dysens.errors import InputError
from dysens.recipes.command import add_pruning, options_of, parser_for, run_recipe, run_tool
from dysens.recipes.det import FOLDER_KEY, DetRecipe, folder_of


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = parser_for(__doc__, "PaddleDetection")
    add_pruning(parser, FOLDER_KEY)
    train = parser.add_argument_group("train")
    train.add_argument(
        "--resume",
        type=Path,
        help="go on from this checkpoint of a fine-tuning that was broken off, no ending",
    )
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> None:
    options = options_of(args, folder_of(load_config(args.config, args.opt)))
    if args.resume and tuple(args.steps) != ("train",):
        raise InputError("--resume goes on with a fine-tuning, so it takes --steps train.")
    run_recipe(args, DetRecipe(args.config, args.opt, options, print, args.resume))


def main(argv: list[str] | None = None) -> None:
    run_tool(lambda: run(parse(argv)))


if __name__ == "__main__":
    main()
