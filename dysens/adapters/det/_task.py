"""A detector and all that belongs to it: its config, its data, its inputs, its Trainer and its checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import paddle

from dysens.adapters._norms import FREEZE, frozen_norms, norms_of, statistics_fit
from dysens.adapters._shared import read_optimizer_state
from dysens.adapters.base import Reading, Task, Unlabelled
from dysens.adapters.det._data import (
    DetEvaluator,
    configured_size,
    create_dataset,
    example_inputs,
    train_images,
    train_inputs,
)
from dysens.adapters.det._export import export, score_exported
from dysens.adapters.det._ppdet import DetConfig, import_ppdet, load_config
from dysens.adapters.det._weights import load_weights
from dysens.costs import Inputs
from dysens.errors import InputError
from dysens.flags import setting
from dysens.model import run_through
from dysens.programs import Exported
from dysens.pruning import read_state, save_plan, set_optimizer_state
from dysens.ratios import write_ratio_file
from dysens.sweep import Build, Built

logger = logging.getLogger(__name__)


@contextmanager
def plans_beside_checkpoints(model: paddle.nn.Layer) -> Iterator[None]:
    """While this lasts, each checkpoint that a Trainer writes gets the plan of ``model``."""
    callbacks = _callbacks()
    original = callbacks.save_model
    callbacks.save_model = _with_plan(original, model)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        callbacks.save_model = original  # type: ignore[attr-defined]


def keep_plans_beside_checkpoints(model: paddle.nn.Layer) -> None:
    """The same from now on, for PaddleDetection's own tools: they train one model and end."""
    callbacks = _callbacks()
    original = getattr(callbacks.save_model, "__wrapped__", callbacks.save_model)
    callbacks.save_model = _with_plan(original, model)  # type: ignore[attr-defined]


def _callbacks() -> ModuleType:
    return import_ppdet("engine.callbacks")


def _with_plan(save_model: Callable[..., None], model: paddle.nn.Layer) -> Callable[..., None]:
    def save_both(state: Any, optimizer: Any, folder: str, name: str, *others: Any, **named: Any) -> None:
        save_model(state, optimizer, folder, name, *others, **named)
        save_plan(model, Path(folder) / name)

    def save_model_and_plan(*arguments: Any, **named: Any) -> None:
        run_through(lambda: save_both(*arguments, **named))  # Ctrl-C waits until both are written

    save_model_and_plan.__wrapped__ = save_model  # type: ignore[attr-defined]
    return save_model_and_plan


FINAL = "model_final"  # how ppdet's Trainer calls its last checkpoint


