"""ppdet's datasets and readers, what a detector is called with, and its score: mAP by ppdet's own metrics, batch by batch."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from dysens.adapters._shared import seeded
from dysens.adapters.base import Reading, picture_of
from dysens.adapters.det._ppdet import DetConfig, import_ppdet, quiet
from dysens.errors import InputError
from dysens.evaluators import Evaluator
from dysens.model import fresh, preserved


def create_dataset(config: DetConfig, role: str) -> Any:
    """The dataset that ``config`` names as ``role`` (``TrainDataset``, ``EvalDataset``); config must be installed."""
    dataset = import_ppdet("core.workspace").create(role)()
    annotations = dataset.get_anno()
    if annotations is None or not Path(annotations).is_file():
        raise InputError(
            f"{config.path} takes its {role} from {annotations}, which is not there. "
            f"Point to your data with {role}.dataset_dir=path and {role}.anno_path=file."
        )
    images = Path(dataset.dataset_dir) / dataset.image_dir
    if not images.is_dir():
        raise InputError(
            f"{config.path} takes the images of its {role} from {images}, which is not a folder."
        )
    return dataset


def create_loader(config: DetConfig, role: str, dataset: Any, batch_sampler: Any, workers: int) -> Any:
    """Paddle's ``DataLoader`` over ``dataset`` with the transforms of ``config``'s reader ``role``; config must be installed."""
    return _reader(config, role, dataset, batch_sampler, workers).dataloader


def _reader(config: DetConfig, role: str, dataset: Any, batch_sampler: Any, workers: int) -> Any:
    """ppdet's reader, which has begun to read: ``loader`` goes on with that, ``dataloader`` can be read from the start."""
    reader = import_ppdet("core.workspace").create(role)
    try:
        return reader(dataset, workers, batch_sampler)
    except (AssertionError, KeyError, ValueError) as error:
        raise InputError(f"The data of {config.path} cannot be read: {error}") from error


Size = tuple[int, int]


def example_inputs(size: Size) -> dict[str, paddle.Tensor]:
    """What a detector is called with in eval mode; the image is noise of this height and width, always the same."""
    height, width = size
    image = np.random.default_rng(0).standard_normal((1, 3, height, width))
    return {
        "image": paddle.to_tensor(image.astype("float32")),
        "im_shape": paddle.to_tensor([[float(height), float(width)]]),
        "scale_factor": paddle.ones([1, 2]),
    }


MODEL_KEYS = ("image", "im_shape", "scale_factor")
"""What a detector takes of a batch in eval mode."""


def eval_arguments(batch: Mapping[str, Any]) -> tuple[Any, ...]:
    """The dict that a detector is called with: the image, its size and its scale."""
    return ({key: batch[key] for key in MODEL_KEYS},)


def train_images(config: DetConfig) -> tuple[Iterable[Any], Callable[[Any], tuple[Any, ...]], str]:
    """Images of ``TrainDataset`` one by one, prepared by ``EvalReader``: without augmentation.

    Returns:
        The batches, what a detector takes of one, and what the data are.
    """
    with config.installed() as live, quiet():
        dataset = create_dataset(config, "TrainDataset")
        # One by one: images have different numbers of labelled boxes, which a batch could not stack.
        sampler = paddle.io.BatchSampler(dataset, batch_size=1)
        loader = create_loader(config, "EvalReader", dataset, sampler, live.get("worker_num", 0))
    return loader, eval_arguments, f"images of TrainDataset ({len(dataset)})"


def train_inputs(config: DetConfig, size: Size) -> dict[str, Any]:
    """What a detector is called with in training mode: two images of ``TrainDataset`` with their ground truth.

    The config's ``TrainReader`` prepares them, except that they get this height and width.
    """
    with config.installed() as live, quiet(), seeded(0):
        _fix_size(live["TrainReader"], size)
        dataset = create_dataset(config, "TrainDataset")
        reader = _reader(config, "TrainReader", dataset, _FirstTwo(dataset), workers=0)
        # A second iterator would draw random numbers in a thread of its own, while that of the reader does.
        batch = next(reader.loader)
    # The Trainer adds it; assigners that change over time read it.
    batch["epoch_id"] = 0
    return dict(batch)


