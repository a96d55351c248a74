#!/usr/bin/env python3
"""Make labelled text images offline: scenes for detection, lines for recognition, in PaddleOCR's format.

    python tools/make_text_images.py --out output/text_images --scenes 100 --lines 400

writes det_train, det_eval, rec_train and rec_eval, each with a label.txt, where configs/ocr/*.yml look.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dysens.data import find_fonts, write_lines, write_scenes
from dysens.errors import DysensError

PARTS = {"train": 1, "eval": 2}  # each part with draws of its own


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=Path("output/text_images"), help="folder (default: %(default)s)"
    )
    parser.add_argument("--scenes", type=int, default=60, help="scenes in each of det_train and det_eval")
    parser.add_argument("--lines", type=int, default=200, help="lines in each of rec_train and rec_eval")
    parser.add_argument(
        "--size", type=int, nargs=2, default=(320, 320), metavar=("WIDTH", "HEIGHT"), help="of a scene"
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    fonts = find_fonts()
    print(f"Fonts: {len(fonts.latin)} Latin, {len(fonts.chinese) or 'no'} Chinese")
    for part, offset in PARTS.items():
        seed = 10 * args.seed + offset
        try:
            print(write_scenes(args.out / f"det_{part}", args.scenes, seed, tuple(args.size), fonts))
            print(write_lines(args.out / f"rec_{part}", args.lines, seed, fonts))
        except DysensError as error:
            raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main()
