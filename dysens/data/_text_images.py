"""Text drawn onto backgrounds, whole scenes with boxes or single lines, written as PaddleOCR's ``SimpleDataSet`` reads them."""

from __future__ import annotations

import importlib.util
import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from dysens.data._text import Fonts, draw_text, find_fonts
from dysens.errors import InputError

# scikit-image's sample pictures that show no text.
PHOTOGRAPHS = (
    "astronaut.png",
    "brick.png",
    "camera.png",
    "chelsea.png",
    "coffee.png",
    "coins.png",
    "grass.png",
    "gravel.png",
    "hubble_deep_field.jpg",
    "ihc.png",
    "moon.png",
    "retina.jpg",
    "rocket.jpg",
)


def draw_background(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """A surface of the given size, each of the kinds being equally likely."""
    kinds = [_gradient, _clouds, _blobs, *([_photograph] * 3 if photographs() else [])]
    return kinds[rng.integers(len(kinds))](rng, width, height)


@cache
def photographs() -> tuple[Path, ...]:
    """The sample photographs that the installed scikit-image brings along."""
    spec = importlib.util.find_spec("skimage")
    if spec is None or spec.origin is None:
        return ()
    folder = Path(spec.origin).parent / "data"
    return tuple(folder / name for name in PHOTOGRAPHS if (folder / name).is_file())


def _colour(rng: np.random.Generator) -> npt.NDArray[np.float64]:
    return rng.uniform(20, 235, 3)


def _gradient(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    angle = rng.uniform(0, 2 * np.pi)
    y, x = np.mgrid[0:height, 0:width]
    along = np.cos(angle) * x / width + np.sin(angle) * y / height
    share = ((along - along.min()) / max(float(np.ptp(along)), 1e-6))[..., None]
    return Image.fromarray((_colour(rng) * (1 - share) + _colour(rng) * share).astype(np.uint8))


def _clouds(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """Noise at three scales around one colour."""
    total = np.zeros((height, width, 3))
    for cells, strength in ((3, 35.0), (9, 18.0), (40, 8.0)):
        coarse = rng.uniform(0, 255, (cells, cells, 3)).astype(np.uint8)
        smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        total += (np.asarray(smooth, dtype=np.float64) / 127.5 - 1) * strength
    return Image.fromarray(np.clip(total + _colour(rng), 0, 255).astype(np.uint8))


def _blobs(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """Soft ellipses on a plain colour, like things out of focus."""
    image = Image.new("RGB", (width, height), tuple(int(value) for value in _colour(rng)))
    draw = ImageDraw.Draw(image)
    for _ in range(int(rng.integers(4, 12))):
        x, y = rng.uniform(0, width), rng.uniform(0, height)
        a, b = rng.uniform(0.05, 0.3, 2) * min(width, height)
        draw.ellipse((x - a, y - b, x + a, y + b), fill=tuple(int(value) for value in _colour(rng)))
    return image.filter(ImageFilter.GaussianBlur(float(rng.uniform(4, 12))))


@cache
def _opened(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return image.convert("RGB")


def _photograph(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    files = photographs()
    image = _opened(files[rng.integers(len(files))])
    scale = max(width / image.width, height / image.height) * rng.uniform(1.0, 1.6)
    size = max(width, round(image.width * scale)), max(height, round(image.height * scale))
    left, top = rng.integers(0, size[0] - width + 1), rng.integers(0, size[1] - height + 1)
    scaled = image.resize(size, Image.Resampling.BILINEAR)
    return scaled.crop((int(left), int(top), int(left) + width, int(top) + height))


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


def draw_line(
    rng: np.random.Generator, fonts: Fonts, characters: str | None = None
) -> tuple[Image.Image, str]:
    """One line of text, cut out with a small margin and a slight tilt, as a detector would hand it on."""
    text, mask = _draw_mask(rng, fonts, int(rng.integers(18, 41)), characters)
    tilted = mask.rotate(float(rng.uniform(-2, 2)), expand=True, resample=Image.Resampling.BICUBIC)
    left, top, right, bottom = (int(margin) for margin in rng.integers(1, 6, 4))
    size = left + tilted.width + right, top + tilted.height + bottom
    image = draw_background(rng, *(max(side, SURROUNDINGS) for side in size)).crop((0, 0, *size))
    _paint(rng, image, tilted, (left, top))
    return _photographed(rng, image), text


@cache
def _font(path: Path, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(path), size)


def _draw_mask(
    rng: np.random.Generator, fonts: Fonts, size: int, characters: str | None = None
) -> tuple[str, Image.Image]:
    """A text and its white-on-black picture, two pixels larger than the ink on each side."""
    text, chinese = draw_text(rng, bool(fonts.chinese), characters)
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
            f"A scene of {size[0]}x{size[1]} is too small for text; take at least {MIN_SIZE[0]}x{MIN_SIZE[1]}."
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


def write_lines(
    folder: str | Path,
    count: int,
    seed: int = 0,
    fonts: Fonts | None = None,
    characters: str | None = None,
) -> Path:
    """Draws single lines of text, for recognition.

    Args:
        folder: Is made if it is not there.
        count: How many lines.
        seed: See `write_scenes`.
        fonts: By default `find_fonts`.
        characters: Draw strings of these, each equally likely, instead of words; the fonts must have them.

    Returns:
        The label file: per line a file name, a tab, and the text.

    Raises:
        InputError: There is nothing to draw, or no font for Chinese characters.
    """
    if characters is not None and not characters.strip():
        raise InputError("There are no characters to draw lines of.")
    fonts, lines = fonts or find_fonts(), []
    if not fonts.chinese and any("\u4e00" <= each <= "\u9fff" for each in characters or ""):
        raise InputError(  # other fonts would draw an empty box for each
            "There are Chinese characters to draw, and no font for them was found: install one, such as fonts-wqy-zenhei."
        )
    for name, path, rng in _images(Path(folder), count, seed):
        image, text = draw_line(rng, fonts, characters)
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
