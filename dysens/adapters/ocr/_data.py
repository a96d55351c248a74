"""PaddleOCR's data loaders, with the mistakes that it would pass over in silence caught first."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from dysens.adapters._shared import seeded
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
    """Looks through the label files, and for the first and last image of each.

    PaddleOCR takes another line, at random and for ever, where one cannot be read.

    Raises:
        InputError: Something is not there, or a line is cut short.
    """
    dataset = section(config, f"{mode}.dataset")
    delimiter = str(dataset.get("delimiter", "\t"))
    folder = Path(str(dataset.get("data_dir", ".")))
    for file in label_files(dataset):
        path = Path(file)
        if not path.is_file():
            raise InputError(
                f'The label file "{file}" is not there (looked from "{Path.cwd()}"); set it with '
                f"{setting(f'{mode}.dataset.label_file_list=[...]')}, or draw a set with dysens.data.write_scenes."
            )
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f'The label file "{file}" cannot be read as UTF-8 text: {error}.') from error
        _check_lines(file, lines, delimiter)
        for line, which in ((lines[0], "first"), (lines[-1], "last")):
            image = line.partition(delimiter)[0]
            if not image.startswith("[") and not (folder / image).is_file():
                raise InputError(
                    f'"{folder / image}", the {which} image of "{file}", is not there: '
                    f"is {mode}.dataset.data_dir right?"
                )


def _check_lines(file: str, lines: list[str], delimiter: str) -> None:
    """Refuses a file in which a line is no image, a tab and its label, or a label is cut short."""
    labels = []
    for number, line in enumerate(lines or [""], start=1):
        image, tab, label = line.partition(delimiter)
        if not tab or not image.strip():
            where = "does not begin with" if number == 1 else f"lacks, in line {number} of {len(lines)},"
            raise InputError(f'The label file "{file}" {where} an image, a tab and its label: "{line[:80]}".')
        labels.append(label.strip())
    if not _is_list(labels[0]):
        return  # the text of a line, which may be anything
    for number, label in enumerate(labels, start=1):
        # Parsing every label of a large set would take minutes; what is cut short lacks its end.
        whole = label.startswith("[") and label.endswith("]") if number < len(labels) else _is_list(label)
        if not whole:
            raise InputError(
                f'The label in line {number} of {len(labels)} of "{file}" is cut short or garbled: "{label[-60:]}".'
            )


def _is_list(label: str) -> bool:
    try:
        return isinstance(json.loads(label), list)
    except ValueError:
        return False


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
