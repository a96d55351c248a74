"""A detector and all that belongs to it: its config, its data, its inputs, its Trainer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import paddle

from dysens.adapters.det.checkpoints import plans_beside_checkpoints
from dysens.adapters.det.datasets import create_dataset
from dysens.adapters.det.evaluator import DetEvaluator
from dysens.adapters.det.inputs import configured_size, example_inputs, train_inputs
from dysens.adapters.det.ppdet_import import import_ppdet
from dysens.adapters.det.weights import load_weights
from dysens.adapters.det.workspace import DetConfig
from dysens.errors import InputError


class DetTask:
    """A live detector with what is needed to analyse, prune and train it.

    Args:
        config: From `load_config`. Its ``weights`` are loaded, see `load_weights`; the override ``"weights=null"`` leaves
            the network as it is initialised.
        input_size: See below; None takes what the config evaluates or exports with.

    Attributes:
        config: The config that it was built from.
        model: The network, a ``paddle.nn.Layer``.
        input_size: Height and width of the images in `example_inputs` and `train_inputs`.

    Raises:
        InputError: The config or the weights cannot be used.
        MissingExtraError: ppdet is not installed.

    Example:
        >>> task = DetTask(load_config("configs/det/picodet_lcnet_layout.yml"))  # doctest: +SKIP
        >>> task.input_size  # doctest: +SKIP
        (800, 608)
    """

    def __init__(self, config: DetConfig, *, input_size: tuple[int, int] | None = None) -> None:
        self.config = config
        self.input_size = input_size or configured_size(config)
        _set_device(config)
        with config.installed() as live:
            try:
                self.model: paddle.nn.Layer = import_ppdet("core.workspace").create(live["architecture"])
            except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
                raise InputError(
                    f"ppdet cannot build the network of {config.path}: {error}. "
                    "Is the config from another version of PaddleDetection than the ppdet that is installed?"
                ) from error
        if config.get("weights"):
            self.load(config["weights"])

    def load(self, source: str | Path) -> None:
        """Loads weights into the network, see `load_weights`."""
        load_weights(self.model, source, self.example_inputs)

    @cached_property
    def evaluator(self) -> DetEvaluator:
        """Scores the model on the config's ``EvalDataset``."""
        return DetEvaluator(self.config)

    @property
    def example_inputs(self) -> dict[str, paddle.Tensor]:
        """What the model is called with in eval mode; the image is noise, the same at every call."""
        return example_inputs(self.input_size)

    @property
    def train_inputs(self) -> dict[str, Any]:
        """What the model is called with in training mode: two images of ``TrainDataset`` with their ground truth.

        The config's ``TrainReader`` prepares them, except that they are resized to `input_size`.
        """
        return train_inputs(self.config, self.input_size)

    @contextmanager
    def trainer(self, mode: str = "train", name: str | None = None) -> Iterator[Any]:
        """ppdet's ``Trainer`` around the live model, cut or not; use it inside the ``with``.

        Its settings (``epoch``, ``save_dir``, ``LearningRate``, ...) are those of the config. Each checkpoint that it writes
        gets the plan of what was cut beside it, so that `load` reads it again.

        Args:
            mode: ``train`` or ``eval``.
            name: The folder in ``save_dir`` that gets the checkpoints; None for the config's name.

        Example:
            >>> with task.trainer() as trainer:  # doctest: +SKIP
            ...     trainer.train(validate=False)
        """
        if mode not in ("train", "eval"):
            raise InputError(f'A Trainer is made for "train" or "eval", not for "{mode}".')
        with self.config.installed() as live, plans_beside_checkpoints(self.model):
            create_dataset(self.config, f"{mode.capitalize()}Dataset")
            live["filename"] = name or live["filename"]
            # Where it finds this key, Trainer takes the model as it is instead of building one.
            live["model"] = self.model
            yield import_ppdet("engine").Trainer(live, mode=mode)


def _set_device(config: DetConfig) -> None:
    for kind in ("gpu", "npu", "xpu", "mlu"):
        if config.get(f"use_{kind}", False):
            try:
                # One that the user has chosen, such as gpu:1, stays.
                paddle.set_device(paddle.get_device() if paddle.get_device().startswith(kind) else kind)
            except (ValueError, RuntimeError) as error:
                raise InputError(
                    f"{config.path} asks for a device that this Paddle does not have ({error}). "
                    f"Set use_{kind}=false to run on the CPU."
                ) from error
            return
    paddle.set_device("cpu")
