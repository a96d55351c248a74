"""Pruning step by step: sweep, choose ratios, prune, train. Each goes on from the files of the one before."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import paddle

from dysens.cost import cost_of
from dysens.criteria import Criterion, criterion_name
from dysens.errors import InputError
from dysens.inputs import view_of
from dysens.pruning.checkpoint import has_plan, is_cut_as_saved, save_pruned, stages_of
from dysens.pruning.outcome import PruneOutcome
from dysens.pruning.variance import Variance
from dysens.ratios import Target, read_ratio_file, write_ratio_file
from dysens.recipes import steps
from dysens.recipes.steps import Say, Sweeping
from dysens.results.sensitivities import Sensitivities
from dysens.sensitivity import DygraphSensitivity
from dysens.sweep.evaluators import Evaluator, evaluate
from dysens.sweep.options import Build

STEPS = ("sweep", "ratios", "prune", "train")
# Below, a few images decide: a loss relative to that is noise, and something else is wrong.
LOWEST_BASELINE = 0.05
VARIANCE = "variance"  # the criterion that looks at the evaluator's data


class Task(Protocol):
    """What an adapter makes of a config: a network, how to call it, and how to score it."""

    @property
    def model(self) -> paddle.nn.Layer:
        """The network to measure and prune."""

    @property
    def evaluator(self) -> Evaluator:
        """Scores it."""

    @property
    def example_inputs(self) -> Any:
        """What it is called with in eval mode."""

    @property
    def train_inputs(self) -> Any:
        """What it is called with in training mode."""

    def load(self, source: Path) -> object:
        """Loads weights; a plan beside them says what to cut first."""


@dataclass(frozen=True)
class RecipeOptions:
    """What the steps are told.

    Attributes:
        sweeping: Of the step "sweep".
        ratios_file: Written by "ratios", read by "prune".
        save: Where "prune" puts the pruned checkpoint (without an ending), and "train" finds it.
        target: Of the step "ratios".
        criterion: Which filters go first.
        skip: Parameters that must stay whole.
    """

    sweeping: Sweeping
    ratios_file: Path
    save: Path
    target: Target = field(default_factory=Target)
    criterion: Criterion = "fpgm"
    skip: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scored:
    """What a network is worth, and what it costs; prints as a line."""

    state: str
    indicator: str
    score: float
    flops: int
    params: int

    def __str__(self) -> str:
        return f"{self.state}: {self.indicator} {self.score:.4f}, {self.flops:,} FLOPs, {self.params:,} parameters"


def scored(task: Task, indicator: str, state: str) -> Scored:
    """Scores a task's network as it is now.

    Args:
        task: Network and evaluator.
        indicator: What the score is called.
        state: What to call the network.
    """
    cost = cost_of(task.model, view_of(task.example_inputs))
    return Scored(state, indicator, evaluate(task.model, task.evaluator), cost.flops, cost.params)


class Recipe(ABC):
    """The four steps for one config; what differs from framework to framework is left to subclasses.

    Args:
        options: What the steps are told.
        say: Gets what a user wants to read.
    """

    def __init__(self, options: RecipeOptions, say: Say) -> None:
        self._options = options
        self._say = say
        self._cut_here = False

    @property
    @abstractmethod
    def task(self) -> Task:
        """The config, brought to life; the same one every time."""

    @property
    def network(self) -> paddle.nn.Layer:
        """What is trained and saved; the network to prune may be a part of it."""
        return self.task.model

    @property
    @abstractmethod
    def indicator(self) -> str:
        """What the score is called."""

    @property
    @abstractmethod
    def build(self) -> Build:
        """Gives model and evaluator to the further processes of a sweep."""

    @property
    def resumes(self) -> bool:
        """Whether the step "train" goes on with a run that was broken off, and not with the pruned checkpoint."""
        return False

    @abstractmethod
    def train_network(self) -> Path:
        """Trains `network` with the framework's own loop; where its checkpoints are."""

    @abstractmethod
    def low_baseline_hint(self) -> str:
        """What to look at if the whole network scores next to nothing."""

    def write_ratios(self, ratios: Mapping[str, float]) -> None:
        """Puts ratios into ``ratios_file``, in the form that the framework's users know."""
        write_ratio_file(self._options.ratios_file, ratios)

    def read_ratios(self) -> Mapping[str, float]:
        """Reads a ratio file of any kind; one that names a criterion has to name that of the options."""
        file = read_ratio_file(self._options.ratios_file)
        file.check_criterion(criterion_name(self._options.criterion))
        return file.ratios

    @cached_property
    def ds(self) -> DygraphSensitivity:
        """Groups of the network, proven for the eval forward and the training forward."""
        return DygraphSensitivity(
            self.task.model,
            self.task.example_inputs,
            criterion=self._criterion(),
            skip_vars=self._options.skip,
            train_inputs=self.task.train_inputs,
        )

    def _criterion(self) -> Criterion:
        if self._options.criterion != VARIANCE:
            return self._options.criterion
        evaluator = self.task.evaluator
        return Variance(self.task.model, (evaluator.arguments(batch) for batch in evaluator.batches()))

    def run(self, wanted: Sequence[str] = STEPS) -> None:
        """Does these steps, in their order."""
        actions: dict[str, Callable[[], object]] = {
            "sweep": self.sweep,
            "ratios": self.choose,
            "prune": self.prune,
            "train": self.train,
        }
        unknown = [name for name in wanted if name not in actions]
        if unknown:
            raise InputError(f'there is no step "{unknown[0]}"; the steps are {", ".join(STEPS)}.')
        # Before hours of sweeping:
        if "sweep" in wanted:
            steps.check_sweeping(self._options.sweeping)
        if "ratios" in wanted:
            self._options.target.check(self._options.sweeping.target_loss is not None)
        for name in STEPS:
            if name in wanted:
                actions[name]()

    def sweep(self) -> None:
        """Measures what each group is worth, into the journal; or searches how far each may go."""
        self._check_baseline()
        options = self._options.sweeping
        targets = steps.deployed_groups(self.ds, self.task.model, view_of(self.task.example_inputs))
        if options.target_loss is not None:
            found = steps.search(self.ds, self.task.evaluator, options, targets)
            self._say(str(found))
            self._say(f"what was found is in {options.found_file}")
            return
        sens = steps.sweep(self.ds, self.task.evaluator, options, targets, self.build)
        self._say(f"{len(sens.points)} points of {len(sens)} groups are in {options.sen_file}")

    def choose(self) -> dict[str, float]:
        """Chooses ratios from the journal, or takes those that were searched, into the ratios file."""
        file = self._options.sweeping.result_file
        if not file.is_file():
            raise InputError(f'there are no sensitivities in "{file}": run the step sweep first.')
        sens = Sensitivities.load(file)
        ratios = steps.choose(self.ds, sens, self._options.target, self._options.sweeping)
        self._options.ratios_file.parent.mkdir(parents=True, exist_ok=True)
        self.write_ratios(ratios)
        self._say(f"ratios of {len(ratios)} groups are in {self._options.ratios_file}")
        return ratios

    def prune(self) -> PruneOutcome:
        """Cuts the network by the ratios file, says what that brought, and saves weights and plan."""
        ratios = self.read_ratios()
        difference = self.ds.verify(ratios)
        outcome = self.ds.prune_vars(ratios)
        self._cut_here = True
        self._say(str(outcome))
        self._say(f"masked and cut network agree within {difference:.1e} of the largest output")
        save_pruned(self.network, self._options.save)
        self._say(f"saved as {self._options.save}.pdparams with {self._options.save}.plan.json")
        self._scored("pruned")
        return outcome

    def train(self) -> Scored:
        """Hands the pruned network to the framework's training loop, and scores what comes back."""
        if not self.resumes and not self._cut_here:
            self._load_pruned()
        self._say(f"checkpoints with their plans are in {self.train_network()}")
        return self._scored("trained")

    def _load_pruned(self) -> None:
        """What the step prune left, unless the config's weights are of a network that is cut in the same way already."""
        save, cut_before = self._options.save, bool(stages_of(self.network))
        if not has_plan(save) and not cut_before:
            raise InputError(f'there is no pruned checkpoint "{save}": run the step prune first.')
        if not cut_before:
            self.task.load(save)
        elif has_plan(save) and not is_cut_as_saved(self.network, save):
            raise InputError(
                f'the config\'s weights are of a pruned network, and "{save}" is of one that is cut in another way: name the '
                "one to train as the config's weights, and give --save another path (or the same)."
            )
        else:
            self._say("the config's weights are of a pruned network: training begins with them")

    def _scored(self, state: str) -> Scored:
        result = scored(self.task, self.indicator, state)
        self._say(str(result))
        return result

    def _check_baseline(self) -> None:
        score = evaluate(self.task.model, self.task.evaluator)
        if score < LOWEST_BASELINE:
            raise InputError(
                f"the whole network scores {score:.4f} in {self.task.evaluator.name}: too little to measure losses "
                f"against. {self.low_baseline_hint()}"
            )
