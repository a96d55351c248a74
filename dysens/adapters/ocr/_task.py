"""A PaddleOCR config brought to life: the network, its weights, and the way PaddleOCR scores it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import paddle

from dysens.adapters._shared import seeded
from dysens.adapters.base import Reading, Task, Unlabelled
from dysens.adapters.ocr._config import fill_out_channels, input_shape, network_name, section, takes_labels
from dysens.adapters.ocr._data import SEED, Batches, build_loader, drawn_samples, first_samples
from dysens.adapters.ocr._evaluators import OcrEvaluator, evaluator_for
from dysens.adapters.ocr._export import export, score_exported
from dysens.adapters.ocr._labels import label_files
from dysens.adapters.ocr._ppocr import Ppocr, load_ppocr
from dysens.adapters.ocr._released import find_weights, released_dictionary
from dysens.adapters.ocr._training import train
from dysens.adapters.ocr._weights import LoadedWeights, load_weights, read_state
from dysens.costs import Inputs
from dysens.errors import InputError
from dysens.programs import Exported
from dysens.sweep import Build, Built

logger = logging.getLogger(__name__)

TRAIN_SAMPLES = 2  # enough for batch norm in training mode
# Images to compare outputs on: stock recognisers have batches of 128 lines, with 18,000 classes for each of 40 places.
COMPARED = 16


class OcrTask(Task):
    """Everything that a config describes, built by PaddleOCR's own builders.

    Args:
        config: From `load_config`. It is copied; number of classes and absolute dictionary path are filled
            in.
        submodel: Which network of a distillation config to measure and prune, such as ``Student``; by
            default the one that the config's metric is about.
        home: A PaddleOCR checkout, see `load_ppocr`.

    Attributes:
        given: The config as it was given.
        config: The completed config.
        model: The network to measure and prune: ``network`` itself, or the chosen sub-model inside it.
        post_process: PaddleOCR's post-process for the outputs of ``network``.
        weights: What was loaded from ``Global.checkpoints`` or ``Global.pretrained_model``; None without
            either.

    Raises:
        InputError: The config is incomplete, or the weights do not fit.
        MissingExtraError: PaddleOCR's code is not there.

    Example:
        >>> task = OcrTask(load_config("configs/ocr/ch_PP-OCRv3_det.yml"))  # doctest: +SKIP
        >>> [list(tensor.shape) for tensor in task.example_inputs]  # doctest: +SKIP
        [[1, 3, 320, 320]]
    """

    framework = "PaddleOCR"

    def __init__(
        self, config: Mapping[str, Any], submodel: str | None = None, home: str | Path | None = None
    ) -> None:
        self._ppocr = load_ppocr(home)
        self.given = deepcopy(dict(config))
        self.config = _completed(config, self._ppocr)
        self.place = _place(self.config)
        self.submodel = network_name(self.config, submodel)
        self.post_process = _built(
            "PostProcess",
            self._ppocr.build_post_process,
            section(self.config, "PostProcess"),
            self.config["Global"],
        )
        fill_out_channels(self.config, self.post_process)
        # What no file has weights for must begin alike in every process, or none could take over another's work.
        with seeded(self.seed):
            self._network = _built("Architecture", self._ppocr.build_model, self.config["Architecture"])
        self.model = self._network if self.submodel is None else getattr(self._network, self.submodel)
        source = self.config["Global"].get("checkpoints") or self.config["Global"].get("pretrained_model")
        self.weights = self.load(source) if source else None

    @property
    def network(self) -> paddle.nn.Layer:
        """What PaddleOCR trains: the whole distillation model where the config describes one."""
        return self._network

    @property
    def has_weights(self) -> bool:
        """Whether the config named any, and for the whole network."""
        return self.weights is not None and not self.weights.random

    def load(self, source: str | Path) -> LoadedWeights:
        """Loads a checkpoint or an inference model into the network, see `load_weights`.

        With a distillation config, a file of the whole distillation model goes into all networks, any other
        into the chosen one.
        """
        path = find_weights(source)
        whole = (self.submodel is not None and path.suffix != ".onnx") and any(
            name.startswith(f"{self.submodel}.") for name in read_state(path)
        )
        return load_weights(self.network if whole else self.model, path, self.example_inputs)

    def follow_dictionary(self, config: Mapping[str, Any]) -> None:
        """Go on with another dictionary, now that the network has its classes: decoding, scores and data follow it.

        Args:
            config: The config for the network as it is now.
        """
        self.given = deepcopy(dict(config))
        path = config["Global"]["character_dict_path"]
        self.config["Global"]["character_dict_path"] = path
        self.post_process = self._ppocr.build_post_process(
            deepcopy(section(self.config, "PostProcess")), self.config["Global"]
        )
        fill_out_channels(self.config, self.post_process)
        for cached in ("evaluator", "train_inputs"):
            self.__dict__.pop(cached, None)

    @property
    def indicator(self) -> str:
        """The name of the score, such as hmean for detection and acc for recognition."""
        return str(self.new_metric().main_indicator)

    @property
    def example_inputs(self) -> tuple[paddle.Tensor, ...]:
        """Arguments for a forward in eval mode: one random image of the config's size, always the same."""
        shape = (1, *input_shape(self.config))
        image = np.random.RandomState(0).uniform(-1, 1, shape).astype("float32")
        return (paddle.to_tensor(image, place=self.place),)

    @cached_property
    def train_inputs(self) -> tuple[Any, ...]:
        """Arguments for a forward in training mode, as PaddleOCR's loop gives them: images, maybe labels.

        Two drawn images take the way of the config's own transforms, so that nobody needs a training set to look at a
        network; where these transforms want something else, they are the first two of ``Train``.
        """
        try:
            with TemporaryDirectory() as folder:
                batch = drawn_samples(self.config, Path(folder), self.place, TRAIN_SAMPLES)
        except Exception as error:  # whatever transforms raise that expect other data
            logger.info(
                "The training forward is tried with the config's data: drawn ones fail with %s", error
            )
            batch = first_samples(self.train_dataloader(), TRAIN_SAMPLES)
        return (batch[0], batch[1:]) if takes_labels(self.config, training=True) else (batch[0],)

    @cached_property
    def evaluator(self) -> OcrEvaluator:
        """Scores `model` on ``Eval`` exactly as PaddleOCR's own ``program.eval`` does."""
        metric = _metric_section(self.config)
        loader = self.eval_dataloader()
        return evaluator_for(metric["name"])(
            name=f"{metric['name']}.{self.indicator} on {_set_name(self.config)} ({len(loader.dataset)} images)",
            batches=Batches(loader),
            post_process=_model_post_process(self.config, self.submodel, self._ppocr),
            new_metric=self.new_metric,
            with_labels=takes_labels(self.config, training=False),
        )

    def unlabelled(self) -> Unlabelled:
        """Images of ``Train``, prepared as those of ``Eval`` are; of ``Eval`` where there are none."""
        try:
            loader, name = build_loader(_as_in_eval(self.config), "Eval", self.place), "Train"
        except InputError as error:
            logger.info("Calibrates on images of Eval, since those of Train cannot be read: %s", error)
            loader, name = self.eval_dataloader(), "Eval"
        return Unlabelled(
            Batches(loader), self.evaluator.arguments, f"images of {name} ({len(loader.dataset)})"
        )

    def readings(self, count: int) -> Sequence[Reading]:
        """Text boxes, or lines, that the network finds in the first images of ``Eval``."""
        return self.evaluator.readings(self.model, count)

    @property
    def build(self) -> Build:
        """From the config alone."""
        return partial(_model_and_evaluator, self.given, self.submodel)

    @property
    def seed(self) -> int:
        """``Global.seed``, or the one that PaddleOCR falls back to."""
        return int(self.config["Global"].get("seed", SEED))

    @property
    def folder(self) -> Path:
        """``Global.save_model_dir``."""
        return Path(str(self.config["Global"].get("save_model_dir", "output")))

    @property
    def resumes(self) -> bool:
        """As for PaddleOCR: ``Global.checkpoints`` names a run to go on with."""
        return bool(self.config["Global"].get("checkpoints"))

    def train(self) -> Path:
        """Train `network` with PaddleOCR's ``program.train``."""
        train(self, resume=self.config["Global"].get("checkpoints"))
        return self.folder

    @property
    def export_folder(self) -> Path:
        """``Global.save_inference_dir``, or ``inference`` beside the checkpoints."""
        return Path(str(self.config["Global"].get("save_inference_dir") or self.folder / "inference"))

    def export(self, folder: Path, images: paddle.Tensor | None = None) -> Exported:
        """Write `model` for PaddleOCR's predictors; compared on images of ``Eval``, since in noise a detector sees no text."""
        return export(self, folder, self.images_to_compare() if images is None else images)

    def score_exported(self, source: Path) -> float:
        """The main indicator of an exported model on ``Eval``."""
        return score_exported(self, source)

    def first_images(self) -> paddle.Tensor:
        """The first images of ``Eval``."""
        return next(iter(self.evaluator.batches()))[0][:COMPARED]

    def timing_inputs(self) -> Inputs:
        """One image."""
        return [tensor.numpy() for tensor in self.example_inputs]

    def low_baseline_hint(self) -> str:
        """Weights, labels and dictionary must belong together."""
        settings = self.config["Global"]
        dictionary = settings.get("character_dict_path")
        return (
            f"Do the weights ({settings.get('checkpoints') or settings.get('pretrained_model')}) and the labels"
            + (f" and the dictionary ({dictionary})" if dictionary else "")
            + " belong together?"
        )

    def new_metric(self) -> Any:
        """An empty metric for the outputs of `model`."""
        return _built("Metric", self._ppocr.build_metric, _metric_section(self.config))

    def new_network_metric(self) -> Any:
        """An empty metric for the outputs of `network`; only a distillation's is another one."""
        return self._ppocr.build_metric(section(self.config, "Metric"))

    def eval_dataloader(self) -> Any:
        """PaddleOCR's loader of ``Eval``."""
        return build_loader(self.config, "Eval", self.place, scored=True)

    def train_dataloader(self) -> Any:
        """PaddleOCR's loader of ``Train``."""
        return build_loader(self.config, "Train", self.place)

    def loss(self) -> Any:
        """PaddleOCR's loss for the outputs of `network` in training mode."""
        return _built("Loss", self._ppocr.build_loss, deepcopy(section(self.config, "Loss")))

    def optimizer(self, steps_per_epoch: int) -> tuple[Any, ...]:
        """PaddleOCR's optimizer over the parameters that `network` has now, and its schedule.

        Newer versions of PaddleOCR give a schedule of the weight decay as a third, or None.
        """
        return self._ppocr.build_optimizer(
            deepcopy(section(self.config, "Optimizer")),
            epochs=section(self.config, "Global")["epoch_num"],
            step_each_epoch=steps_per_epoch,
            model=self.network,
        )


