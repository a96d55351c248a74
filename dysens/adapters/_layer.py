"""A user's own live layer as a task, without a framework or a config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle.static import InputSpec

from dysens.adapters._shared import ExportedModel
from dysens.adapters.base import Reading, Scoring, Task
from dysens.costs import Array, Inputs, file_size
from dysens.errors import InputError, ProofError
from dysens.evaluators import Evaluator, evaluate
from dysens.flags import flag
from dysens.model import leaves, map_leaves, preserved, view_of
from dysens.programs import Exported, ProgramLayer, largest_gap, save_inference, saved_and_run
from dysens.pruning import load_checkpoint
from dysens.sweep import Build

NAME = "inference"
TOLERANCE = 1e-4  # of the largest output: rounding where operators are fused


class LayerTask(Task):
    """A live layer with its inputs and what scores it.

    It has no training loop: train a pruned one with your own, as ever.

    Args:
        model: The network to measure, prune and save.
        inputs: What its forward takes, as `DygraphSensitivity` takes it.
        scoring: What scores it; None if nothing does, which is enough to list groups, prune and export.
        build: Gives model and scoring to further processes; None if there is but this one.
        name: What to call it in messages.
        has_weights: Whether its weights come from anywhere but chance.

    Example:
        >>> task = LayerTask(paddle.vision.models.LeNet(), [1, 1, 28, 28], lambda: 0.9)
        >>> task.indicator
        'score'
    """

    framework = "Paddle"
    lowest_baseline = None  # a metric of one's own may have any scale

    def __init__(
        self,
        model: paddle.nn.Layer,
        inputs: Any,
        scoring: Scoring | None = None,
        build: Build | None = None,
        name: str = "",
        has_weights: bool = True,
    ) -> None:
        self.model = model
        self.name = name or type(model).__name__
        self._inputs = inputs
        self._scoring = scoring
        self._build = build
        self._has_weights = has_weights

    @property
    def has_weights(self) -> bool:
        """Whether the layer has trained weights, as given to the constructor."""
        return self._has_weights

    def load(self, source: str | Path) -> None:
        """Load a ``.pdparams`` file; with a plan beside it, the network is cut first."""
        load_checkpoint(self.model, source)

    @property
    def example_inputs(self) -> Any:
        """As they were given."""
        return self._inputs

    @property
    def train_inputs(self) -> None:
        """How it is trained is not known."""
        return None

    @property
    def evaluator(self) -> Scoring:
        """As it was given."""
        if self._scoring is None:
            raise InputError(
                f'There is no evaluator for "{self.name}": give {flag("evaluator")} package.module:function. A function '
                "with one parameter gets the model and returns its score; one without returns an Evaluator."
            )
        return self._scoring

    @property
    def has_evaluator(self) -> bool:
        """Whether one was given."""
        return self._scoring is not None

    @property
    def indicator(self) -> str:
        """Whatever it measures."""
        return str(getattr(self._scoring, "indicator", "score"))

    @property
    def build(self) -> Build:
        """As it was given."""
        if self._build is None:
            raise InputError(f'Nothing is named that builds "{self.name}" in another process.')
        return self._build

    @property
    def folder(self) -> Path:
        """The current one."""
        return Path()

    def train(self) -> Path:
        """There is no loop that could."""
        raise InputError(
            f'"{self.name}" has no training loop that dysens knows: only configs of PaddleOCR and PaddleDetection do. Load the '
            "pruned checkpoint with dysens.load_pruned, and train it with your own loop."
        )

    @property
    def export_folder(self) -> Path:
        """In the current one."""
        return Path(NAME)

    def export(self, folder: Path, images: Any = None) -> Exported:
        """Write the layer for inputs of exactly the given shapes; compared on noise unless there are images."""
        arguments = view_of(self._inputs).arguments if images is None else images
        tensors = leaves(arguments)
        if not all(isinstance(tensor, paddle.Tensor) for tensor in tensors):
            raise InputError(
                f'"{self.name}" takes something that is not a tensor, and an inference model takes tensors only.'
            )
        prefix = Path(folder) / NAME
        with preserved(self.model), paddle.no_grad():
            self.model.eval()
            expected = [tensor.numpy() for tensor in paddle.utils.flatten(self.model(*arguments))]
            spec = map_leaves(_spec, arguments)
            scale = max((float(np.abs(each).max(initial=0.0)) for each in expected), default=0.0)

            def check(beside: Path, got: list[Array]) -> None:
                apart = largest_gap(got, expected)
                if not apart <= TOLERANCE * max(scale, 1.0):
                    raise ProofError(
                        f'The exported model "{prefix}" does not give the network\'s outputs: they differ by {apart:.2g}.'
                    )

            got = saved_and_run(self.model, prefix, spec, [tensor.numpy() for tensor in tensors], check)
        difference = largest_gap(got, expected)
        return Exported(prefix, difference, file_size(prefix), "noise" if images is None else "the data")

    def score_exported(self, source: Path) -> float:
        """The evaluator's score of the exported model; raise InputError for a plain function, which scores live models only."""
        if not isinstance(self.evaluator, Evaluator):
            raise InputError(
                "A function scores the live model; to score an exported one, give an Evaluator, which calls what it is given."
            )
        path = Path(source)
        prefix = path / NAME if path.is_dir() else path
        arguments = view_of(self._inputs).arguments
        return evaluate(ExportedModel(self.model, arguments, prefix), self.evaluator)

    def first_images(self) -> Any:
        """The arguments of the evaluator's first batch."""
        if not isinstance(self.evaluator, Evaluator):
            raise InputError(f'What scores "{self.name}" is a function, which shows no data.')
        return self.evaluator.arguments(next(iter(self.evaluator.batches())))

    def timing_inputs(self) -> Inputs:
        """The given inputs."""
        return [tensor.numpy() for tensor in leaves(view_of(self._inputs).arguments)]

    def low_baseline_hint(self) -> str:
        """Never asked for: any score may be right."""
        return ""


class ProgramTask(LayerTask):
    """An imported inference model with what scores it; its export has the names that it had.

    Args:
        model: What `load_inference` gave.
        shapes: Of its inputs, or of its images alone; by default sizes at which it runs.
        scoring: See `LayerTask`.
        build: See there.
        name: See there.
    """

    model: ProgramLayer

    def __init__(
        self,
        model: ProgramLayer,
        shapes: Sequence[Sequence[int]] = (),
        scoring: Scoring | None = None,
        build: Build | None = None,
        name: str = "",
    ) -> None:
        inputs = tuple(map(paddle.to_tensor, model.example_inputs(shapes)))
        super().__init__(model, inputs, scoring, build, name)

    def readings(self, count: int) -> Sequence[Reading]:
        """What the network finds in the first labelled images, where the set is one of PaddleOCR or COCO."""
        reader = getattr(self._scoring, "readings", None)
        return () if reader is None else tuple(reader(self.model, count))

    def export(self, folder: Path, images: Any = None) -> Exported:
        """Write the network with the inputs that the program had; compared on images, or on noise if there are none."""
        if images is None and isinstance(self._scoring, Evaluator):
            images = self.first_images()
        given = view_of(self._inputs).arguments if images is None else images
        arrays = [tensor.numpy() for tensor in leaves(given)]
        exported = save_inference(self.model, Path(folder) / NAME, arrays)
        return replace(exported, compared_on="noise" if images is None else "the data")


def _spec(tensor: paddle.Tensor) -> InputSpec:
    return InputSpec(list(tensor.shape), str(tensor.dtype).rpartition(".")[2])