class DetTask(Task):
    """A live detector with what is needed to analyse, prune and train it.

    Args:
        config: From `load_config`. Its ``weights`` are loaded, see `load_weights`; the override ``"weights=null"`` leaves
            the network as it is initialised.
        resume: A checkpoint of a training that was broken off, without an ending: `train` goes on from there.
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

    framework = "PaddleDetection"

    def __init__(
        self,
        config: DetConfig,
        *,
        resume: str | Path | None = None,
        input_size: tuple[int, int] | None = None,
    ) -> None:
        self.config = config
        self._resume = resume
        self.input_size = input_size or configured_size(config)
        _set_device(config)
        with config.installed() as live:
            try:
                self.model = import_ppdet("core.workspace").create(live["architecture"])
            except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
                raise InputError(
                    f"The network of {config.path} cannot be built by ppdet: {error}. "
                    "Is the config from another version of PaddleDetection than the ppdet that is installed?"
                ) from error
        if config.get("weights"):
            self.load(config["weights"])

    @property
    def has_weights(self) -> bool:
        """Whether the config named any."""
        return bool(self.config.get("weights"))

    def load(self, source: str | Path) -> None:
        """Loads weights into the network, see `load_weights`."""
        load_weights(self.model, source, self.example_inputs)

    @cached_property
    def evaluator(self) -> DetEvaluator:
        """Scores the model on the config's ``EvalDataset``."""
        return DetEvaluator(self.config)

    def unlabelled(self) -> Unlabelled:
        """Images of ``TrainDataset``, prepared by ``EvalReader``; of ``EvalDataset`` where there are none."""
        try:
            return Unlabelled(*train_images(self.config))
        except InputError as error:
            logger.info(
                "Calibrates on images of EvalDataset, since those of TrainDataset cannot be read: %s", error
            )
            return Unlabelled(self.evaluator.every_batch(), self.evaluator.arguments, "images of EvalDataset")

    def readings(self, count: int) -> Sequence[Reading]:
        """Boxes that the network finds in the first images of ``EvalDataset``."""
        return self.evaluator.readings(self.model, count)

    @property
    def indicator(self) -> str:
        """For COCO and VOC alike."""
        return "mAP"

    @property
    def build(self) -> Build:
        """From path and overrides: what they make cannot be sent to another process."""
        return partial(_model_and_evaluator, str(self.config.path), self.config.overrides)

    @property
    def folder(self) -> Path:
        """In ``save_dir``, and not where the training was, so that its checkpoints stay."""
        return Path(self.config.get("save_dir") or "output") / self._run_name

    @property
    def _run_name(self) -> str:
        return f"{self.config['filename']}_pruned"

    def write_ratios(self, path: Path, ratios: Mapping[str, float], criterion: str) -> None:
        """Write a slim config, with which PaddleDetection's ``tools/train.py`` prunes too; plain JSON if the name ends so."""
        if path.suffix == ".json":
            write_ratio_file(path, ratios)
        else:
            weights = self._pretrain_weights(path)
            write_ratio_file(path, ratios, "slim", criterion, weights)

    def _pretrain_weights(self, ratio_file: Path) -> str | None:
        """Weights that ``tools/train.py`` starts from: in train mode it wants some, as a file that ppdet can read."""
        weights = self.config.get("weights")
        if not weights:
            return None
        if not str(weights).endswith(".onnx"):
            return str(weights)
        converted = ratio_file.with_name("whole.pdparams")
        paddle.save(self.network.state_dict(), str(converted))
        return str(converted)

    @property
    def resumes(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return self._resume is not None

    def train(self) -> Path:
        """Train with ppdet's ``Trainer``; the network then has the weights of the last checkpoint.

        Batch norms keep their statistics where these fit the training images better than the batches' own; ``freeze_norm``
        of the config decides otherwise.
        """
        name = self._run_name
        training = (
            self.trainer(name=name) if self._resume is None else resumed_trainer(self, self._resume, name)
        )
        with training as trainer, frozen_norms(self._norms_to_freeze(trainer)):
            trainer.train(validate=False)
        # With a moving average (use_ema) the checkpoint has the average, the live network what was averaged.
        self.load(self.folder / FINAL)
        return self.folder

    def _norms_to_freeze(self, trainer: Any) -> list[paddle.nn.Layer]:
        """The batch norms that keep their statistics in training: all of them, or none."""
        norms = norms_of(self.network)
        given = self.config.get(FREEZE)
        if given is not None:
            return norms if given else []
        if not self.has_weights:
            return []

        def loss(batch: dict[str, Any]) -> paddle.Tensor:
            return self.model({**batch, "epoch_id": trainer.start_epoch})["loss"]

        fit = statistics_fit(self.network, norms, trainer.loader, loss, int(self.config.get("seed") or 0))
        return norms if fit else []

    @property
    def export_folder(self) -> Path:
        """As PaddleDetection's own export."""
        return Path("output_inference") / str(self.config["filename"])

    def export(self, folder: Path, images: Mapping[str, paddle.Tensor] | None = None) -> Exported:
        """Write `model` for PaddleDetection's ``deploy/``; compared on images of ``EvalDataset``: noise has few boxes."""
        return export(self, folder, self.images_to_compare() if images is None else images)

    def score_exported(self, source: Path) -> float:
        """The mAP of an exported model on ``EvalDataset``."""
        return score_exported(self, source)

    def first_images(self) -> dict[str, paddle.Tensor]:
        """The first batch of ``EvalDataset``."""
        return self.evaluator.first_inputs()

    def timing_inputs(self) -> Inputs:
        """One image of the data: suppressing boxes takes time, and in noise there are few."""
        return {name: tensor[:1].numpy() for name, tensor in self.first_images().items()}

    def low_baseline_hint(self) -> str:
        """Weights and data must belong together."""
        return f"Do the weights ({self.config.get('weights')}) and the images of EvalDataset belong together?"

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


def _model_and_evaluator(path: str, overrides: tuple[str, ...]) -> Built:
    """What a further process needs to take part in a sweep."""
    task = DetTask(load_config(path, overrides))
    return task.model, task.evaluator


def _set_device(config: DetConfig) -> None:
    for kind in ("gpu", "npu", "xpu", "mlu"):
        if config.get(f"use_{kind}", False):
            try:
                # One that the user has chosen, such as gpu:1, stays.
                paddle.set_device(paddle.get_device() if paddle.get_device().startswith(kind) else kind)
            except (ValueError, RuntimeError) as error:
                raise InputError(
                    f"{config.path} asks for a device that this Paddle does not have ({error}). "
                    f"Use {setting(f'use_{kind}=false')} to run on the CPU."
                ) from error
            return
    paddle.set_device("cpu")


@contextmanager
def resumed_trainer(task: DetTask, checkpoint: str | Path, name: str | None = None) -> Iterator[Any]:
    """ppdet's ``Trainer`` where it was when it wrote a checkpoint; use it inside the ``with``.

    ppdet's own ``resume_weights`` finds the optimizer's state by automatic parameter names, and these change with what was
    built before in a process.

    Args:
        task: Its network gets the checkpoint's weights, and is cut by the plan beside them if it is still whole.
        checkpoint: One that a Trainer of `DetTask` wrote, without an ending: ``output/my_config_pruned/2``.
        name: See `DetTask.trainer`.

    Raises:
        InputError: Files are missing or do not fit, or no epoch is left to be trained.
    """
    prefix = str(checkpoint).removesuffix(".pdparams")
    weights, optimizer, live = (Path(prefix + ending) for ending in (".pdparams", ".pdopt", ".pdema"))
    for path in (weights, optimizer):
        if not path.is_file():
            raise InputError(f'Training cannot continue from "{checkpoint}": {path} is not there.')
    task.load(weights)
    with task.trainer(name=name) as trainer:
        averaged = live.is_file() and trainer.use_ema
        if averaged:
            # The checkpoint has the moving average; what was averaged is beside it.
            task.model.set_state_dict(read_state(live))
        state = read_optimizer_state(optimizer, weights, task.model)
        trainer.start_epoch = state.pop("last_epoch", 0)
        if trainer.start_epoch >= trainer.cfg.epoch:
            raise InputError(
                f'"{checkpoint}" was written after epoch {trainer.start_epoch} of {trainer.cfg.epoch}: no epoch is '
                f"left. Train for longer with {setting('epoch=number')}."
            )
        set_optimizer_state(trainer.optimizer, state, optimizer)
        if averaged:
            average = {name: paddle.to_tensor(value) for name, value in read_state(weights).items()}
            trainer.ema.resume(average, state["LR_Scheduler"]["last_epoch"])
        yield trainer
