"""The story that every demo tells: a released network, made smaller, fine-tuned and exported, without any data set.

What differs from framework to framework is left to `Demo`'s subclasses; the last rows are printed as one table.
"""

from __future__ import annotations

import argparse
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from dysens.adapters.exporting import Exported
from dysens.cost import cost_of
from dysens.inputs import view_of
from dysens.latency import Inputs, Predictor, median_seconds
from dysens.ratios import Target
from dysens.recipes.command import RATIOS_FILE, SAVE, SEN_FILE, run_tool
from dysens.recipes.recipe import Recipe, RecipeOptions, Task
from dysens.recipes.steps import Say, Sweeping
from dysens.sweep.evaluators import evaluate

# What is searched on, trained on and judged by are three sets with draws of their own.
TRAIN, SEARCH, TEST = "train", "search", "test"
SEEDS = {TRAIN: 1, SEARCH: 2, TEST: 3}
WHOLE, PRUNED, TUNED, EXPORTED = "original", "pruned", "fine-tuned", "exported"


@dataclass(frozen=True)
class Setting:
    """What a demo does with one of the released networks.

    Attributes:
        config: Its config's file name.
        draw: Makes a set of images: folder, how many, seed.
        images: How many images, by set.
        grid: Ratios that the search tries.
        target_loss: How much each group may lose in it.
        flops: Share of the FLOPs to remove.
        overrides: Of the config, for a brief training.
        quick_overrides: More of them, for a training that only shows that it runs.
        criterion: Which filters go first.
        rounds: How often the exported networks are timed.
    """

    config: str
    draw: Callable[[Path, int, int], Path]
    images: Mapping[str, int]
    grid: tuple[float, ...]
    target_loss: float
    flops: float
    overrides: tuple[str, ...]
    quick_overrides: tuple[str, ...]
    criterion: str = "fpgm"
    rounds: int = 100

    def quick(self) -> Setting:
        """The same with next to no data: to see that it runs."""
        return replace(
            self,
            images=dict.fromkeys(self.images, 4),
            grid=(0.3, 0.6),
            target_loss=0.5,
            overrides=(*self.overrides, *self.quick_overrides),
            rounds=3,
        )


@dataclass(frozen=True)
class Row:
    """One state of the network: what it is worth on the held-back images, and what it costs once exported."""

    state: str
    score: float
    flops: int
    params: int
    bytes: int
    seconds: float | None = None


