"""The adapter contract: everything that the pipeline asks of a framework."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Union

import paddle

from dysens.adapters._shared import Exported
from dysens.costs import Inputs
from dysens.errors import InputError
from dysens.evaluators import Evaluator
from dysens.ratios import write_ratio_file
from dysens.sweep import Build

logger = logging.getLogger(__name__)

Scoring = Union[Evaluator, Callable[[], Any]]
"""What scores a model: an `Evaluator`, or a function that scores the live model by itself."""


class Task(ABC):
    """A network with its data, its score and its training, as a framework's config describes them.

    An adapter for another framework is a subclass. The pipeline (`dysens.pipeline`) measures and prunes `model`, saves
    `network`, and hands everything that only the framework can do back to the methods below.

    Attributes:
        framework: Whose network it is, for messages.
        lowest_baseline: A score of the whole network below which a few images decide, and a loss relative to it is noise;
            None where the score is not a share of what is right.
    """

    framework: ClassVar[str]
    lowest_baseline: ClassVar[float | None] = 0.05

    model: paddle.nn.Layer
    """The network to measure and prune."""

    @property
    def network(self) -> paddle.nn.Layer:
        """What is trained and saved: the whole that `model` is a part of, usually the same."""
        return self.model

    @property
    @abstractmethod
    def has_weights(self) -> bool:
        """Whether the weights come from anywhere but chance."""

    @abstractmethod
    def load(self, source: str | Path) -> object:
        """Load weights into the network; a plan beside them says what to cut first."""

    @property
    @abstractmethod
    def example_inputs(self) -> Any:
        """What `model` is called with in eval mode, as `DygraphSensitivity` takes it."""

    @property
    @abstractmethod
    def train_inputs(self) -> Any:
        """The same in training mode; None where the training forward is not known."""

    @property
    @abstractmethod
    def evaluator(self) -> Scoring:
        """Scores `model`."""

    @property
    @abstractmethod
    def indicator(self) -> str:
        """What the score is called, such as hmean."""

    @property
    @abstractmethod
    def build(self) -> Build:
        """Gives a model and an evaluator like these to the further processes of a sweep; can be pickled."""

    @property
    @abstractmethod
    def folder(self) -> Path:
        """Where the files of a run go that are not named otherwise; training puts its checkpoints there."""

    def write_ratios(self, path: Path, ratios: Mapping[str, float], criterion: str) -> None:
        """Write a ratio file in the form that the framework's users know.

        Args:
            path: The file; JSON if it ends so.
            ratios: By layer path.
            criterion: By which filters are to be ranked, for forms that hold it.
        """
        write_ratio_file(path, ratios)

    @property
    def resumes(self) -> bool:
        """Whether `train` goes on with a run that was broken off, instead of starting with the weights as they are."""
        return False

    @abstractmethod
    def train(self) -> Path:
        """Train `network` as it is now with the framework's own loop; every checkpoint gets the plan of what was cut.

        Returns:
            The folder with the checkpoints.
        """

    @property
    @abstractmethod
    def export_folder(self) -> Path:
        """Where the framework's users look for an exported model."""

    @abstractmethod
    def export(self, folder: Path, images: Any = None) -> Exported:
        """Write `model` as it is now as an inference model, and compare the two.

        Args:
            folder: Is made if it is not there.
            images: What to compare on, from `first_images`; by default those of the config's own evaluation data, or noise
                where there are none, with a warning.

        Raises:
            ProofError: The exported model does not give the network's outputs.
        """

    @abstractmethod
    def score_exported(self, source: Path) -> float:
        """The score of an exported model."""

    @abstractmethod
    def first_images(self) -> Any:
        """The first batch of the evaluation data.

        Raises:
            InputError: There are no data.
        """

    def images_to_compare(self) -> Any:
        """`first_images`; None, with a warning, for who exports without having data."""
        try:
            return self.first_images()
        except InputError as error:
            logger.warning("There are no images to compare on: %s", error)
            return None

    @abstractmethod
    def timing_inputs(self) -> Inputs:
        """What one call of an exported model gets when it is timed."""

    @abstractmethod
    def low_baseline_hint(self) -> str:
        """What to look at if the whole network scores next to nothing, as a sentence."""
