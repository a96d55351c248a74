"""What benchmarks/compress.py measures: networks, each with data to calibrate on, others to score on, and a short training."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import cifar
import numpy as np
import paddle
from matplotlib import font_manager
from zoo import CONFIGS, OCR

from dysens import DygraphSensitivity
from dysens.adapters import det, frozen_norms, norms_of, ocr
from dysens.compress import Stopwatch
from dysens.data import Fonts, find_fonts, make_layout_pages, make_shapes, write_lines, write_scenes
from dysens.errors import InputError
from dysens.evaluators import Evaluator, evaluate
from dysens.sweep import TaylorCurves

LAYOUT, SHAPES = "layout PicoDet", "PP-YOLOE-s on shapes"
NETWORKS = ("PP-OCRv3 det", "PP-OCRv4 det", "PP-OCRv4 rec", LAYOUT, SHAPES, *cifar.CIFAR)

# Pictures depend on the fonts that they are drawn with: Latin ones come with matplotlib, this is WenQuanYi Zen Hei 0.9.45.
CHINESE_FONT, CHINESE_FONT_IS = (
    "wqy-zenhei.ttc",
    "79c18ebe7b811951e8311bad7103ebeae8c337ed9988ea69e8a78a66cfe029b9",
)

# How PP-YOLOE is trained here, before anything is cut.
_EPOCHS, _PICTURES = 14, 512
_SCHEDULE = (
    "[{{name: CosineDecay, max_epochs: {epochs}}}, {{name: LinearWarmup, start_factor: 0.1, steps: 20}}]"
)


@cache
def fonts(chinese: Path | None) -> Fonts:
    """The same on every machine: matplotlib's Latin fonts, and one Chinese font.

    Args:
        chinese: Its file; None for the installed one.
    """
    installed = (Path(file) for file in font_manager.findSystemFonts())
    file = chinese or next((path for path in installed if path.name == CHINESE_FONT), None)
    if file is None or hashlib.sha256(file.read_bytes()).hexdigest() != CHINESE_FONT_IS:
        raise InputError(
            f"Pictures of other fonts give other scores: install fonts-wqy-zenhei 0.9.45, or name its {CHINESE_FONT} by "
            "--chinese-font."
        )
    return Fonts(find_fonts().latin, (file,))


class FewBatches(Evaluator):
    """An evaluator on the first so many batches of another, kept in memory."""

    def __init__(self, whole: Evaluator, number: int | None = None) -> None:
        self.name = whole.name
        self.higher_is_better = whole.higher_is_better
        self._whole = whole
        self._batches = list(islice(iter(whole.batches()), number))

    def batches(self) -> list[Any]:
        return self._batches

    def arguments(self, batch: Any) -> tuple[Any, ...]:
        return self._whole.arguments(batch)

    def measure(self, outputs: Any, batch: Any) -> Any:
        return self._whole.measure(outputs, batch)

    def score(self, measurements: Any) -> float:
        return self._whole.score(measurements)


class Case(ABC):
    """A network with its data.

    Args:
        network: Its name.
        seed: Draws the data.
        folder: Where they go.
        weights: Where networks that are trained here keep their weights.

    Attributes:
        model: The live layer.
        inputs: What it is analysed with.
        train_inputs: The same for its training forward, where that has branches of its own.
        samples: How many of the calibration images `compress` takes at most.
        sweep_seconds: What sweeps of it took so far.
    """

    model: paddle.nn.Layer
    inputs: Any
    train_inputs: Any = None
    samples = 64
    sweep_seconds = 0.0

    def __init__(self, network: str, seed: int, folder: Path, weights: Path) -> None:
        self.network, self.seed, self.folder, self.weights = network, seed, folder, weights
        self.prepare()
        self.model.eval()

    @abstractmethod
    def prepare(self) -> None:
        """Build the model with its weights."""

    @cached_property
    @abstractmethod
    def calibration(self) -> Evaluator:
        """Images to calibrate on; only a sweep looks at their labels."""

    @cached_property
    @abstractmethod
    def test(self) -> Evaluator:
        """Others to score on."""

    @abstractmethod
    def fine_tune(self) -> None:
        """A short training of the live model, the same for every way to cut it."""

    @property
    def large_inputs(self) -> Any:
        """Inputs of the size that matters for time."""
        return self.inputs

    def taylor(self, ratios: Sequence[float]) -> TaylorCurves | None:
        """The estimate from labels, where there is a loss for it."""
        return None

    @cached_property
    def ds(self) -> DygraphSensitivity:
        return DygraphSensitivity(self.model, self.inputs, train_inputs=self.train_inputs)

    @cached_property
    def unlabelled(self) -> Sequence[Any]:
        return [self.calibration.arguments(batch) for batch in self.calibration.batches()]

    @cached_property
    def whole(self) -> float:
        return evaluate(self.model, self.test)

    @cached_property
    def stopwatch(self) -> Stopwatch:
        return Stopwatch(self.model, self.ds._views[0], "paddle", self.folder)


class OcrCase(Case):
    """A released network of PP-OCR on generated scenes or lines."""

    chinese_font: Path | None = None

    def prepare(self) -> None:
        self._is_det = "det" in self.network
        # Scenes have 320 x 320 pixels.
        self._images, self._tests = (16, 64) if self._is_det else (96, 192)
        self.task = self._task("calibration", self._images, 2 * self.seed, OCR[self.network][1])
        self.model = self.task.model
        self.inputs = self.task.example_inputs
        self.train_inputs = None if self._is_det else self.task.train_inputs

    @cached_property
    def calibration(self) -> Evaluator:
        return FewBatches(self.task.evaluator)

    @cached_property
    def test(self) -> Evaluator:
        return FewBatches(self._task("test", self._tests, 2 * self.seed + 1, "null").evaluator)

    @property
    def large_inputs(self) -> Any:
        """A page, or a line as it is."""
        return [1, 3, 736, 736] if self._is_det else self.inputs

    def fine_tune(self) -> None:
        """One pass over 96 other scenes, or 160 lines."""
        count = 96 if self._is_det else 160
        task = self._task("training", count, 1000 + self.seed, "null", "Global.epoch_num=1")
        task.model = self.model
        loader, loss = task.train_dataloader(), task.loss()
        optimizer = paddle.optimizer.Adam(5e-4 if self._is_det else 1e-4, parameters=self.model.parameters())
        self.model.train()
        # The branch that guides a recogniser in training comes without weights: it must not teach.
        kept = (
            frozen_norms(norms_of(self.model))
            if self._is_det
            else ocr.fine_tuning_of(self.task).applied(self.model)
        )
        with kept:
            for batch in loader:
                images, labels = batch[0], batch[1:]
                made = self.model(images, data=labels) if not self._is_det else self.model(images)
                loss(made, batch)["loss"].backward()
                optimizer.step()
                optimizer.clear_grad()
        self.model.eval()

    def _task(self, part: str, count: int, seed: int, weights: str, *settings: str) -> ocr.OcrTask:
        target = self.folder / part
        write = write_scenes if self._is_det else write_lines
        write(target, count, seed, fonts=fonts(self.chinese_font))
        paths = [
            f"{mode}.dataset.{key}"
            for mode in ("Train", "Eval")
            for key in (f"data_dir={target}", f"label_file_list=[{target}/label.txt]")
        ]
        config = CONFIGS / "ocr" / OCR[self.network][0]
        return ocr.OcrTask(ocr.load_config(config, [*paths, f"Global.pretrained_model={weights}", *settings]))


class DetCase(Case):
    """A detector of PaddleDetection: the released one for page layout, or one for shapes that is trained here."""

    def prepare(self) -> None:
        paddle.seed(0)
        self._is_layout = self.network == LAYOUT
        # Pictures that need no labels cost nothing. Some layers of PP-YOLOE read one vector a picture, of up to 384 channels.
        self._calibrated, self._tests = (16, 32) if self._is_layout else (256, 192)
        self.samples = max(self.samples, self._calibrated)
        self._draw("calibration", self._calibrated, 2 * self.seed)
        self._draw("test", self._tests, 2 * self.seed + 1)
        self._draw("training", 16 if self._is_layout else 256, 1000 + self.seed)
        self.task = self._task("calibration")
        self.model, self.inputs = self.task.model, self.task.example_inputs
        if not self._is_layout:
            self._trained_once()

    @cached_property
    def calibration(self) -> Evaluator:
        return FewBatches(self.task.evaluator)

    @cached_property
    def test(self) -> Evaluator:
        return FewBatches(det.DetEvaluator(self._config("test")))

    def fine_tune(self) -> None:
        """One epoch of ppdet's own loop."""
        with frozen_norms(norms_of(self.model)):
            self._train("training", 1, 0.0003)
        self.model.eval()

    def _trained_once(self) -> None:
        """Once for all seeds, on pictures of its own."""
        file = self.weights / f"ppyoloe_shapes_{_EPOCHS}x{_PICTURES}.pdparams"
        if not file.is_file():
            self._draw("first training", _PICTURES, 5000)
            self._train("first training", _EPOCHS, 0.001)
            paddle.save(self.model.state_dict(), str(file))
        self.model.set_state_dict(paddle.load(str(file)))
        self.model.yolo_head.static_assigner_epoch = 0  # go on as the training ended, not as it began

    def _train(self, pictures: str, epochs: int, rate: float) -> None:
        settings = [
            "weights=null",
            f"epoch={epochs}",
            f"snapshot_epoch={epochs}",
            f"LearningRate.base_lr={rate}",
            f"TrainDataset.dataset_dir={self.folder / pictures}",
        ]
        if not self._is_layout:  # the rate of the config falls over six epochs
            settings.append(f"LearningRate.schedulers={_SCHEDULE.format(epochs=epochs)}")
        task = self._task("calibration", *settings)
        task.model = self.model
        with task.trainer(name="training") as trainer:
            trainer.train(validate=False)

    def _draw(self, part: str, count: int, seed: int) -> None:
        make = make_layout_pages if self._is_layout else make_shapes
        make(self.folder / part, count, seed=seed)

    def _config(self, part: str, *settings: str) -> Any:
        name = "picodet_lcnet_layout.yml" if self._is_layout else "ppyoloe_crn_s_shapes.yml"
        own = [] if self._is_layout else ["weights=null"]
        folders = [
            f"TrainDataset.dataset_dir={self.folder}/training",
            f"EvalDataset.dataset_dir={self.folder}/{part}",
            f"save_dir={self.folder}/output",
        ]
        return det.load_config(CONFIGS / "det" / name, [*folders, *own, *settings])

    def _task(self, part: str, *settings: str) -> det.DetTask:
        return det.DetTask(self._config(part, *settings))


