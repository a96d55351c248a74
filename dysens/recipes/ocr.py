"""PaddleOCR's pruning, step by step: sweep, choose ratios, prune, train. Each goes on from the files of the one before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import paddle

from dysens.adapters.ocr import OcrTask, train
from dysens.adapters.ocr.config import section
from dysens.cost import cost_of
from dysens.criteria import Criterion
from dysens.errors import InputError
from dysens.inputs import view_of
from dysens.pruning.checkpoint import has_plan, save_pruned, stages_of
from dysens.pruning.outcome import PruneOutcome
from dysens.recipes import steps
from dysens.recipes.ratio_files import read_ratios, write_ratios
from dysens.recipes.steps import Aim, Say, Sweeping
from dysens.results.sensitivities import Sensitivities
from dysens.sensitivity import DygraphSensitivity
from dysens.sweep.evaluators import Evaluator, evaluate

STEPS = ("sweep", "ratios", "prune", "train")
# Below, a few images decide: a loss relative to that is noise, and something else is wrong.
LOWEST_BASELINE = 0.05


@dataclass(frozen=True)
class OcrOptions:
    """What the steps are told.

    Attributes:
        sweeping: Of the step "sweep".
        aim: Of the step "ratios".
        ratios_file: Written by "ratios", read by "prune".
        save: Where "prune" puts the pruned checkpoint (without an ending), and "train" finds it.
        criterion: Which filters go first.
        skip: Parameters that must stay whole.
        submodel: Which network of a distillation config.
    """

    sweeping: Sweeping
    ratios_file: Path
    save: Path
    aim: Aim = field(default_factory=Aim)
    criterion: Criterion = "fpgm"
    skip: tuple[str, ...] = ()
    submodel: str | None = None


def default_files(config: Mapping[str, Any]) -> tuple[Path, Path, Path]:
    """Sensitivities, ratios and pruned checkpoint, in the config's ``Global.save_model_dir``."""
    folder = Path(str(section(config, "Global").get("save_model_dir", "output")))
    return folder / "sensitivities.jsonl", folder / "ratios.yml", folder / "pruned"


def model_and_evaluator(config: Mapping[str, Any], submodel: str | None) -> tuple[paddle.nn.Layer, Evaluator]:
    """What a further process needs to take part in a sweep."""
    task = OcrTask(config, submodel)
    return task.model, task.evaluator


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


def scored(task: OcrTask, state: str) -> Scored:
    """Scores a task's network as it is now.

    Args:
        task: Network and evaluator.
        state: What to call it.
    """
    cost = cost_of(task.model, view_of(task.example_inputs))
    return Scored(state, task.main_indicator, evaluate(task.model, task.evaluator), cost.flops, cost.params)


class OcrRecipe:
    """The four steps for one PaddleOCR config.

    Args:
        config: From `load_config`.
        options: What the steps are told.
        say: Gets what a user wants to read.
    """

    def __init__(self, config: Mapping[str, Any], options: OcrOptions, say: Say) -> None:
        self._config = config
        self._options = options
        self._say = say

    @cached_property
    def task(self) -> OcrTask:
        """The config, brought to life."""
        return OcrTask(self._config, self._options.submodel)

    @cached_property
    def ds(self) -> DygraphSensitivity:
        """Groups of the network, proven for the eval forward and the training forward."""
        return DygraphSensitivity(
            self.task.model,
            self.task.example_inputs,
            criterion=self._options.criterion,
            skip_vars=self._options.skip,
            train_inputs=self.task.train_inputs,
        )

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
        for name in STEPS:
            if name in wanted:
                actions[name]()

    def sweep(self) -> Sensitivities:
        """Measures what each group is worth, into the journal."""
        self._check_baseline()
        sens = steps.sweep(
            self.ds,
            self.task.evaluator,
            self._options.sweeping,
            steps.deployed_groups(self.ds, self.task.model, view_of(self.task.example_inputs)),
            partial(model_and_evaluator, self._config, self._options.submodel),
        )
        self._say(f"{len(sens.points)} points of {len(sens)} groups are in {self._options.sweeping.sen_file}")
        return sens

    def choose(self) -> dict[str, float]:
        """Chooses ratios from the journal, into the ratios file."""
        file = self._options.sweeping.sen_file
        if not file.is_file():
            raise InputError(f'there are no sensitivities in "{file}": run the step sweep first.')
        ratios = steps.choose(self.ds, Sensitivities.load(file), self._options.aim)
        write_ratios(self._options.ratios_file, ratios)
        self._say(f"ratios of {len(ratios)} groups are in {self._options.ratios_file}")
        return ratios

    def prune(self) -> PruneOutcome:
        """Cuts the network by the ratios file, says what that brought, and saves weights and plan."""
        ratios = read_ratios(self._options.ratios_file)
        difference = self.ds.verify(ratios)
        outcome = self.ds.prune_vars(ratios)
        self._say(str(outcome))
        self._say(f"masked and cut network agree within {difference:.1e} of the largest output")
        save_pruned(self.task.network, self._options.save)
        self._say(f"saved as {self._options.save}.pdparams with {self._options.save}.plan.json")
        self._scored("pruned")
        return outcome

    def train(self) -> Scored:
        """Hands the pruned network to PaddleOCR's training loop, and scores what comes back."""
        resume = section(self._config, "Global").get("checkpoints")
        if not resume and not stages_of(self.task.network):
            if not has_plan(self._options.save):
                raise InputError(
                    f'there is no pruned checkpoint "{self._options.save}": run the step prune first.'
                )
            self.task.load(self._options.save)
        train(self.task, resume=resume)
        self._say(f"checkpoints with their plans are in {section(self._config, 'Global')['save_model_dir']}")
        return self._scored("trained")

    def _scored(self, state: str) -> Scored:
        result = scored(self.task, state)
        self._say(str(result))
        return result

    def _check_baseline(self) -> None:
        score = evaluate(self.task.model, self.task.evaluator)
        if score >= LOWEST_BASELINE:
            return
        settings = section(self.task.config, "Global")
        dictionary = settings.get("character_dict_path")
        raise InputError(
            f"the whole network scores {score:.4f} in {self.task.evaluator.name}: too little to measure losses against. "
            f"Do the weights ({settings.get('checkpoints') or settings.get('pretrained_model')}) and the labels"
            + (f" and the dictionary ({dictionary})" if dictionary else "")
            + " belong together?"
        )
