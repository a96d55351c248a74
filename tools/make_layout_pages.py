"""Makes the data set that configs/det/picodet_lcnet_layout.yml trains and evaluates on."""

from __future__ import annotations

import argparse

from dysens.data import make_layout_pages


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", default="output/layout_pages", help="folder that gets train/ and val/ (default: %(default)s)"
    )
    parser.add_argument("--train", type=int, default=120, help="number of pages to train on")
    parser.add_argument("--val", type=int, default=40, help="number of pages to evaluate on")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    print(make_layout_pages(f"{args.out}/train", args.train, seed=args.seed))
    print(make_layout_pages(f"{args.out}/val", args.val, seed=args.seed + 1))


if __name__ == "__main__":
    main()
