"""What is measured: networks that people prune, with weights, data and a score that mean something."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle.nn.functional import cross_entropy, interpolate
from paddle.vision.models import mobilenet_v1
from store import ROOT, sized, stack

from dysens.adapters.ocr import OcrTask, load_config, load_ppocr
from dysens.data import Digits, load_digits, make_layout_pages, write_lines, write_scenes
from dysens.evaluators import Evaluator, MetricEvaluator, evaluate

KEPT = ROOT / "output" / "bench"  # trained weights and rendered scenes, made once

SIDE = 128
BATCH = 8
# First small pictures, which train fast, then those that are measured: (side, epochs, learning rate).
SCHEDULE = ((32, 3, 2e-3), (64, 2, 1e-3), (SIDE, 1, 5e-4))
TRAIN_BATCH = 24
DIGITS, SCENES, LINES, PAGES = sized((120, 64, 48, 8), (8, 2, 4, 2))
# Of sampled points, one after the other: any first few of them are low, middle and high.
_RATIOS = (0.5, 0.1, 0.7, 0.3, 0.9, 0.2, 0.8, 0.4)


@dataclass(frozen=True)
class Subject:
    """A network and two ways to score it that give the same number.

    Attributes:
        name: What the tables call it.
        model: The live layer, in eval mode.
        shape: Of one input, or the inputs themselves.
        eval_func: Scores the live model as its owners do: what PaddleSlim is given.
        evaluator: The same for dysens, batch by batch.
        samples: How many images.
        loss: The training loss of a batch, where its labels define one.
    """

    name: str
    model: paddle.nn.Layer
    shape: Any
    eval_func: Callable[[], float]
    evaluator: Evaluator
    samples: int
    loss: Callable[..., paddle.Tensor] | None = None


def mobilenet(images: int = DIGITS) -> Subject:
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


def ocr_det(images: int = SCENES, version: str = "v3") -> Subject:
    """PP-OCR det with the released weights on rendered scenes, scored by PaddleOCR's own metric."""
    folder = KEPT / f"scenes_{images}"
    if not (folder / "label.txt").exists():
        write_scenes(folder, images, seed=2)
    return _ocr(f"PP-OCR{version} det", f"ch_PP-OCR{version}_det", folder, [1, 3, 320, 320], images)


def ocr_rec(images: int = LINES) -> Subject:
    """PP-OCRv4 rec with the released weights on rendered lines, scored by PaddleOCR's own metric."""
    folder = KEPT / f"lines_{images}"
    if not (folder / "label.txt").exists():
        write_lines(folder, images, seed=2)
    # A search stops between batches.
    smaller = ["Eval.loader.batch_size_per_card=8"]
    return _ocr("PP-OCRv4 rec", "ch_PP-OCRv4_rec", folder, [1, 3, 48, 320], images, smaller)


def _ocr(
    name: str, config: str, folder: Path, shape: list[int], images: int, changes: Sequence[str] = ()
) -> Subject:
    paths = [f"Eval.dataset.data_dir={folder}", f"Eval.dataset.label_file_list=[{folder}/label.txt]"]
    task = OcrTask(load_config(ROOT / f"configs/ocr/{config}.yml", [*paths, *changes]))
    task.model.eval()
    program, loader, metric = load_ppocr().program, task.eval_dataloader(), task.new_metric()
    kind = "det" if config.endswith("det") else "rec"

    def score() -> float:
        found = program.eval(task.model, loader, task.post_process, metric, model_type=kind)
        return float(found[task.indicator])

    return Subject(name, task.model, shape, score, task.evaluator, images)


def layout(images: int = PAGES) -> Subject:
    """PaddleDetection's PicoDet for page layout with the released weights on drawn pages, scored by COCO's mAP."""
    from dysens.adapters.det import DetTask
    from dysens.adapters.det import load_config as load_det_config

    folder = KEPT / f"pages_{images}"
    if not (folder / "annotations.json").exists():
        make_layout_pages(folder, images, seed=5)
    paths = [f"{role}.dataset_dir={folder}" for role in ("TrainDataset", "EvalDataset", "TestDataset")]
    task = DetTask(load_det_config(ROOT / "configs/det/picodet_lcnet_layout.yml", paths))
    task.model.eval()
    evaluator = task.evaluator

    def score() -> float:
        with paddle.no_grad():
            return evaluate(task.model, evaluator)

    return Subject("PicoDet layout", task.model, task.example_inputs, score, evaluator, images)


def slim_of(subject: Subject) -> Any:
    """PaddleSlim on the subject; None on Paddle 3, where it does not run, and for networks that it cannot trace."""
    if stack() != "paddle26":
        return None
    from slim import Slim

    try:
        return Slim(subject)
    except Exception as error:  # it fails in ways of its own; the live model is the reference then
        paddle.disable_static()  # it may leave Paddle in static mode
        subject.model.eval()
        print(f"PaddleSlim does not run {subject.name}: {type(error).__name__}: {error}"[:300], flush=True)
        return None


def spread(groups: Sequence[str], count: int) -> list[tuple[str, float]]:
    """Points to sample: groups from the first to the last, each with another ratio."""
    chosen = [groups[index] for index in np.linspace(0, len(groups) - 1, count).round().astype(int)]
    return list(zip(chosen, _RATIOS))


SUBJECTS: dict[str, Callable[..., Subject]] = {
    "mobilenet": mobilenet,
    "ocr": ocr_det,
    "v4 det": lambda images=SCENES: ocr_det(images, "v4"),
    "v4 rec": ocr_rec,
    "layout": layout,
}