def _model_and_evaluator(config: Mapping[str, Any], submodel: str | None) -> Built:
    """What a further process needs to take part in a sweep."""
    task = OcrTask(config, submodel)
    return task.model, task.evaluator


def _built(name: str, build: Callable[..., Any], *arguments: Any) -> Any:
    """What a builder of PaddleOCR makes of a section; it reports mistakes in there by any exception."""
    try:
        return build(*arguments)
    except Exception as error:  # also by a plain one
        raise InputError(
            f"PaddleOCR cannot build the config's {name}: {type(error).__name__}: {error}"
        ) from error


def _completed(config: Mapping[str, Any], ppocr: Ppocr) -> dict[str, Any]:
    """A copy with what PaddleOCR's ``preprocess`` adds, and with the dictionary where it really is."""
    completed = deepcopy(dict(config))
    for name in ("Global", "Architecture", "PostProcess", "Metric"):
        section(completed, name)
    settings = completed["Global"]
    if settings.get("distributed"):
        logger.info(
            "The config is for several processes (distributed); this one trains and scores by itself."
        )
    settings["distributed"] = False
    # A profiler would end the training after its own number of steps.
    completed["profiler_options"] = None
    dictionary = settings.get("character_dict_path")
    if dictionary:
        released = released_dictionary(Path(dictionary).name)
        places = [Path(dictionary), ppocr.home / dictionary, *([released] if released else [])]
        found = [path for path in places if path.is_file()]
        if not found:
            raise InputError(
                f'The dictionary "{dictionary}" (Global.character_dict_path) is neither in '
                f'"{Path.cwd()}" nor in "{ppocr.home}".'
            )
        settings["character_dict_path"] = str(found[0])
    return completed


