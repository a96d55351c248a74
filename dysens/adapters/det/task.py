"""A detector and all that belongs to it: its config, its data, its inputs, its Trainer."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from dysens.adapters.det.datasets import create_dataset, create_loader, seeded
from dysens.adapters.det.evaluator import DetEvaluator
from dysens.adapters.det.ppdet_import import import_ppdet, quiet
from dysens.adapters.det.weights import load_weights
from dysens.adapters.det.workspace import DetConfig, load_config
from dysens.errors import InputError


@dataclass(frozen=True)
class DetTask:
    """A live detector with what is needed to analyse, prune and train it.

    Attributes:
        config: The config that it was built from.
        model: The network, a ``paddle.nn.Layer``.
        input_size: Height and width of the images in `example_inputs` and `train_inputs`.
    """

    config: DetConfig
    model: paddle.nn.Layer
    input_size: tuple[int, int]

    @cached_property
    def evaluator(self) -> DetEvaluator:
        """Scores the model on the config's ``EvalDataset``."""
        return DetEvaluator(self.config)

    @property
    def example_inputs(self) -> dict[str, paddle.Tensor]:
        """What the model is called with in eval mode; the image is noise, the same at every call."""
        return _example_inputs(self.input_size)

    @property
    def train_inputs(self) -> dict[str, Any]:
        """What the model is called with in training mode: two images of ``TrainDataset`` with their ground truth.

        The config's ``TrainReader`` prepares them, except that they are resized to `input_size`.
        """
        with self.config.installed() as live, quiet(), seeded(0):
            whole = dict(live["TrainReader"])
            try:
                _fix_size(live["TrainReader"], self.input_size)
                dataset = create_dataset(self.config, "TrainDataset")
                batch = next(
                    iter(create_loader(self.config, "TrainReader", dataset, batch_size=2, workers=0))
                )
            finally:
                live["TrainReader"].update(whole)
        # The Trainer adds it; assigners that change over time read it.
        batch["epoch_id"] = 0
        return dict(batch)

    @contextmanager
    def trainer(self, mode: str = "train") -> Iterator[Any]:
        """ppdet's ``Trainer`` around the live model, cut or not; use it inside the ``with``.

        Its settings (``epoch``, ``save_dir``, ``LearningRate``, ...) are those of the config.

        Args:
            mode: ``train`` or ``eval``.

        Example:
            >>> with task.trainer() as trainer:  # doctest: +SKIP
            ...     trainer.train(validate=False)
        """
        if mode not in ("train", "eval"):
            raise InputError(f'A Trainer is made for "train" or "eval", not for "{mode}".')
        with self.config.installed() as live:
            create_dataset(self.config, f"{mode.capitalize()}Dataset")
            # Where it finds this key, Trainer takes the model as it is instead of building one.
            live["model"] = self.model
            try:
                yield import_ppdet("engine").Trainer(live, mode=mode)
            finally:
                live.pop("model", None)


def build_task(
    path: str | Path, overrides: Iterable[str] = (), *, input_size: tuple[int, int] | None = None
) -> DetTask:
    """Builds a detector from a PaddleDetection config and loads the weights that its ``weights`` names.

    Args:
        path: A checkout's YAML with ``_BASE_``, or a self-contained one.
        overrides: Settings as ``-o`` takes them, such as ``"weights=best_model.pdparams"``; ``"weights=null"`` leaves
            the network as it is initialised.
        input_size: Height and width for `DetTask.example_inputs`; None takes what the config evaluates or exports with.

    Raises:
        InputError: The config or the weights cannot be used.
        MissingExtraError: ppdet is not installed.
    """
    config = load_config(path, overrides)
    size = input_size or _configured_size(config)
    with config.installed() as live:
        try:
            model = import_ppdet("core.workspace").create(live["architecture"])
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise InputError(f"ppdet cannot build the network of {config.path}: {error}") from error
    weights = config.get("weights")
    if weights:
        load_weights(model, weights, _example_inputs(size))
    return DetTask(config, model, size)


def _example_inputs(size: tuple[int, int]) -> dict[str, paddle.Tensor]:
    height, width = size
    image = np.random.default_rng(0).standard_normal((1, 3, height, width))
    return {
        "image": paddle.to_tensor(image.astype("float32")),
        "im_shape": paddle.to_tensor([[float(height), float(width)]]),
        "scale_factor": paddle.ones([1, 2]),
    }


def _configured_size(config: DetConfig) -> tuple[int, int]:
    inputs = config["TestReader"].get("inputs_def") or {}
    found = list(inputs.get("image_shape") or ())[-2:]
    for name, arguments in _transforms(config["EvalReader"]):
        if len(found) < 2 and name == "Resize":
            size = arguments["target_size"]
            found = [size, size] if isinstance(size, int) else list(size)
    if len(found) != 2 or not all(isinstance(side, int) and side > 0 for side in found):
        raise InputError(
            f"{config.path} does not say how large its images are: give input_size, or set "
            "TestReader.inputs_def.image_shape=[3, height, width]."
        )
    return found[0], found[1]


def _fix_size(reader: dict[str, Any], size: tuple[int, int]) -> None:
    for key in ("sample_transforms", "batch_transforms"):
        reader[key] = copy.deepcopy(reader.get(key) or [])
    for name, arguments in _transforms(reader):
        if "Resize" in name and "target_size" in arguments:
            arguments["target_size"] = list(size)
            if "Random" in name:
                arguments["random_size"] = False


def _transforms(reader: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for key in ("sample_transforms", "batch_transforms"):
        for transform in reader.get(key) or ():
            yield from transform.items()
