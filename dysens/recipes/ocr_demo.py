"""The PaddleOCR demo: a released network, made a third smaller, fine-tuned and exported, without any data set.

Run it with ``make demo-ocr``, from the repository's root.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from dysens.adapters.ocr import OcrTask, export, load_config, override, score_exported
from dysens.adapters.ocr.export import NAME
from dysens.adapters.text_images import write_scenes
from dysens.adapters.text_images.sets import LABEL_FILE
from dysens.cost import cost_of
from dysens.inputs import view_of
from dysens.latency import Predictor, median_seconds
from dysens.recipes.command import RATIOS_FILE, SAVE, SEN_FILE, run_tool
from dysens.recipes.ocr import OcrRecipe
from dysens.recipes.recipe import RecipeOptions
from dysens.recipes.steps import Aim, Say, Sweeping
from dysens.sweep.evaluators import evaluate

# What is searched on, trained on and judged by are three sets with draws of their own.
SEEDS = {"train": 1, "search": 2, "test": 3}
WHOLE, PRUNED, TUNED, EXPORTED = "original", "pruned", "fine-tuned", "exported"


@dataclass(frozen=True)
class Setting:
    """What the demo does with one of the released networks.

    Attributes:
        config: Its config in configs/ocr.
        draw: Makes a set of images: folder, how many, seed.
        images: How many images, by set.
        grid: Ratios that the search tries.
        target_loss: How much each group may lose in it.
        flops: Share of the FLOPs to remove.
        overrides: Of the config, for a brief training.
        rounds: How often the exported networks are timed.
    """

    config: str
    draw: Callable[[Path, int, int], Path]
    images: dict[str, int]
    grid: tuple[float, ...]
    target_loss: float
    flops: float
    overrides: tuple[str, ...]
    rounds: int = 100

    def quick(self) -> Setting:
        """The same with next to no data: to see that it runs."""
        small = ("Global.epoch_num=1", "Train.loader.batch_size_per_card=4")
        return replace(
            self,
            images=dict.fromkeys(self.images, 4),
            grid=(0.3, 0.6),
            target_loss=0.5,
            overrides=(*self.overrides, *small),
            rounds=3,
        )


SETTINGS = {
    "det": Setting(
        config="ch_PP-OCRv3_det.yml",
        draw=write_scenes,
        images={"train": 160, "search": 24, "test": 80},
        grid=(0.2, 0.4, 0.6, 0.8),
        target_loss=0.1,
        flops=0.3,
        overrides=(
            "Global.epoch_num=4",
            "Train.loader.batch_size_per_card=8",
            "Optimizer.lr.learning_rate=0.0005",
        ),
    ),
}


@dataclass(frozen=True)
class Row:
    """One state of the network: what it is worth on the held-back images, and what it costs once exported."""

    state: str
    score: float
    flops: int
    params: int
    bytes: int
    seconds: float | None = None


class Demo:
    """The story of one network.

    Args:
        setting: What to do.
        configs: The folder with the configs.
        folder: Where files go.
        say: Gets what a user wants to read.
    """

    def __init__(self, setting: Setting, configs: Path, folder: Path, say: Say) -> None:
        self._setting = setting
        self._folder = folder
        self._say = say
        paths = [*_set_paths("Train", folder / "train"), *_set_paths("Eval", folder / "search")]
        self._config = load_config(
            configs / setting.config, [*paths, f"Global.save_model_dir={folder}", *setting.overrides]
        )

    @cached_property
    def recipe(self) -> OcrRecipe:
        """Searches, chooses, prunes and trains."""
        setting, folder = self._setting, self._folder
        options = RecipeOptions(
            sweeping=Sweeping(folder / SEN_FILE, setting.grid, target_loss=setting.target_loss),
            ratios_file=folder / RATIOS_FILE,
            save=folder / SAVE,
            aim=Aim(flops=setting.flops),
        )
        return OcrRecipe(self._config, options, self._say)

    @cached_property
    def held_back(self) -> OcrTask:
        """The network with the images that nothing is chosen by."""
        return OcrTask(
            override(
                self._config, [*_set_paths("Eval", self._folder / "test"), "Global.pretrained_model=null"]
            )
        )

    def run(self) -> list[Row]:
        """The whole story."""
        setting, recipe = self._setting, self.recipe
        for name, count in setting.images.items():
            setting.draw(self._folder / name, count, SEEDS[name])
        self._say(
            f"1. Drew images: {', '.join(f'{count} to {name}' for name, count in setting.images.items())}."
        )
        (self._folder / SEN_FILE).unlink(missing_ok=True)  # of an earlier run
        rows = [self._row(WHOLE)]

        self._say(f"2. How far may each group go, at {setting.target_loss:.0%} of the score each?")
        recipe.sweep()
        self._say(f"3. Remove {setting.flops:.0%} of the FLOPs where it costs least.")
        recipe.choose()
        recipe.prune()
        rows.append(self._row(PRUNED))
        self._say("4. Fine-tune with PaddleOCR's own loop.")
        recipe.train()
        exported = self._row(TUNED)
        live = evaluate(recipe.task.model, self.held_back.evaluator)
        rows += [replace(exported, score=live), replace(exported, state=EXPORTED)]
        self._say("5. Time the exported networks in turns.")
        return self._timed(rows)

    def _row(self, state: str) -> Row:
        """Exports the network as it is now, and scores what was exported."""
        task = self.recipe.task
        cost = cost_of(task.model, view_of(task.example_inputs))
        picture = next(iter(self.held_back.evaluator.batches()))[0]
        exported = export(task, self._folder / state, picture)
        score = score_exported(self.held_back, self._folder / state)
        self._say(
            f"   {state}: {task.main_indicator} {score:.4f} on images held back; outputs of the exported network differ "
            f"from the live one's by {exported.difference:.1e} at most"
        )
        return Row(state, score, cost.flops, cost.params, exported.bytes)

    def _timed(self, rows: list[Row]) -> list[Row]:
        images = [tensor.numpy() for tensor in self.recipe.task.example_inputs]
        predictors = {state: Predictor(self._folder / state / NAME) for state in (WHOLE, PRUNED, TUNED)}
        seconds = median_seconds(predictors, images, self._setting.rounds)
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


def _set_paths(mode: str, folder: Path) -> list[str]:
    """Overrides that make a config read a set."""
    return [f"{mode}.dataset.data_dir={folder}", f"{mode}.dataset.label_file_list=[{folder}/{LABEL_FILE}]"]


def _run(options: argparse.Namespace) -> None:
    start = time.perf_counter()
    setting = SETTINGS[options.network]
    folder = options.output / options.network
    demo = Demo(setting.quick() if options.quick else setting, options.configs, folder, print)
    rows = demo.run()
    print(f"\n{table(rows, demo.recipe.indicator)}")
    print(
        f"Scores on {demo.held_back.evaluator.name}: of the live network where fine-tuned, else through Paddle's predictor.\n"
        "File and latency (one image, one thread, median) are those of the exported network in each state."
    )
    print(f"Done in {time.perf_counter() - start:.0f} s. The files are in {folder.resolve()}.")


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m dysens.recipes.ocr_demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("network", nargs="?", choices=sorted(SETTINGS), default="det", help="default: det")
    parser.add_argument("--output", type=Path, default=Path("output/demo-ocr"), help="default: %(default)s")
    parser.add_argument("--configs", type=Path, default=Path("configs/ocr"), help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="next to no data, to see that it runs")
    options = parser.parse_args(argv)
    run_tool(lambda: _run(options))


if __name__ == "__main__":
    main()
