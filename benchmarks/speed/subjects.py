"""What is measured: two networks that people prune, with weights, data and a score that mean something."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle.nn.functional import cross_entropy, interpolate
from paddle.vision.models import mobilenet_v1
from store import stack

from dysens.adapters.ocr import OcrTask, load_config, load_ppocr
from dysens.data import Digits, load_digits, write_scenes
from dysens.evaluators import Evaluator, MetricEvaluator

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "output" / "bench"  # trained weights and rendered scenes, made once

SIDE = 128
BATCH = 8
# First small pictures, which train fast, then those that are measured: (side, epochs, learning rate).
SCHEDULE = ((64, 2, 2e-3), (SIDE, 2, 1e-3))
TRAIN_BATCH = 24
SCENES = 40
# Of sampled points, one after the other: any first few of them are low, middle and high.
_RATIOS = (0.5, 0.1, 0.7, 0.3, 0.9, 0.2, 0.8, 0.4)


@dataclass(frozen=True)
class Subject:
    """A network and two ways to score it that give the same number.

    Attributes:
        name: What the tables call it.
        model: The live layer, in eval mode.
        shape: Of one input.
        eval_func: Scores the live model as its owners do: what PaddleSlim is given.
        evaluator: The same for dysens, batch by batch.
        samples: How many images.
        loss: The training loss of a batch, where its labels define one.
    """

    name: str
    model: paddle.nn.Layer
    shape: list[int]
    eval_func: Callable[[], float]
    evaluator: Evaluator
    samples: int
    loss: Callable[..., paddle.Tensor] | None = None


def mobilenet(images: int = 200) -> Subject:
    """MobileNetV1 at scale 1.0 on digits that are enlarged to 128x128."""
    test = enlarged(load_digits()[1], SIDE)
    model = _trained_mobilenet()
    batches = [
        [paddle.to_tensor(test.images[i : i + BATCH]), paddle.to_tensor(test.labels[i : i + BATCH, None])]
        for i in range(0, images, BATCH)
    ]

    def accuracy() -> float:
        right = 0
        with paddle.no_grad():
            for pictures, labels in batches:
                right += int((model(pictures).argmax(axis=1) == labels.flatten()).sum())
        return right / images

    evaluator = MetricEvaluator(batches, paddle.metric.Accuracy())
    return Subject("MobileNetV1", model, [1, 3, SIDE, SIDE], accuracy, evaluator, images, cross_entropy)


def enlarged(digits: Digits, side: int) -> Digits:
    """Digits as pictures with three channels."""
    images = interpolate(paddle.to_tensor(digits.images), [side, side], mode="bilinear")
    return Digits(np.repeat(images.numpy(), 3, axis=1), digits.labels)


def _trained_mobilenet() -> paddle.nn.Layer:
    paddle.seed(1)
    model = mobilenet_v1(num_classes=10)
    weights = KEPT / "mobilenet_v1.npz"
    if not weights.exists():
        for side, epochs, rate in SCHEDULE:
            _train(model, enlarged(load_digits()[0], side), epochs, rate)
        weights.parent.mkdir(parents=True, exist_ok=True)
        np.savez(weights, **{name: tensor.numpy() for name, tensor in model.state_dict().items()})
    with np.load(weights) as archive:
        model.set_state_dict(dict(archive))
    model.eval()
    return model


def _train(model: paddle.nn.Layer, data: Digits, epochs: int, rate: float) -> None:
    """Smaller steps than the demo's: this network is deep."""
    order = np.random.default_rng(0)
    steps = len(data) // TRAIN_BATCH
    schedule = paddle.optimizer.lr.CosineAnnealingDecay(rate, epochs * steps)
    optimizer = paddle.optimizer.Adam(schedule, parameters=model.parameters())
    model.train()
    for _ in range(epochs):
        for chosen in np.array_split(order.permutation(len(data)), steps):
            loss = cross_entropy(
                model(paddle.to_tensor(data.images[chosen])), paddle.to_tensor(data.labels[chosen])
            )
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            schedule.step()


def ocr_det(images: int = SCENES) -> Subject:
    """PP-OCRv3 det with the released weights on rendered scenes, scored by PaddleOCR's own metric."""
    folder = KEPT / f"scenes_{images}"
    if not (folder / "label.txt").exists():
        write_scenes(folder, images, seed=2)
    paths = [f"Eval.dataset.data_dir={folder}", f"Eval.dataset.label_file_list=[{folder}/label.txt]"]
    task = OcrTask(load_config(ROOT / "configs/ocr/ch_PP-OCRv3_det.yml", paths))
    task.model.eval()
    program, loader, metric = load_ppocr().program, task.eval_dataloader(), task.new_metric()

    def hmean() -> float:
        return float(
            program.eval(task.model, loader, task.post_process, metric, model_type="det")[task.indicator]
        )

    return Subject("PP-OCRv3 det", task.model, [1, 3, 320, 320], hmean, task.evaluator, images)


def slim_of(subject: Subject) -> Any:
    """PaddleSlim on the subject; None on Paddle 3, where it does not run."""
    if stack() != "paddle26":
        return None
    from slim import Slim

    return Slim(subject)


def spread(groups: Sequence[str], count: int) -> list[tuple[str, float]]:
    """Points to sample: groups from the first to the last, each with another ratio."""
    chosen = [groups[index] for index in np.linspace(0, len(groups) - 1, count).round().astype(int)]
    return list(zip(chosen, _RATIOS))


SUBJECTS: dict[str, Callable[..., Subject]] = {"mobilenet": mobilenet, "ocr": ocr_det}
