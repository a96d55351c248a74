"""The adapter contract: everything that the pipeline asks of a framework."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Union

import numpy as np
import paddle

from dysens.costs import Inputs
from dysens.errors import InputError
from dysens.evaluators import Evaluator
from dysens.flags import flag
from dysens.programs import Exported
from dysens.ratios import write_ratio_file
from dysens.sweep import Build

logger = logging.getLogger(__name__)

Scoring = Union[Evaluator, Callable[[], Any]]
"""What scores a model: an `Evaluator`, or a function that scores the live model by itself."""


@dataclass(frozen=True)
class Unlabelled:
    """The arguments of a network's forward, call by call; can be read more than once.

    Attributes:
        batches: What they are taken from.
        arguments: From a batch to the arguments.
        name: What the data are, for people.
    """

    batches: Iterable[Any]
    arguments: Callable[[Any], tuple[Any, ...]]
    name: str

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return map(self.arguments, self.batches)


@dataclass(frozen=True, eq=False)
class Reading:
    """What a network made of one image.

    Attributes:
        image: Bytes, height by width by 3, as the network saw it.
        regions: What it found: the corners in this image, and a name.
        text: What it read; None for a network that finds regions.
    """

    image: np.ndarray
    regions: tuple[tuple[tuple[tuple[float, float], ...], str], ...] = ()
    text: str | None = None


def picture_of(image: Any) -> np.ndarray:
    """A normalised image (channels first) as bytes to look at; the darkest value is black, the brightest white."""
    array = np.asarray(image, dtype="float64")
    low, high = float(array.min()), float(array.max())
    array = (array - low) / (high - low) if high > low else np.zeros_like(array)
    array = np.repeat(array, 3, axis=0) if array.shape[0] == 1 else array[:3]
    return np.rint(255 * array).astype("uint8").transpose(1, 2, 0)


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
    def has_evaluator(self) -> bool:
        """Whether anything is named that scores `model`; a config always names it."""
        return True

    def unlabelled(self) -> Unlabelled:
        """What `compress` calibrates on: inputs like those that matter, by default the evaluator's; labels are not looked at.

        Raises:
            InputError: There are no data.
        """
        evaluator = self.evaluator if self.has_evaluator else None
        if not isinstance(evaluator, Evaluator):
            raise InputError(
                f"There are no data to calibrate on: give {flag('data')} package.module:function, a function that returns them "
                "(unlabelled inputs of the model), or an Evaluator, which shows its own."
            )
        return Unlabelled(evaluator.batches(), evaluator.arguments, f"data of {evaluator.name}")

    def readings(self, count: int) -> Sequence[Reading]:
        """What `model`, as it is now, makes of the first images of the evaluation data; nothing where that cannot be shown.

        Args:
            count: How many images at most.
        """
        return ()

    @property
    @abstractmethod
    def indicator(self) -> str:
        """What the score is called, such as hmean."""

    @property
    @abstractmethod
    def build(self) -> Build:
        """Gives a model and an evaluator like these to the further processes of a sweep; can be pickled."""

    @property
    def seed(self) -> int | None:
        """What draws of the training begin with; None where that is not fixed."""
        return None

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
