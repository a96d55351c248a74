"""Draws text onto backgrounds: whole scenes with boxes, and single lines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from dysens.adapters.text_images.backgrounds import draw_background
from dysens.adapters.text_images.fonts import Fonts
from dysens.adapters.text_images.words import draw_text

GAP = 6  # between the lines of a scene, in pixels
PLACING_ATTEMPTS = 25
SURROUNDINGS = (
    320  # a line is cut out of a picture this large: a whole photograph behind one word is too busy
)


@dataclass(frozen=True)
class TextBox:
    """A line of text in a scene, with its corners clockwise from the top left of the text."""

    text: str
    corners: tuple[tuple[float, float], ...]


def draw_scene(
    rng: np.random.Generator, fonts: Fonts, width: int, height: int
) -> tuple[Image.Image, list[TextBox]]:
    """A picture with three to six lines of text that do not touch, some of them tilted; never without any."""
    image = draw_background(rng, width, height)
    boxes: list[TextBox] = []
    taken: list[tuple[int, int, int, int]] = []
    wanted = int(rng.integers(3, 7))
    while len(boxes) < wanted:
        text, mask = _draw_mask(rng, fonts, size=int(rng.integers(14, 33)))
        angle = float(rng.uniform(-12, 12)) if rng.random() < 0.35 else 0.0
        tilted = mask.rotate(angle, expand=True, resample=Image.Resampling.BICUBIC)
        place = _free_place(rng, tilted.size, (width, height), taken)
        if place is None:
            if boxes:
                break  # the scene is full
            continue  # a line longer than the picture
        taken.append((*place, place[0] + tilted.width, place[1] + tilted.height))
        _paint(rng, image, tilted, place)
        centre = place[0] + tilted.width / 2, place[1] + tilted.height / 2
        boxes.append(TextBox(text, _corners(centre, mask.size, angle)))
    return _photographed(rng, image), boxes


def draw_line(rng: np.random.Generator, fonts: Fonts) -> tuple[Image.Image, str]:
    """One line of text, cut out with a small margin and a slight tilt, as a detector would hand it on."""
    text, mask = _draw_mask(rng, fonts, size=int(rng.integers(18, 41)))
    tilted = mask.rotate(float(rng.uniform(-2, 2)), expand=True, resample=Image.Resampling.BICUBIC)
    left, top, right, bottom = (int(margin) for margin in rng.integers(1, 6, 4))
    size = left + tilted.width + right, top + tilted.height + bottom
    image = draw_background(rng, *(max(side, SURROUNDINGS) for side in size)).crop((0, 0, *size))
    _paint(rng, image, tilted, (left, top))
    return _photographed(rng, image), text


@cache
def _font(path: Path, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(path), size)


def _draw_mask(rng: np.random.Generator, fonts: Fonts, size: int) -> tuple[str, Image.Image]:
    """A text and its white-on-black picture, two pixels larger than the ink on each side."""
    text, chinese = draw_text(rng, chinese=bool(fonts.chinese))
    files = fonts.chinese if chinese else fonts.latin
    font = _font(files[rng.integers(len(files))], size)
    left, top, right, bottom = (round(edge) for edge in font.getbbox(text))
    mask = Image.new("L", (right - left + 4, bottom - top + 4), 0)
    ImageDraw.Draw(mask).text((2 - left, 2 - top), text, font=font, fill=255)
    return text, mask


def _free_place(
    rng: np.random.Generator,
    size: tuple[int, int],
    frame: tuple[int, int],
    taken: list[tuple[int, int, int, int]],
) -> tuple[int, int] | None:
    room = frame[0] - size[0] - 2 * GAP, frame[1] - size[1] - 2 * GAP
    if min(room) < 0:
        return None
    for _ in range(PLACING_ATTEMPTS):
        x, y = GAP + int(rng.integers(room[0] + 1)), GAP + int(rng.integers(room[1] + 1))
        if all(
            x > right + GAP or x + size[0] < left - GAP or y > bottom + GAP or y + size[1] < top - GAP
            for left, top, right, bottom in taken
        ):
            return x, y
    return None


def _paint(rng: np.random.Generator, image: Image.Image, mask: Image.Image, place: tuple[int, int]) -> None:
    """Lays the text on in a colour that stands out from what is there."""
    area = image.crop((*place, place[0] + mask.width, place[1] + mask.height))
    mean = np.asarray(area, dtype=np.float64).reshape(-1, 3).mean(axis=0)
    contrast = rng.uniform(70, 160) * (1 if mean.mean() < 128 else -1)
    colour = np.clip(mean + contrast + rng.uniform(-30, 30, 3), 0, 255).astype(int)
    image.paste(tuple(int(value) for value in colour), place, mask)


def _corners(
    centre: tuple[float, float], size: tuple[int, int], angle: float
) -> tuple[tuple[float, float], ...]:
    turn = math.radians(-angle)  # the y axis points down
    cos, sin = math.cos(turn), math.sin(turn)
    half_width, half_height = size[0] / 2, size[1] / 2
    offsets = (
        (-half_width, -half_height),
        (half_width, -half_height),
        (half_width, half_height),
        (-half_width, half_height),
    )
    return tuple(
        (round(centre[0] + x * cos - y * sin, 1), round(centre[1] + x * sin + y * cos, 1)) for x, y in offsets
    )


def _photographed(rng: np.random.Generator, image: Image.Image) -> Image.Image:
    """A little blur and grain, as a camera adds them."""
    if rng.random() < 0.5:
        image = image.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.3, 1.0))))
    pixels = np.asarray(image, dtype=np.float64)
    grain = rng.normal(0, rng.uniform(0, 10), pixels.shape)
    return Image.fromarray(np.clip(pixels + grain, 0, 255).astype(np.uint8))
