"""The demo of both frameworks: a released network made smaller, fine-tuned and exported, on generated data."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from dysens.adapters import Task
from dysens.errors import DysensError
from dysens.pipeline import (
    EXPORTED,
    ORIGINAL,
    PRUNED,
    RATIOS_FILE,
    SAVE,
    SEN_FILE,
    TRAINED,
    Compressing,
    Measuring,
    Row,
    RuinedError,
    Say,
    States,
    StepOptions,
    Subject,
    card_of_compressed,
    compress,
    run_steps,
    score,
    states_table,
    train,
)
from dysens.progress import shown_log
from dysens.ratios import Target
from dysens.report import write_card

# What is searched on, trained on and judged by are three sets with draws of their own.
TRAIN, SEARCH, TEST = "train", "search", "test"
SEEDS = {TRAIN: 1, SEARCH: 2, TEST: 3}
# Two ways to a pruned network: decide jointly from unlabelled images, or search how far each group may go.
COMPRESS, BY_SEARCH = "compress", "search"


@dataclass(frozen=True)
class Setting:
    """What a demo does with one of the released networks.

    Attributes:
        config: Its config's file name.
        draw: Makes a set of images: folder, how many, seed.
        images: How many images, by set.
        flops: Share of the FLOPs to remove.
        grid: Ratios that a search tries.
        target_loss: How much each group may lose in it.
        search_flops: Share of the FLOPs to remove after a search.
        overrides: Of the config, for a brief training.
        quick_overrides: More of them, for a training that only shows that it runs.
        criterion: Which filters go first.
        rounds: How often the exported networks are timed.
    """

    config: str
    draw: Callable[[Path, int, int], Path]
    images: Mapping[str, int]
    flops: float
    grid: tuple[float, ...]
    target_loss: float
    search_flops: float
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


MakeTask = Callable[[Setting, Path, Path, str, bool], Task]
"""Builds a task: the setting, the folder with the configs, the folder for files, the set to score on, and whether it has
the released weights (one that only scores exported networks needs none)."""


@dataclass
class Demo:
    """The story of one network.

    Attributes:
        setting: What to do.
        make_task: Of the framework.
        configs: The folder with the configs.
        folder: Where files go.
        by: `COMPRESS` or `BY_SEARCH`.
        anyway: Fine-tune even if the cut is ruined.
        say: Gets what a user wants to read.
    """

    setting: Setting
    make_task: MakeTask
    configs: Path
    folder: Path
    by: str = COMPRESS
    anyway: bool = False
    say: Say = print

    @cached_property
    def held_out(self) -> Task:
        """The network with the images that nothing is chosen by."""
        return self.make_task(self.setting, self.configs, self.folder, TEST, self.by == COMPRESS)

    def run(self) -> Sequence[Row]:
        """The whole story: every state of the network."""
        setting = self.setting
        images = {name: n for name, n in setting.images.items() if self.by == BY_SEARCH or name != SEARCH}
        for name, count in images.items():
            setting.draw(self.folder / name, count, SEEDS[name])
        self.say(f"1. Drew images: {', '.join(f'{count} to {name}' for name, count in images.items())}.")
        return self._compressed() if self.by == COMPRESS else self._searched()

    def _compressed(self) -> Sequence[Row]:
        setting = self.setting
        self.say(
            f"2. Remove {setting.flops:.0%} of the FLOPs, decided on training images without their labels; fine-tune with "
            f"{self.held_out.framework}'s own loop; export."
        )
        subject = Subject(self.held_out, setting.criterion)
        options = Compressing(
            self.folder,
            flops=setting.flops,
            train=True,
            export=True,
            anyway=self.anyway,
            replace=True,  # what an earlier run left
            rounds=setting.rounds,
        )
        compressed = compress(subject, options)
        card = write_card(self.folder, card_of_compressed(subject, compressed, Path(setting.config).stem))
        self.say(f"3. The card, with boxes or strings side by side, is {card}.")
        return compressed.rows

    def _searched(self) -> Sequence[Row]:
        setting, folder = self.setting, self.folder
        options = StepOptions(
            Measuring(folder / SEN_FILE, setting.grid, target_loss=setting.target_loss),
            folder / RATIOS_FILE,
            folder / SAVE,
            Target(flops=setting.search_flops),
            setting.criterion,
        )
        options.measuring.sen_file.unlink(missing_ok=True)  # of an earlier run
        subject = Subject(self.make_task(setting, self.configs, folder, SEARCH, True), setting.criterion)
        states = States(subject.task, folder)
        self._add(states, ORIGINAL)
        self.say(f"2. How far may each group go, at {setting.target_loss:.0%} of the score each?")
        run_steps(subject, options, ["sweep"], self.say)
        self.say(f"3. Remove {setting.search_flops:.0%} of the FLOPs where it costs least.")
        run_steps(subject, options, ["ratios", "prune"], self.say)
        self._add(states, PRUNED)
        self.say(f"4. Fine-tune with {subject.task.framework}'s own loop.")
        self.say(f"   checkpoints with their plans are in {train(subject.task)}")
        live = score(Subject(subject.task, scoring=self.held_out.evaluator)).score
        states.add(TRAINED, live)
        self._add(states, EXPORTED)
        self.say("5. Time the exported networks in turns.")
        return states.time(setting.rounds)

    def _add(self, states: States, state: str) -> None:
        """The network as it is now, exported; the exported one is scored on the held-out images."""
        exported = states.task.export(self.folder / state, self.held_out.first_images())
        found = self.held_out.score_exported(self.folder / state)
        self.say(
            f"   {state}: {states.task.indicator} {found:.4f} on held-out images; outputs of the exported network differ "
            f"from the live one's by {exported.difference:.1e} at most"
        )
        states.add(state, found, exported=exported)


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
    parser.add_argument(
        "--by",
        choices=[COMPRESS, BY_SEARCH],
        default=COMPRESS,
        help="decide jointly from unlabelled images, or search each group's largest ratio (default: %(default)s)",
    )
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
    chosen = setting.quick() if options.quick else setting
    demo = Demo(chosen, make_task, options.configs, folder, options.by, anyway=options.quick)
    try:
        with shown_log():
            rows = demo.run()
    except RuinedError as error:
        print(error.compressed)
        raise SystemExit(f"error: {error}") from error
    except DysensError as error:
        raise SystemExit(f"error: {error}") from error
    print(f"\n{states_table(rows, demo.held_out.indicator)}")
    print(
        f"Scores on {getattr(demo.held_out.evaluator, 'name', TEST)}. File and milliseconds (one image, one thread, median) are "
        "those of the exported network in each state."
    )
    print(f"Done in {time.perf_counter() - start:.0f} s. The files are in {folder.resolve()}.")
