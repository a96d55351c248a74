"""Writes sets of images with a ``label.txt``, as PaddleOCR's ``SimpleDataSet`` reads them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from dysens.data._text import Fonts, find_fonts
from dysens.data._text_render import draw_line, draw_scene
from dysens.errors import InputError

LABEL_FILE = "label.txt"
MIN_SIZE = 128, 64


def write_scenes(
    folder: str | Path,
    count: int,
    seed: int = 0,
    size: tuple[int, int] = (320, 320),
    fonts: Fonts | None = None,
) -> Path:
    """Draws pictures with several lines of text, for detection.

    The picture with a given number depends on the seed alone, not on how many there are.

    Args:
        folder: Is made if it is not there.
        count: How many pictures.
        seed: Other seeds give other pictures: take two for training and validation.
        size: Width and height.
        fonts: By default `find_fonts`.

    Returns:
        The label file: per line a file name, a tab, and the boxes as JSON.
    """
    if size[0] < MIN_SIZE[0] or size[1] < MIN_SIZE[1]:
        raise InputError(
            f"a scene of {size[0]}x{size[1]} is too small for text; take at least {MIN_SIZE[0]}x{MIN_SIZE[1]}."
        )
    fonts, lines = fonts or find_fonts(), []
    for name, path, rng in _images(Path(folder), count, seed):
        image, boxes = draw_scene(rng, fonts, *size)
        image.save(path)
        labels = [
            {"transcription": box.text, "points": [list(corner) for corner in box.corners]} for box in boxes
        ]
        lines.append(f"{name}\t{json.dumps(labels, ensure_ascii=False)}\n")
    return _write_labels(Path(folder), lines)


def write_lines(folder: str | Path, count: int, seed: int = 0, fonts: Fonts | None = None) -> Path:
    """Draws single lines of text, for recognition.

    Args:
        folder: Is made if it is not there.
        count: How many lines.
        seed: See `write_scenes`.
        fonts: By default `find_fonts`.

    Returns:
        The label file: per line a file name, a tab, and the text.
    """
    fonts, lines = fonts or find_fonts(), []
    for name, path, rng in _images(Path(folder), count, seed):
        image, text = draw_line(rng, fonts)
        image.save(path)
        lines.append(f"{name}\t{text}\n")
    return _write_labels(Path(folder), lines)


def _images(folder: Path, count: int, seed: int) -> list[tuple[str, Path, np.random.Generator]]:
    if count < 1:
        raise InputError(f"{count} images were asked for; a set needs at least one.")
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{number:05d}.png" for number in range(count)]
    return [(name, folder / name, np.random.default_rng([seed, number])) for number, name in enumerate(names)]


def _write_labels(folder: Path, lines: list[str]) -> Path:
    path = folder / LABEL_FILE
    path.write_text("".join(lines), encoding="utf-8")
    return path
