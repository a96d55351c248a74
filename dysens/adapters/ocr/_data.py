"""PaddleOCR's data loaders, with the mistakes that it would pass over in silence caught first."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from dysens.adapters._training import seeded
from dysens.adapters.ocr._config import section
from dysens.adapters.ocr._ppocr import load_ppocr
from dysens.errors import InputError
from dysens.flags import setting

logger = logging.getLogger(__name__)

SEED = 1024  # the one that PaddleOCR's train.py falls back to


def build_loader(config: Mapping[str, Any], mode: str, place: Any) -> Any:
    """PaddleOCR's loader of ``Train`` or ``Eval``.

    Raises:
        InputError: A label file or the first image that it names is missing, or there is no data for a
            single batch.
    """
    check_data(config, mode)
    seed = config["Global"].get("seed", SEED)
    loader = load_ppocr().build_dataloader(deepcopy(dict(config)), mode, place, logger, seed)
    if len(loader) == 0:
        size = section(config, f"{mode}.loader").get("batch_size_per_card")
        raise InputError(
            f"{mode} has {len(loader.dataset)} images, too few for one batch of {size} "
            f"({mode}.loader.batch_size_per_card) with drop_last."
        )
    return loader


def check_data(config: Mapping[str, Any], mode: str) -> None:
    """Looks for the label files and the first image of each; PaddleOCR would recurse for ever without.

    Raises:
        InputError: One of them is not there.
    """
    dataset = section(config, f"{mode}.dataset")
    for file in label_files(dataset):
        path = Path(file)
        if not path.is_file():
            raise InputError(
                f'the label file "{file}" is not there (looked from "{Path.cwd()}"); set it with '
                f"{setting(f'{mode}.dataset.label_file_list=[...]')}, or draw a set with dysens.data.write_scenes."
            )
        with path.open(encoding="utf-8") as lines:
            first = next((line for line in lines if line.strip()), "")
        image, tab, _ = first.partition(dataset.get("delimiter", "\t"))
        if not tab:
            raise InputError(
                f'the label file "{file}" does not begin with an image, a tab and its label: "{first[:80]}".'
            )
        folder = Path(str(dataset.get("data_dir", ".")))
        if not image.startswith("[") and not (folder / image).is_file():
            raise InputError(
                f'"{folder / image}", the first image of "{file}", is not there: '
                f"is {mode}.dataset.data_dir right?"
            )


def label_files(dataset: Mapping[str, Any]) -> list[str]:
    """The label files of a dataset section; PaddleOCR takes one as a plain string too."""
    files = dataset.get("label_file_list") or []
    return [files] if isinstance(files, str) else list(files)


def first_samples(loader: Any, count: int) -> list[Any]:
    """The beginning of a loader's first batch, the same at every call: augmentation draws from a fixed seed.

    The dataset is asked directly: the loader's own thread reads ahead, and would draw along with others.
    """
    indices = next(iter(loader.batch_sampler))[:count]
    with seeded(SEED):
        samples = [loader.dataset[index] for index in indices]
    if loader.collate_fn is not None:
        return list(loader.collate_fn(samples))
    return [paddle.to_tensor(np.stack(column)) for column in zip(*samples)]
