"""What the text stands on: surfaces made of random numbers, and photographs where scikit-image is there."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

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
