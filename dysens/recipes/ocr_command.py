"""What the tools for PaddleOCR have in common on the command line."""

from __future__ import annotations

import argparse
from typing import Any

from dysens.adapters.ocr import load_config
from dysens.recipes.command import parser_for


def ocr_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with ``-c``, ``-o`` and the choice of a sub-model."""
    parser = parser_for(description, "PaddleOCR")
    parser.add_argument("--submodel", help="which network of a distillation config, such as Student")
    return parser


def config_of(args: argparse.Namespace) -> dict[str, Any]:
    """The config with its overrides."""
    return load_config(args.config, args.opt)
