"""The demo of both frameworks: a released network made smaller, fine-tuned and exported, on generated data."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from dysens.adapters import Task
from dysens.costs import Predictor, cost_of, median_seconds
from dysens.errors import DysensError
from dysens.model import view_of
from dysens.pipeline import (
    RATIOS_FILE,
    SAVE,
    SEN_FILE,
    Measuring,
    Say,
    StepOptions,
    Subject,
    run_steps,
    score,
    train,
)
from dysens.progress import shown_log
from dysens.ratios import Target

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
    """One state of the network: what it is worth on the held-out images, and what it costs once exported."""

    state: str
    score: float
    flops: int
    params: int
    bytes: int
    seconds: float | None = None


MakeTask = Callable[[Setting, Path, Path, str], Task]
"""Builds a task: the setting, the folder with the configs, the folder for files, and the set to score on. On `SEARCH` it
has the released weights; on `TEST` it only scores, and has none."""


@dataclass
class Demo:
    """The story of one network.

    Attributes:
        setting: What to do.
        make_task: Of the framework.
        configs: The folder with the configs.
        folder: Where files go.
        say: Gets what a user wants to read.
    """

    setting: Setting
    make_task: MakeTask
    configs: Path
    folder: Path
    say: Say = print
    _prefixes: dict[str, Path] = field(default_factory=dict)  # of what was exported, by state

    @cached_property
    def subject(self) -> Subject:
        """The network with the images to train on and to search on."""
        return Subject(
            self.make_task(self.setting, self.configs, self.folder, SEARCH), self.setting.criterion
        )

    @cached_property
    def held_out(self) -> Task:
        """The network with the images that nothing is chosen by."""
        return self.make_task(self.setting, self.configs, self.folder, TEST)

    @property
    def _options(self) -> StepOptions:
        setting, folder = self.setting, self.folder
        return StepOptions(
            Measuring(folder / SEN_FILE, setting.grid, target_loss=setting.target_loss),
            folder / RATIOS_FILE,
            folder / SAVE,
            Target(flops=setting.flops),
            setting.criterion,
        )

    def run(self) -> list[Row]:
        """The whole story."""
        setting, options = self.setting, self._options
        for name, count in setting.images.items():
            setting.draw(self.folder / name, count, SEEDS[name])
        self.say(
            f"1. Drew images: {', '.join(f'{count} to {name}' for name, count in setting.images.items())}."
        )
        options.measuring.sen_file.unlink(missing_ok=True)  # of an earlier run
        rows = [self._row(WHOLE)]

        self.say(f"2. How far may each group go, at {setting.target_loss:.0%} of the score each?")
        run_steps(self.subject, options, ["sweep"], self.say)
        self.say(f"3. Remove {setting.flops:.0%} of the FLOPs where it costs least.")
        run_steps(self.subject, options, ["ratios", "prune"], self.say)
        rows.append(self._row(PRUNED))
        self.say(f"4. Fine-tune with {self.subject.task.framework}'s own loop.")
        self.say(f"   checkpoints with their plans are in {train(self.subject.task)}")
        exported = self._row(TUNED)
        live = score(Subject(self.subject.task, scoring=self.held_out.evaluator)).score
        rows += [replace(exported, score=live), replace(exported, state=EXPORTED)]
        self.say("5. Time the exported networks in turns.")
        return self._timed(rows)

    def _row(self, state: str) -> Row:
        """Export the network as it is now, and score what was exported."""
        task = self.subject.task
        cost = cost_of(task.model, view_of(task.example_inputs))
        exported = task.export(self.folder / state, self.held_out.first_images())
        found = self.held_out.score_exported(self.folder / state)
        self.say(
            f"   {state}: {task.indicator} {found:.4f} on held-out images; outputs of the exported network differ "
            f"from the live one's by {exported.difference:.1e} at most"
        )
        self._prefixes[state] = exported.prefix
        return Row(state, found, cost.flops, cost.params, exported.bytes)

    def _timed(self, rows: list[Row]) -> list[Row]:
        predictors = {state: Predictor(prefix) for state, prefix in self._prefixes.items()}
        seconds = median_seconds(predictors, self.held_out.timing_inputs(), self.setting.rounds)
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
        prog=f"python -m dysens.demos.{name}",
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


def run_demo(options: argparse.Namespace, settings: Mapping[str, Setting], make_task: MakeTask) -> None:
    """Run the demo and print its table; an error of the user ends the program with its message.

    Args:
        options: From `demo_parser`.
        settings: By network.
        make_task: Of the framework.
    """
    start = time.perf_counter()
    setting, folder = settings[options.network], options.output / options.network
    demo = Demo(setting.quick() if options.quick else setting, make_task, options.configs, folder)
    try:
        with shown_log():
            rows = demo.run()
    except DysensError as error:
        raise SystemExit(f"error: {error}") from error
    print(f"\n{table(rows, demo.held_out.indicator)}")
    print(
        f"Scores on {getattr(demo.held_out.evaluator, 'name', TEST)}: of the live network where fine-tuned, else through "
        "Paddle's predictor.\nFile and latency (one image, one thread, median) are those of the exported network in each state."
    )
    print(f"Done in {time.perf_counter() - start:.0f} s. The files are in {folder.resolve()}.")
