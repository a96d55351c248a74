"""Several steps in one go, each from the files that the one before wrote: what tools/ and the demos run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dysens.errors import InputError
from dysens.pipeline._measure import Measuring, result_file, search, search_file, sweep
from dysens.pipeline._produce import DEFAULT_CRITERION, choose, criterion_of, prune, score, train
from dysens.pipeline._subject import Subject
from dysens.ratios import Target, read_ratio_file
from dysens.results import Sensitivities

# The files, in the folder of the task.
SEN_FILE, RATIOS_FILE, SAVE = "sensitivities.jsonl", "ratios.yml", "pruned"
Say = Callable[[str], None]


@dataclass(frozen=True)
class StepOptions:
    """What the steps are told.

    Attributes:
        measuring: Of the step "sweep".
        ratios_file: Written by "ratios", read by "prune".
        save: Where "prune" puts the pruned checkpoint (without an ending), and "train" finds it.
        target: Of the step "ratios".
        criterion: Which filters go first; None for the one that the ratio file names, or fpgm.
    """

    measuring: Measuring
    ratios_file: Path
    save: Path
    target: Target = field(default_factory=Target)
    criterion: str | None = None

    def check(self, steps: Sequence[str]) -> None:
        """Refuse, before hours of sweeping, what one of these steps cannot do.

        Raises:
            InputError: There is no such step, or its options make no sense.
        """
        unknown = [name for name in steps if name not in STEPS]
        if unknown:
            raise InputError(f'There is no step "{unknown[0]}"; the steps are {", ".join(STEPS)}.')
        if "sweep" in steps:
            self.measuring.check()
        if "ratios" in steps:
            self.target.check(self.measuring.target_loss is not None)


def run_steps(subject: Subject, options: StepOptions, steps: Sequence[str], say: Say) -> None:
    """Do some of the steps, in their order.

    Args:
        subject: The network.
        options: What the steps are told.
        steps: Their names.
        say: Gets what a user wants to read.

    Raises:
        InputError: Options make no sense, or a file of an earlier step is not there.
    """
    options.check(steps)
    subject.criterion = _criterion(options, steps)
    for name, step in STEPS.items():
        if name in steps:
            step(subject, options, say)


def _criterion(options: StepOptions, steps: Sequence[str]) -> str:
    """A sweep takes what it is told; the later steps go by the files that they read."""
    if "sweep" in steps or not {"ratios", "prune"} & set(steps):
        return options.criterion or DEFAULT_CRITERION
    ratio_file = None if "ratios" in steps else read_ratio_file(options.ratios_file)
    return criterion_of(options.criterion, ratio_file, result_file(options.measuring))


def _measure_step(subject: Subject, options: StepOptions, say: Say) -> None:
    """Sweep into the journal; or, with a target loss, search how far each group may go."""
    measuring = options.measuring
    if measuring.target_loss is not None:
        say(str(search(subject, measuring)))
        say(f"what was found is in {search_file(measuring)}")
        return
    sens = sweep(subject, measuring)
    say(f"{len(sens.points)} points of {len(sens)} groups are in {measuring.sen_file}")


def _ratios_step(subject: Subject, options: StepOptions, say: Say) -> None:
    """Choose ratios from the journal, or within what was searched, into the ratio file."""
    file = result_file(options.measuring)
    if not file.is_file():
        raise InputError(f'There are no sensitivities in "{file}": run the step sweep first.')
    searched = options.measuring.target_loss is not None
    ratios = choose(Sensitivities.load(file), options.target, subject, searched)
    options.ratios_file.parent.mkdir(parents=True, exist_ok=True)
    subject.task.write_ratios(options.ratios_file, ratios, subject.criterion)
    say(f"ratios of {len(ratios)} groups are in {options.ratios_file}")


def _prune_step(subject: Subject, options: StepOptions, say: Say) -> None:
    """Cut the network by the ratio file, say what that brought, and score it."""
    ratio_file = read_ratio_file(options.ratios_file)
    ratio_file.check_criterion(subject.criterion)
    cut = prune(subject, ratio_file.ratios, options.save)
    say(f"{cut.outcome}\n{cut.remarks}")
    for scored in cut.scores:
        say(str(scored))


def _train_step(subject: Subject, options: StepOptions, say: Say) -> None:
    """Load what was pruned, hand it to the framework's loop, and score what comes back."""
    say(f"checkpoints with their plans are in {train(subject.task, options.save)}")
    say(str(score(subject, "trained")))


STEPS: dict[str, Callable[[Subject, StepOptions, Say], None]] = {
    "sweep": _measure_step,
    "ratios": _ratios_step,
    "prune": _prune_step,
    "train": _train_step,
}
