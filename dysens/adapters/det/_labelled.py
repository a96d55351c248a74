"""A labelled COCO set as what scores an imported detector, without a config."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from dysens.adapters.det._data import DetEvaluator
from dysens.adapters.det._ppdet import DetConfig, load_config
from dysens.errors import InputError
from dysens.programs import ProgramLayer

SETTINGS = "infer_cfg.yml"  # PaddleDetection writes it beside an exported model
ROW_LENGTH = 6  # class, score, four edges


class LabelledDetections(DetEvaluator):
    """COCO mAP of an imported detector, whose outputs are its boxes and how many of them each image has.

    Args:
        config: With ``EvalDataset`` and ``EvalReader``.
        inputs: The names of the program's inputs, in order.
    """

    indicator = "mAP"

    def __init__(self, config: DetConfig, inputs: tuple[str, ...]) -> None:
        super().__init__(config)
        self._inputs = inputs

    def batches(self) -> Any:
        """The prepared images; can be read more than once."""
        return self.every_batch()

    def arguments(self, batch: Any) -> tuple[Any, ...]:
        """What the program takes, in its order."""
        return tuple(batch[name] for name in self._inputs)

    def _named(self, outputs: Any) -> Mapping[str, Any]:
        """From outputs in any order."""
        listed = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        rows = [each for each in listed if each.ndim == 2 and each.shape[1] == ROW_LENGTH]
        counts = [each for each in listed if each.ndim == 1]
        if len(rows) != 1 or len(counts) != 1:
            shapes = ", ".join(str(list(each.shape)) for each in listed)
            raise InputError(
                f"The network's outputs {shapes} are not boxes (rows of class, score and four edges) and their number in each "
                "image: export it with its post-processing (NMS), or give a function that scores it."
            )
        return {"bbox": rows[0], "bbox_num": counts[0]}


def labelled_evaluator(annotations: str | Path, model: ProgramLayer, source: str | Path) -> DetEvaluator:
    """Score an imported detector on a COCO set.

    Images are prepared as ``infer_cfg.yml`` beside the model says, which PaddleDetection's export writes.

    Args:
        annotations: A COCO file. Images are looked for beside it, and in folders there and one up.
        model: From `load_inference`.
        source: What that was loaded from.

    Raises:
        InputError: Files are missing or do not fit the network.
    """
    file, folder = Path(annotations), Path(source)
    content = _annotations(file)
    settings = _settings((folder if folder.is_dir() else folder.parent) / SETTINGS)
    values = _values(file, _image_folder(file, content), settings)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "labelled.yml"
        path.write_text(yaml.safe_dump(values), encoding="utf-8")
        config = replace(load_config(path), path=file)
    known = {"image", "im_shape", "scale_factor"}
    names = tuple(feed.name for feed in model.feeds)
    if not set(names) <= known:
        raise InputError(
            f"The network's inputs ({', '.join(names)}) are not those of PaddleDetection's exports ({', '.join(sorted(known))}): "
            "give a function that scores it."
        )
    return LabelledDetections(config, names)


def _annotations(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f'The annotations "{file}" cannot be read: {error}.') from error
    except ValueError as error:
        raise InputError(f'"{file}" is no JSON: {error}.') from error
    keys = ("images", "annotations", "categories")
    if not isinstance(content, dict) or not all(isinstance(content.get(key), list) for key in keys):
        raise InputError(f'"{file}" is no COCO file: those have the lists {", ".join(keys)}.')
    if not content["images"]:
        raise InputError(f'"{file}" names no image.')
    return content


def _image_folder(file: Path, content: Mapping[str, Any]) -> Path:
    """The folder in which the first image is, relative to the one of the annotations."""
    name = str(content["images"][0].get("file_name", ""))
    here = file.parent
    around = [here, here.parent, *sorted(each for each in [*here.glob("*/"), *here.parent.glob("*/")])]
    for folder in around:
        if name and (folder / name).is_file():
            return folder
    raise InputError(
        f'The image "{name}" of "{file}" is neither beside it nor in a folder there or one up: put the images there.'
    )


def _settings(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(
            f'"{path}" is not there, which says how a detector\'s images are prepared: PaddleDetection writes it beside what it '
            "exports. Without it, give a function that scores the network."
        )
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f'"{path}" cannot be read: {error}') from error
    if not isinstance(content, dict) or not content.get("Preprocess") or not content.get("label_list"):
        raise InputError(f'"{path}" has no Preprocess and label_list, as PaddleDetection writes them.')
    return content


def _values(file: Path, images: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of a PaddleDetection config that data and score are made of."""
    samples: list[dict[str, Any]] = [{"Decode": {}}]
    batches: list[dict[str, Any]] = []
    for step in settings["Preprocess"]:
        arguments = {key: value for key, value in step.items() if key != "type"}
        if step.get("type") == "PadStride":
            batches.append({"PadBatch": {"pad_to_stride": arguments.get("stride", 32)}})
        else:
            samples.append({str(step.get("type")): arguments})
    return {
        "architecture": str(settings.get("arch", "detector")),
        "metric": "COCO",
        "num_classes": len(settings["label_list"]),
        "worker_num": 0,
        "EvalDataset": {
            "name": "COCODataSet",
            "dataset_dir": str(file.parent.resolve()),
            "image_dir": str(images.resolve()),
            "anno_path": file.name,
        },
        "EvalReader": {
            "sample_transforms": samples,
            **({"batch_transforms": batches} if batches else {}),
            "batch_size": 1,
        },
    }
