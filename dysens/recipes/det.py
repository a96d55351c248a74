"""The recipe for PaddleDetection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path

import paddle

from dysens.adapters.det import (
    DetConfig,
    DetTask,
    load_config,
    resumed_trainer,
)
from dysens.criteria import criterion_name
from dysens.ratios import write_ratio_file
from dysens.recipes.recipe import Recipe, RecipeOptions
from dysens.recipes.steps import Say
from dysens.sweep.evaluators import Evaluator
from dysens.sweep.options import Build

INDICATOR = "mAP"
FOLDER_KEY = "save_dir/<name of the config>_pruned"
FINAL = "model_final"  # how ppdet's Trainer calls its last checkpoint


def run_name(config: DetConfig) -> str:
    """What the fine-tuning is called: not as the training was, so that its checkpoints don't replace the whole network's."""
    return f"{config['filename']}_pruned"


def folder_of(config: DetConfig) -> Path:
    """Where the files of all steps go."""
    return Path(config.get("save_dir") or "output") / run_name(config)


def model_and_evaluator(path: str, overrides: Sequence[str]) -> tuple[paddle.nn.Layer, Evaluator]:
    """What a further process needs to take part in a sweep."""
    task = DetTask(load_config(path, overrides))
    return task.model, task.evaluator


class DetRecipe(Recipe):
    """The four steps for one PaddleDetection config; ratios are written as a slim config.

    Args:
        path: The config's file.
        overrides: As ``-o`` takes them.
        options: What the steps are told.
        say: Gets what a user wants to read.
        resume: A checkpoint of a fine-tuning that was broken off; the step "train" goes on from there.
    """

    def __init__(
        self,
        path: Path,
        overrides: Sequence[str],
        options: RecipeOptions,
        say: Say,
        resume: Path | None = None,
    ) -> None:
        super().__init__(options, say)
        self._path = path
        self._overrides = tuple(overrides)
        self._resume = resume

    @cached_property
    def task(self) -> DetTask:
        """The config, brought to life."""
        return DetTask(load_config(self._path, self._overrides))

    @property
    def indicator(self) -> str:
        """For COCO and VOC alike."""
        return INDICATOR

    @property
    def build(self) -> Build:
        """From path and overrides: what they make cannot be sent to another process."""
        return partial(model_and_evaluator, str(self._path), self._overrides)

    def write_ratios(self, ratios: Mapping[str, float]) -> None:
        """As a slim config, with which PaddleDetection's ``tools/train.py`` prunes too."""
        criterion = criterion_name(self._options.criterion)
        write_ratio_file(self._options.ratios_file, ratios, "slim", criterion, self._pretrain_weights())

    def _pretrain_weights(self) -> str | None:
        """Weights that ``tools/train.py`` starts from: in train mode it wants some, as a file that ppdet can read."""
        weights = self.task.config.get("weights")
        if not weights:
            return None
        if not str(weights).endswith(".onnx"):
            return str(weights)
        converted = self._options.ratios_file.with_name("whole.pdparams")
        paddle.save(self.network.state_dict(), str(converted))
        return str(converted)

    @property
    def resumes(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return self._resume is not None

    def train_network(self) -> Path:
        """ppdet's ``Trainer.train``; the network then has the weights of the last checkpoint."""
        name = run_name(self.task.config)
        training = (
            resumed_trainer(self.task, self._resume, name) if self._resume else self.task.trainer(name=name)
        )
        with training as trainer:
            trainer.train(validate=False)
        folder = folder_of(self.task.config)
        # With a moving average (use_ema) the checkpoint has the average, the live network what was averaged.
        self.task.load(folder / FINAL)
        return folder

    def low_baseline_hint(self) -> str:
        """Weights and data must belong together."""
        return f"Do the weights ({self.task.config.get('weights')}) and the images of EvalDataset belong together?"
