"""Pictures for generated pages: plots, a photograph, a relief map and set equations, all from what matplotlib ships."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cbook import get_sample_data
from matplotlib.figure import Figure
from PIL import Image, ImageChops

EQUATIONS = (
    r"$s(g, r) = \frac{a_0 - a(g, r)}{a_0}$",
    r"$\sum_{i=1}^{n} \| w_i - w_j \|_2 \leq \epsilon$",
    r"$y = \gamma \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta$",
    r"$L = L_{cls} + \lambda_1 L_{box} + \lambda_2 L_{dfl}$",
    r"$\min_{r} \sum_k c_k(1 - r_k) \quad s.t. \quad l_k(r_k) \leq t$",
)


def draw_figure(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """A plot, a photograph or a map, at most ``width`` x ``height`` pixels, without a margin."""
    kinds: tuple[Callable[[np.random.Generator, int, int], Image.Image], ...] = (
        _curves,
        _bars,
        _photograph,
        _relief,
    )
    return kinds[int(rng.integers(len(kinds)))](rng, width, height)


def draw_equation(rng: np.random.Generator) -> Image.Image:
    """An equation in a size that suits body text, without a margin."""
    figure = Figure(figsize=(5, 1.2), dpi=100)
    figure.text(0.1, 0.4, str(rng.choice(EQUATIONS)), fontsize=11, math_fontfamily="stix")
    return _rendered(figure)


def _curves(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    figure, axes = _axes(width, height)
    x = np.linspace(0, 1, 10)
    for index in range(int(rng.integers(2, 5))):
        axes.plot(
            x, np.cumsum(rng.uniform(0, 1, 10)), marker="os^d"[index], markersize=3, label=f"group {index}"
        )
    axes.legend(fontsize=6)
    return _rendered(figure)


def _bars(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    figure, axes = _axes(width, height)
    count = int(rng.integers(4, 9))
    axes.bar(range(count), rng.uniform(0.2, 1, count), color=f"C{int(rng.integers(10))}")
    return _rendered(figure)


def _photograph(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """A part of the photograph in the proportions asked for."""
    photograph = _sample_photograph()
    across = int(photograph.width * rng.uniform(0.6, 1))
    down = across * height // width
    left, top = (
        int(each) for each in rng.integers(0, (photograph.width - across + 1, photograph.height - down + 1))
    )
    part = photograph.crop((left, top, left + across, top + down))
    return part.resize((width, height), Image.Resampling.BILINEAR)


def _relief(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    colours = matplotlib.colormaps[str(rng.choice(["terrain", "gist_earth", "gray"]))](_sample_heights())
    image = Image.fromarray((colours[..., :3] * 255).astype("uint8"))
    return image.rotate(90 * int(rng.integers(4)), expand=True).resize(
        (width, height), Image.Resampling.BILINEAR
    )


def _axes(width: int, height: int) -> tuple[Figure, matplotlib.axes.Axes]:
    figure = Figure(figsize=(width / 100, height / 100), dpi=100)
    axes = figure.add_axes((0.12, 0.14, 0.85, 0.82))
    axes.tick_params(labelsize=6)
    return figure, axes


def _rendered(figure: Figure) -> Image.Image:
    """The figure as pixels, cropped to what is drawn."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3])
    return image.crop(ImageChops.invert(image).getbbox())


@cache
def _sample_photograph() -> Image.Image:
    return Image.open(get_sample_data("grace_hopper.jpg", asfileobj=False)).convert("RGB")


@cache
def _sample_heights() -> np.ndarray:
    with np.load(get_sample_data("jacksboro_fault_dem.npz", asfileobj=False)) as file:
        heights = file["elevation"].astype("float32")
    scaled: np.ndarray = (heights - heights.min()) / np.ptp(heights)
    return scaled
