"""What a detector is called with, in eval mode and in training mode, as its config says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import paddle

from dysens.adapters._training import seeded
from dysens.adapters.det.datasets import create_dataset, create_loader
from dysens.adapters.det.ppdet_import import quiet
from dysens.adapters.det.workspace import DetConfig
from dysens.errors import InputError

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
        loader = create_loader(config, "TrainReader", dataset, _FirstTwo(dataset), workers=0)
        batch = next(iter(loader))
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
