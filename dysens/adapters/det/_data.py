"""ppdet's datasets and readers, and what a detector is called with in eval and in training mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from dysens.adapters._training import seeded
from dysens.adapters.det._config import DetConfig
from dysens.adapters.det._ppdet import import_ppdet, quiet
from dysens.errors import InputError


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