class CifarCase(Case):
    """A small classifier, trained here on CIFAR-10."""

    package = Path()

    def prepare(self) -> None:
        paddle.seed(0)
        self.model, self.inputs = cifar.CIFAR[self.network](), cifar.SHAPE
        file = self.weights / f"{self.network.replace(' ', '_')}.pdparams"
        if not file.is_file():
            cifar.train(self.model, cifar.read(self.package, "train"), cifar.STEPS[self.network], 0.05, 0)
            paddle.save(self.model.state_dict(), str(file))
        self.model.set_state_dict(paddle.load(str(file)))

    @cached_property
    def _drawn(self) -> tuple[cifar.Arrays, cifar.Arrays]:
        pictures, labels = cifar.read(self.package, "test")
        order = np.random.default_rng(self.seed).permutation(len(labels))[: 64 + 2000]
        return (pictures[order[:64]], labels[order[:64]]), (pictures[order[64:]], labels[order[64:]])

    @cached_property
    def calibration(self) -> Evaluator:
        return cifar.Accuracy(self._drawn[0], 16)

    @cached_property
    def test(self) -> Evaluator:
        return cifar.Accuracy(self._drawn[1])

    def taylor(self, ratios: Sequence[float]) -> TaylorCurves:
        """From the cross entropy."""
        batches = [
            [paddle.to_tensor(pictures), paddle.to_tensor(labels)]
            for pictures, labels in self.calibration.batches()
        ]
        return self.ds.estimate(batches, paddle.nn.functional.cross_entropy, ratios)

    def fine_tune(self) -> None:
        """A hundred steps."""
        cifar.train(self.model, cifar.read(self.package, "train"), 100, 0.01, 1 + self.seed)


def case_of(network: str, seed: int, folder: Path, weights: Path) -> Case:
    """By the name of the network."""
    kind = CifarCase if network in cifar.CIFAR else DetCase if network in (LAYOUT, SHAPES) else OcrCase
    return kind(network, seed, folder, weights)
