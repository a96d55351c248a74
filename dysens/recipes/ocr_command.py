"""What the tools for PaddleOCR have in common on the command line."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dysens.adapters.ocr import load_config
from dysens.errors import DysensError


def add_config(parser: argparse.ArgumentParser) -> None:
    """Adds ``-c`` and ``-o``, as PaddleOCR's own tools have them, and the choice of a sub-model."""
    parser.add_argument("-c", "--config", type=Path, required=True, help="a PaddleOCR config")
    parser.add_argument(
        "-o", "--opt", nargs="+", default=[], metavar="Key.sub=value", help="overrides of the config"
    )
    parser.add_argument("--submodel", help="which network of a distillation config, such as Student")


def config_of(args: argparse.Namespace) -> dict[str, Any]:
    """The config with its overrides."""
    return load_config(args.config, args.opt)


def run_tool(action: Callable[[], None]) -> None:
    """Runs a tool: what PaddleOCR's loops report is shown, and a mistake of the user ends in a sentence."""
    logger = logging.getLogger("dysens")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        action()
    except DysensError as error:
        raise SystemExit(f"error: {error}") from error
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