def _place(config: dict[str, Any]) -> Any:
    wants_gpu = bool(config["Global"].get("use_gpu", False))
    if wants_gpu and not paddle.is_compiled_with_cuda():
        logger.warning(
            "The config asks for a GPU, and this Paddle is built for CPU: everything runs on the CPU."
        )
        wants_gpu = config["Global"]["use_gpu"] = False
    return paddle.set_device("gpu" if wants_gpu else "cpu")


def _as_in_eval(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config whose ``Eval`` reads the images of ``Train``, and prepares them as ever: without augmentation."""
    images = deepcopy(section(config, "Train.dataset"))
    images["transforms"] = deepcopy(section(config, "Eval.dataset")["transforms"])
    if images.get("name") == "MultiScaleDataSet":  # which resizes in a sampler of its own
        images["name"] = "SimpleDataSet"
    return {**config, "Eval": {**section(config, "Eval"), "dataset": images}}


def _model_post_process(
    config: Mapping[str, Any], submodel: str | None, ppocr: Ppocr
) -> Callable[[Any, Any], Any]:
    """The post-process for the outputs of one network, also where the config's own is for several."""
    settings = deepcopy(section(config, "PostProcess"))
    if submodel is None:
        post_process = ppocr.build_post_process(settings, config["Global"])
        return lambda outputs, batch: post_process(outputs, batch[1])
    settings["model_name"] = [submodel]
    of_several = ppocr.build_post_process(settings, config["Global"])
    return lambda outputs, batch: of_several({submodel: outputs}, batch[1])[submodel]


def _set_name(config: Mapping[str, Any]) -> str:
    """The label files of ``Eval`` with the folders that they lie in: enough to tell sets apart, wherever they are."""
    files = label_files(section(config, "Eval.dataset"))
    return ", ".join("/".join(Path(file).parts[-2:]) for file in files) or "Eval"


def _metric_section(config: Mapping[str, Any]) -> dict[str, Any]:
    """``Metric``; of a distillation config, the metric that it applies to each network."""
    metric = deepcopy(section(config, "Metric"))
    if metric["name"] == "DistillationMetric":
        metric["name"] = metric.pop("base_metric_name")
        metric.pop("key", None)
    return metric
