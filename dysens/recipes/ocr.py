"""The recipe for PaddleOCR."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import paddle

from dysens.adapters.ocr import OcrTask, train
from dysens.adapters.ocr.config import section
from dysens.recipes.recipe import Recipe, RecipeOptions
from dysens.recipes.steps import Say
from dysens.sweep.evaluators import Evaluator
from dysens.sweep.options import Build

FOLDER_KEY = "Global.save_model_dir"


def folder_of(config: Mapping[str, Any]) -> Path:
    """Where the config's checkpoints go."""
    return Path(str(section(config, "Global").get("save_model_dir", "output")))


def model_and_evaluator(config: Mapping[str, Any], submodel: str | None) -> tuple[paddle.nn.Layer, Evaluator]:
    """What a further process needs to take part in a sweep."""
    task = OcrTask(config, submodel)
    return task.model, task.evaluator


class OcrRecipe(Recipe):
    """The four steps for one PaddleOCR config.

    Args:
        config: From `load_config`.
        options: What the steps are told.
        say: Gets what a user wants to read.
        submodel: Which network of a distillation config.
    """

    def __init__(
        self, config: Mapping[str, Any], options: RecipeOptions, say: Say, submodel: str | None = None
    ) -> None:
        super().__init__(options, say)
        self._config = config
        self._submodel = submodel

    @cached_property
    def task(self) -> OcrTask:
        """The config, brought to life."""
        return OcrTask(self._config, self._submodel)

    @property
    def network(self) -> paddle.nn.Layer:
        """The whole distillation model where the config describes one."""
        return self.task.network

    @property
    def indicator(self) -> str:
        """The config's: hmean, acc ..."""
        return self.task.main_indicator

    @property
    def build(self) -> Build:
        """From the config alone."""
        return partial(model_and_evaluator, self._config, self._submodel)

    @property
    def resumes(self) -> bool:
        """As for PaddleOCR: ``Global.checkpoints`` names a run to go on with."""
        return bool(section(self._config, "Global").get("checkpoints"))

    def train_network(self) -> Path:
        """PaddleOCR's ``program.train``."""
        train(self.task, resume=section(self._config, "Global").get("checkpoints"))
        return folder_of(self._config)

    def low_baseline_hint(self) -> str:
        """Weights, labels and dictionary must belong together."""
        settings = section(self.task.config, "Global")
        dictionary = settings.get("character_dict_path")
        return (
            f"Do the weights ({settings.get('checkpoints') or settings.get('pretrained_model')}) and the labels"
            + (f" and the dictionary ({dictionary})" if dictionary else "")
            + " belong together?"
        )
