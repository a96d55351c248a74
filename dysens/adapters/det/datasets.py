"""ppdet's datasets and readers, checked before ppdet would start a download of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dysens.adapters.det.ppdet_import import import_ppdet
from dysens.adapters.det.workspace import DetConfig
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
    reader = import_ppdet("core.workspace").create(role)
    try:
        return reader(dataset, workers, batch_sampler).dataloader
    except (AssertionError, KeyError, ValueError) as error:
        raise InputError(f"The data of {config.path} cannot be read: {error}") from error
