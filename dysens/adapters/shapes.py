"""Generated scenes of circles, squares and triangles: enough for a detector to learn in a few minutes on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from dysens.adapters.coco_set import Label, write_coco_set

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