def configured_size(config: DetConfig) -> Size:
    """The size to export with; without one, the size to evaluate with, padded as the reader pads batches."""
    inputs = config["TestReader"].get("inputs_def") or {}
    found = list(inputs.get("image_shape") or ())[-2:]
    if not found:
        transforms = dict(_transforms(config["EvalReader"]))
        size = transforms.get("Resize", {}).get("target_size", ())
        stride = transforms.get("PadBatch", {}).get("pad_to_stride", 1)
        found = [-(-side // stride) * stride for side in ([size, size] if isinstance(size, int) else size)]
    if len(found) != 2 or not all(isinstance(side, int) and side > 0 for side in found):
        raise InputError(
            f"{config.path} does not say how large its images are: give input_size, or set "
            "TestReader.inputs_def.image_shape=[3, height, width]."
        )
    return found[0], found[1]


class _FirstTwo:
    """A batch sampler of one batch: the loader's thread would draw random numbers for a second one in the meantime."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[list[int]]:
        yield list(range(min(2, len(self._dataset))))

    def __len__(self) -> int:
        return 1


def _fix_size(reader: Mapping[str, Any], size: Size) -> None:
    for name, arguments in _transforms(reader):
        if "Resize" in name and "target_size" in arguments:
            arguments["target_size"] = list(size)
            if "Random" in name:
                arguments["random_size"] = False


def _transforms(reader: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for key in ("sample_transforms", "batch_transforms"):
        for transform in reader.get(key) or ():
            yield from transform.items()


_TRUTH_KEYS = {"COCO": ("im_id",), "VOC": ("im_id", "gt_bbox", "gt_class", "difficult", "scale_factor")}


@dataclass(frozen=True)
class Detections:
    """What a detector found in one batch.

    Attributes:
        rows: One row a box: class, score, x0, y0, x1, y1.
        counts: How many of the rows belong to each image of the batch.
        truth: What ppdet's metric wants to know of the batch: image ids, for VOC the labelled boxes as well.
    """

    rows: np.ndarray
    counts: np.ndarray
    truth: Mapping[str, Any]


class DetEvaluator(Evaluator):
    """COCO mAP (IoU 0.50 to 0.95) or VOC mAP of the config's ``EvalDataset``.

    Over all annotated images the score is the one that ppdet's ``COCOMetric`` or ``VOCMetric`` gives. Over a part of the
    data it is the score of just those images: the others do not count as missed. A part without any labelled object scores 0.
    """

    higher_is_better = True

    def __init__(self, config: DetConfig) -> None:
        self._config = config
        self._kind = config["metric"]
        if self._kind not in _TRUTH_KEYS:
            raise InputError(
                f"{config.path} is scored by {self._kind}; only COCO and VOC box mAP are supported."
            )
        with config.installed() as live, quiet():
            if self._kind == "VOC":
                # Images have different numbers of labelled boxes, and VOCMetric wants them unpadded.
                live["EvalReader"]["collate_batch"] = False
            self._dataset = create_dataset(config, "EvalDataset")
            sampler = paddle.io.BatchSampler(self._dataset, batch_size=live["EvalReader"]["batch_size"])
            workers = live.get("worker_num", 0)
            self._loader = create_loader(config, "EvalReader", self._dataset, sampler, workers)
        self._check_labels()
        # The folder tells sets apart whose files have the same name; the whole path would change with the machine.
        annotations = "/".join(Path(self._dataset.get_anno()).parts[-2:])
        self.name = f"{self._kind} bbox mAP on {annotations}, {len(self._dataset)} images"

    def batches(self) -> Iterable[Any]:
        """The images, prepared by the config's ``EvalReader``, in the dataset's order."""
        return iter(self._loader)

    def arguments(self, batch: Any) -> tuple[Any, ...]:
        """The dict that the model is called with: the image, its size and its scale."""
        return eval_arguments(batch)

    def every_batch(self) -> Iterable[Any]:
        """The same as `batches`, to be read as often as wanted."""
        loader: Iterable[Any] = self._loader
        return loader

    def readings(self, model: paddle.nn.Layer, count: int) -> list[Reading]:
        """The boxes that the network finds in the first images; it is left as found.

        Args:
            model: The network.
            count: How many images at most.
        """
        names = self._dataset.get_label_list() if self._kind == "VOC" else None
        names = names or [
            name for name, _ in sorted(self._dataset.cname2cid.items(), key=lambda item: item[1])
        ]
        found: list[Reading] = []
        with preserved(model), paddle.no_grad():
            model.eval()
            for batch in self._loader:
                outputs = self._named(model(*fresh(self.arguments(batch))))
                rows, counts = _numpy(outputs["bbox"]), _numpy(outputs["bbox_num"])
                parts = np.split(rows, np.cumsum(counts)[:-1])
                images, scales = batch["image"].numpy(), batch["scale_factor"].numpy()
                found += [
                    Reading(picture_of(image), _regions(part, scale, names))
                    for image, part, scale in zip(images, parts, scales)
                ]
                if len(found) >= count:
                    break
        return found[:count]

    def first_inputs(self) -> dict[str, paddle.Tensor]:
        """The images of the first batch, as the model is called with them."""
        inputs: dict[str, paddle.Tensor] = self.arguments(next(iter(self.batches())))[0]
        return inputs

    def measure(self, outputs: Any, batch: Any) -> Detections:
        """The boxes found, as rows."""
        outputs = self._named(outputs)
        truth = {key: _numpy(batch[key]) for key in _TRUTH_KEYS[self._kind] if key in batch}
        return Detections(_numpy(outputs["bbox"]), _numpy(outputs["bbox_num"]), truth)

    def score(self, measurements: Sequence[Any]) -> float:
        """The mAP of the images measured."""
        with quiet(), tempfile.TemporaryDirectory() as folder:
            metric = self._metric(measurements, Path(folder))
            for each in measurements:
                metric.update(each.truth, {"bbox": each.rows, "bbox_num": each.counts})
            metric.accumulate()
            results = metric.get_results()
        # COCOMetric has no result where nothing was detected at all, and -1 where there is nothing to be found.
        return max(0.0, float(results["bbox"][0])) if "bbox" in results else 0.0

    def _named(self, outputs: Any) -> Mapping[str, Any]:
        """Boxes and how many of them each image has, by ppdet's names."""
        if not isinstance(outputs, Mapping) or "bbox" not in outputs or "bbox_num" not in outputs:
            raise InputError(
                "The model's outputs are not the dict with bbox and bbox_num that ppdet's detectors give in eval mode."
            )
        return outputs

    def _metric(self, measurements: Sequence[Detections], folder: Path) -> Any:
        metrics = import_ppdet("metrics")
        if self._kind == "VOC":
            return metrics.VOCMetric(
                label_list=self._dataset.get_label_list(),
                class_num=self._config["num_classes"],
                map_type=self._config.get("map_type", "11point"),
            )
        images = {int(each) for found in measurements for each in np.ravel(found.truth["im_id"])}
        return metrics.COCOMetric(
            anno_file=str(self._annotations_of(images, folder)),
            clsid2catid={index: category for category, index in self._dataset.catid2clsid.items()},
            bias=1 if self._config.get("bias", False) else 0,
            output_eval=str(folder),
        )

    def _annotations_of(self, images: set[int], folder: Path) -> Path:
        """The annotation file, cut down to ``images`` where others have objects too."""
        content = self._annotations
        if all(each["image_id"] in images for each in content["annotations"]):
            return Path(self._dataset.get_anno())
        part = {**content}
        part["images"] = [each for each in content["images"] if each["id"] in images]
        part["annotations"] = [each for each in content["annotations"] if each["image_id"] in images]
        path = folder / "annotations.json"
        path.write_text(json.dumps(part), encoding="utf-8")
        return path

    @cached_property
    def _annotations(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(Path(self._dataset.get_anno()).read_text(encoding="utf-8"))
        return content

    def _check_labels(self) -> None:
        if self._kind == "COCO" and not self._annotations.get("annotations"):
            raise InputError(f"{self._dataset.get_anno()} labels no object, so there is nothing to score by.")
        # A class index past the labels would end ppdet's metric with a KeyError, and only once such a box is found.
        labelled = len(self._dataset.cname2cid)
        predicted = self._config["num_classes"]
        if labelled != predicted:
            raise InputError(
                f"{self._dataset.get_anno()} labels {labelled} classes, but {self._config.path} builds a network for "
                f"{predicted}. Set num_classes={labelled}, or point EvalDataset to other data."
            )


SHOWN = 0.5  # boxes with a lower score are noise to the eye


def _regions(rows: np.ndarray, scale: np.ndarray, names: Sequence[str]) -> tuple[Any, ...]:
    """Boxes in the image as the network saw it: ppdet gives them in that before resizing, ``scale`` is height and width."""
    found = []
    for index, score, *corners in rows.reshape(-1, 6).astype("float64"):
        if score < SHOWN or not 0 <= int(index) < len(names):
            continue
        left, top, right, bottom = (side * float(scale[1 - place % 2]) for place, side in enumerate(corners))
        points = ((left, top), (right, top), (right, bottom), (left, bottom))
        found.append((points, f"{names[int(index)]} {score:.2f}"))
    return tuple(found)


def _numpy(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_numpy(each) for each in value]
    return value.numpy() if isinstance(value, paddle.Tensor) else np.asarray(value)
