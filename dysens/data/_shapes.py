"""Generated scenes of circles, squares and triangles, written as a data set in COCO's format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw


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


SHAPES = ("circle", "square", "triangle")

Box = tuple[int, int, int, int]


def make_shapes(folder: str | Path, count: int, *, seed: int = 0, size: int = 128) -> Path:
    """Writes ``count`` scenes of ``size`` x ``size`` pixels as a COCO data set; the same seed gives the same scenes.

    Example:
        >>> make_shapes("output/shapes/val", 40, seed=1).name  # doctest: +SKIP
        'annotations.json'
    """
    return write_coco_set(folder, SHAPES, _scenes(count, np.random.default_rng(seed), size))


def _scenes(count: int, rng: np.random.Generator, size: int) -> Iterator[tuple[Image.Image, list[Label]]]:
    for _ in range(count):
        yield _scene(rng, size)


def _scene(rng: np.random.Generator, size: int) -> tuple[Image.Image, list[Label]]:
    image = _background(rng, size)
    draw = ImageDraw.Draw(image)
    labels = []
    for box in _apart(rng, size, int(rng.integers(2, 6))):
        shape = SHAPES[int(rng.integers(len(SHAPES)))]
        _draw_shape(draw, shape, box, tuple(int(each) for each in rng.integers(0, 256, 3)))
        labels.append(Label(shape, box))
    return image, labels


def _background(rng: np.random.Generator, size: int) -> Image.Image:
    """A colour gradient with noise on it."""
    corners = Image.fromarray(rng.integers(60, 200, (2, 2, 3)).astype("uint8"))
    gradient = np.asarray(corners.resize((size, size), Image.Resampling.BILINEAR), dtype="float32")
    noisy = gradient + rng.normal(0, 8, gradient.shape)
    return Image.fromarray(noisy.clip(0, 255).astype("uint8"))


def _apart(rng: np.random.Generator, size: int, wanted: int) -> list[Box]:
    """Square boxes that do not touch; fewer than ``wanted`` where there is no room."""
    boxes: list[Box] = []
    for _ in range(20 * wanted):
        side = int(rng.integers(size // 8, size // 3))
        left, top = (int(each) for each in rng.integers(0, size - side, 2))
        box = (left, top, left + side, top + side)
        if not any(
            box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]
            for other in boxes
        ):
            boxes.append(box)
        if len(boxes) == wanted:
            break
    return boxes


def _draw_shape(draw: ImageDraw.ImageDraw, shape: str, box: Box, colour: tuple[int, ...]) -> None:
    left, top, right, bottom = box
    if shape == "circle":
        draw.ellipse(box, fill=colour, outline="black")
    elif shape == "square":
        draw.rectangle(box, fill=colour, outline="black")
    else:
        draw.polygon(
            [((left + right) / 2, top), (right, bottom), (left, bottom)], fill=colour, outline="black"
        )
