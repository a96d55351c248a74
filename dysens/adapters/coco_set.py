"""Writes generated, labelled images as a data set in COCO's format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image


@dataclass(frozen=True)
class Label:
    """An object in an image: what it is, and its left, top, right and bottom edges in pixels."""

    category: str
    box: tuple[float, float, float, float]


def write_coco_set(
    folder: str | Path, categories: Sequence[str], images: Iterable[tuple[Image.Image, Sequence[Label]]]
) -> Path:
    """Writes ``folder/images/*.png`` and ``folder/annotations.json``; returns the path of the latter."""
    folder = Path(folder)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    ids = {name: index for index, name in enumerate(categories)}
    content: dict[str, list[dict[str, Any]]] = {
        "images": [],
        "annotations": [],
        "categories": [{"id": index, "name": name} for name, index in ids.items()],
    }
    for image_id, (image, labels) in enumerate(images):
        name = f"{image_id:04d}.png"
        image.save(folder / "images" / name)
        content["images"].append(
            {"id": image_id, "file_name": name, "width": image.width, "height": image.height}
        )
        for label in labels:
            left, top, right, bottom = label.box
            content["annotations"].append(
                {
                    "id": len(content["annotations"]) + 1,
                    "image_id": image_id,
                    "category_id": ids[label.category],
                    "bbox": [left, top, right - left, bottom - top],
                    "area": (right - left) * (bottom - top),
                    "iscrowd": 0,
                }
            )
    path = folder / "annotations.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path
