"""What the tools for PaddleOCR and PaddleDetection have in common on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path

from dysens.criteria import CRITERIA
from dysens.errors import DysensError
from dysens.logs import shown_log
from dysens.ratios import Target
from dysens.recipes.recipe import STEPS, Recipe, RecipeOptions
from dysens.recipes.steps import Sweeping, listing

SEN_FILE, RATIOS_FILE, SAVE = "sensitivities.jsonl", "ratios.yml", "pruned"


def parser_for(description: str | None, framework: str) -> argparse.ArgumentParser:
    """A parser with ``-c`` and ``-o``, as the framework's own tools have them.

    Args:
        description: The tool's docstring.
        framework: Whose config it takes.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-c", "--config", type=Path, required=True, help=f"a {framework} config")
    parser.add_argument(
        "-o", "--opt", nargs="+", default=[], metavar="Key.sub=value", help="overrides of the config"
    )
    return parser


def add_pruning(
    parser: argparse.ArgumentParser, folder: str, criteria: Iterable[str] = tuple(CRITERIA)
) -> None:
    """Adds what the steps of a recipe are told, see `options_of`.

    Args:
        parser: From `parser_for`.
        folder: The config's key for the folder where files go, for the help.
        criteria: Those to choose from.
    """
    parser.add_argument("-P", "--print_params", action="store_true", help="list what can be pruned, and stop")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS, help="default: all")
    parser.add_argument(
        "--criterion", choices=sorted(criteria), default="fpgm", help="which filters go first"
    )
    parser.add_argument(
        "--skip_vars", nargs="+", default=(), help="parameters, layer paths or patterns that stay whole"
    )
    parser.add_argument(
        "--save", type=Path, help=f"pruned checkpoint, no ending; default: {SAVE} in {folder}"
    )

    sweep = parser.add_argument_group("sweep")
    sweep.add_argument(
        "-s",
        "--sen_file",
        "--sensitivities_file",
        type=Path,
        help=f"journal, or a PaddleSlim file to go on with; default: {SEN_FILE} in {folder}",
    )
    sweep.add_argument(
        "-r",
        "--ratios",
        "--pruned_ratios",
        nargs="+",
        type=_numbers,
        help='shares of filters to try, also as "0.1 0.2"; default: 0.1 to 0.9',
    )
    sweep.add_argument(
        "-p",
        "--pruned_params",
        nargs="+",
        type=_names,
        help='measure (and so prune) only these, also as "a,b,c"; layer paths and patterns too',
    )
    sweep.add_argument(
        "--target_loss",
        type=float,
        help="search each group's largest ratio within this loss, don't sweep all",
    )
    sweep.add_argument("--workers", type=int, default=1, help="processes that share the sweep")
    sweep.add_argument(
        "--fast", choices=("auto", "on", "off"), default="auto", help="serve the forward from a compiled copy"
    )

    target = parser.add_argument_group("ratios (not needed after a search: it finds ratios itself)")
    target.add_argument("--loss", type=float, help="relative loss that every single group may cost")
    target.add_argument("--flops", type=float, help="share of the FLOPs to remove")
    target.add_argument("--params", type=float, help="share of the parameters to remove")
    target.add_argument("--align", type=int, help="leave a multiple of so many channels")
    target.add_argument(
        "--paddleslim_rule", action="store_true", help="with --loss: count lucky points, as PaddleSlim does"
    )
    target.add_argument("--ratios_file", type=Path, help=f"YAML or JSON; default: {RATIOS_FILE} in {folder}")


def _numbers(text: str) -> list[float]:
    return [float(word) for word in text.replace(",", " ").split()]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def options_of(args: argparse.Namespace, folder: Path) -> RecipeOptions:
    """What a recipe is told by the options of `add_pruning`.

    Args:
        args: Parsed.
        folder: Where files go that have no path of their own.
    """
    return RecipeOptions(
        sweeping=Sweeping(
            sen_file=args.sen_file or folder / SEN_FILE,
            ratios=tuple(chain(*args.ratios)) if args.ratios else None,
            only=tuple(chain(*args.pruned_params)) if args.pruned_params else None,
            workers=args.workers,
            fast=args.fast,
            target_loss=args.target_loss,
        ),
        ratios_file=args.ratios_file or folder / RATIOS_FILE,
        save=args.save or folder / SAVE,
        target=Target(args.loss, args.flops, args.params, args.align, not args.paddleslim_rule),
        criterion=args.criterion,
        skip=tuple(args.skip_vars),
    )


def run_recipe(args: argparse.Namespace, recipe: Recipe) -> None:
    """Lists what can be pruned, or does the steps that were asked for."""
    if args.print_params:
        print(listing(recipe.ds))
    else:
        recipe.run(args.steps)


def run_tool(action: Callable[[], None]) -> None:
    """Runs a tool: what the framework's loops report is shown, and a mistake of the user ends in a sentence."""
    try:
        with shown_log():
            action()
    except DysensError as error:
        raise SystemExit(f"error: {error}") from error
