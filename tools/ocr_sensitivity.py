#!/usr/bin/env python3
"""Prune a PaddleOCR network: measure sensitivities, choose ratios, prune, and train on with PaddleOCR's own loop.

    python tools/ocr_sensitivity.py -c configs/ocr/ch_PP-OCRv3_det.yml --ratios 0.25 0.5 0.75 --flops 0.3

does all four steps. Each also runs alone (--steps) from the files that the one before wrote.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dysens.criteria import CRITERIA
from dysens.recipes.ocr import STEPS, OcrOptions, OcrRecipe, default_files
from dysens.recipes.ocr_command import add_config, config_of, run_tool
from dysens.recipes.steps import Aim, Sweeping, listing


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_config(parser)
    parser.add_argument("--print_params", action="store_true", help="list what can be pruned, and stop")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS, help="default: all")
    parser.add_argument(
        "--criterion", choices=sorted(CRITERIA), default="fpgm", help="which filters go first"
    )
    parser.add_argument(
        "--skip_vars", nargs="+", default=(), help="parameters, layer paths or patterns that stay whole"
    )

    sweep = parser.add_argument_group("sweep")
    sweep.add_argument(
        "--sen_file", type=Path, help="journal; default: sensitivities.jsonl in Global.save_model_dir"
    )
    sweep.add_argument(
        "--ratios", nargs="+", type=float, help="shares of filters to try; default: 0.1 to 0.9"
    )
    sweep.add_argument("--pruned_params", nargs="+", help="measure (and so prune) only these")
    sweep.add_argument("--workers", type=int, default=1, help="processes that share the sweep")
    sweep.add_argument(
        "--fast", choices=("auto", "on", "off"), default="auto", help="serve the forward from a compiled copy"
    )

    aim = parser.add_argument_group("ratios")
    aim.add_argument("--loss", type=float, help="relative loss that every single group may cost")
    aim.add_argument("--flops", type=float, help="share of the FLOPs to remove")
    aim.add_argument("--params", type=float, help="share of the parameters to remove")
    aim.add_argument("--align", type=int, help="leave a multiple of so many channels")
    aim.add_argument(
        "--ratios_file", type=Path, help="YAML or JSON; default: ratios.yml in Global.save_model_dir"
    )

    parser.add_argument(
        "--save", type=Path, help="pruned checkpoint, no ending; default: pruned in Global.save_model_dir"
    )
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> None:
    config = config_of(args)
    sen_file, ratios_file, save = default_files(config)
    only = tuple(args.pruned_params) if args.pruned_params else None
    ratios = tuple(args.ratios) if args.ratios else None
    options = OcrOptions(
        sweeping=Sweeping(args.sen_file or sen_file, ratios, only, args.workers, args.fast),
        ratios_file=args.ratios_file or ratios_file,
        save=args.save or save,
        aim=Aim(args.loss, args.flops, args.params, args.align),
        criterion=args.criterion,
        skip=tuple(args.skip_vars),
        submodel=args.submodel,
    )
    recipe = OcrRecipe(config, options, print)
    if args.print_params:
        print(listing(recipe.ds))
    else:
        recipe.run(args.steps)


def main(argv: list[str] | None = None) -> None:
    run_tool(lambda: run(parse(argv)))


if __name__ == "__main__":
    main()