class Demo(ABC):
    """The story of one network.

    Args:
        setting: What to do.
        folder: Where files go.
        say: Gets what a user wants to read.

    Attributes:
        framework: Whose network it is, and whose loop trains it.
    """

    framework: ClassVar[str]

    def __init__(self, setting: Setting, folder: Path, say: Say) -> None:
        self._setting = setting
        self._folder = folder
        self._say = say
        self._prefixes: dict[str, Path] = {}  # of what was exported, by state

    @property
    @abstractmethod
    def recipe(self) -> Recipe:
        """Searches, chooses, prunes and trains, on the sets for that; told by `options`."""

    @property
    @abstractmethod
    def held_back(self) -> Task:
        """The network with the images that nothing is chosen by."""

    @property
    @abstractmethod
    def example_inputs(self) -> Inputs:
        """What the exported networks are timed with."""

    @abstractmethod
    def export(self, folder: Path) -> Exported:
        """Writes the recipe's network, as it is now, as an inference model."""

    @abstractmethod
    def score_exported(self, folder: Path) -> float:
        """What such a model is worth on the images held back."""

    @property
    def options(self) -> RecipeOptions:
        """What the recipe is told."""
        setting, folder = self._setting, self._folder
        return RecipeOptions(
            sweeping=Sweeping(folder / SEN_FILE, setting.grid, target_loss=setting.target_loss),
            ratios_file=folder / RATIOS_FILE,
            save=folder / SAVE,
            target=Target(flops=setting.flops),
            criterion=setting.criterion,
        )

    def run(self) -> list[Row]:
        """The whole story."""
        setting = self._setting
        for name, count in setting.images.items():
            setting.draw(self._folder / name, count, SEEDS[name])
        self._say(
            f"1. Drew images: {', '.join(f'{count} to {name}' for name, count in setting.images.items())}."
        )
        self.options.sweeping.sen_file.unlink(missing_ok=True)  # of an earlier run
        rows = [self._row(WHOLE)]

        self._say(f"2. How far may each group go, at {setting.target_loss:.0%} of the score each?")
        self.recipe.sweep()
        self._say(f"3. Remove {setting.flops:.0%} of the FLOPs where it costs least.")
        self.recipe.choose()
        self.recipe.prune()
        rows.append(self._row(PRUNED))
        self._say(f"4. Fine-tune with {self.framework}'s own loop.")
        self.recipe.train()
        exported = self._row(TUNED)
        live = evaluate(self.recipe.task.model, self.held_back.evaluator)
        rows += [replace(exported, score=live), replace(exported, state=EXPORTED)]
        self._say("5. Time the exported networks in turns.")
        return self._timed(rows)

    def _row(self, state: str) -> Row:
        """Exports the network as it is now, and scores what was exported."""
        task = self.recipe.task
        cost = cost_of(task.model, view_of(task.example_inputs))
        exported = self.export(self._folder / state)
        score = self.score_exported(self._folder / state)
        self._say(
            f"   {state}: {self.recipe.indicator} {score:.4f} on images held back; outputs of the exported network differ "
            f"from the live one's by {exported.difference:.1e} at most"
        )
        self._prefixes[state] = exported.prefix
        return Row(state, score, cost.flops, cost.params, exported.bytes)

    def _timed(self, rows: list[Row]) -> list[Row]:
        predictors = {state: Predictor(prefix) for state, prefix in self._prefixes.items()}
        seconds = median_seconds(predictors, self.example_inputs, self._setting.rounds)
        seconds[EXPORTED] = seconds[TUNED]
        return [replace(row, seconds=seconds[row.state]) for row in rows]


def table(rows: Sequence[Row], indicator: str) -> str:
    """The rows in print."""
    lines = [f"{'':<12}{indicator:>8}{'FLOPs':>16}{'parameters':>14}{'file, KiB':>12}{'latency, ms':>13}"]
    for row in rows:
        time_taken = "unknown" if row.seconds is None else f"{row.seconds * 1e3:.1f}"
        lines.append(
            f"{row.state:<12}{row.score:>8.4f}{row.flops:>16,}{row.params:>14,}{row.bytes / 1024:>12,.0f}{time_taken:>13}"
        )
    return "\n".join(lines)


def demo_parser(
    description: str | None, settings: Mapping[str, Setting], name: str
) -> argparse.ArgumentParser:
    """The command line of a demo.

    Args:
        description: The demo's docstring.
        settings: By network; the first is the default.
        name: ``ocr`` or ``det``: of the module, of the folder in configs/, and of the folder for output.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m dysens.recipes.{name}_demo",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "network",
        nargs="?",
        choices=list(settings),
        default=next(iter(settings)),
        help="default: %(default)s",
    )
    parser.add_argument(
        "--output", type=Path, default=Path(f"output/demo-{name}"), help="default: %(default)s"
    )
    parser.add_argument("--configs", type=Path, default=Path(f"configs/{name}"), help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="next to no data, to see that it runs")
    return parser


def run_demo(
    options: argparse.Namespace,
    settings: Mapping[str, Setting],
    build: Callable[[Setting, Path, Path, Say], Demo],
) -> None:
    """Tells the story and prints the table; a mistake of the user ends in a sentence.

    Args:
        options: From `demo_parser`.
        settings: By network.
        build: Makes the demo of a setting, the folder with the configs, the folder for files, and what says.
    """

    def run() -> None:
        start = time.perf_counter()
        setting = settings[options.network]
        folder = options.output / options.network
        demo = build(setting.quick() if options.quick else setting, options.configs, folder, print)
        rows = demo.run()
        print(f"\n{table(rows, demo.recipe.indicator)}")
        print(
            f"Scores on {demo.held_back.evaluator.name}: of the live network where fine-tuned, else through Paddle's "
            "predictor.\nFile and latency (one image, one thread, median) are those of the exported network in each state."
        )
        print(f"Done in {time.perf_counter() - start:.0f} s. The files are in {folder.resolve()}.")

    run_tool(run)
