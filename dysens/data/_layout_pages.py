"""Generated, labelled document pages for the page-layout detector: no download, the same pages for the same seed.

A page is set in one or two columns with what a paper has: a title, section titles, paragraphs, figures and tables with
their captions, equations, references, a header and a footer. The labels carry the ten names of the CDLA data set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cbook import get_sample_data
from matplotlib.figure import Figure
from PIL import Image, ImageChops, ImageDraw, ImageFont

from dysens.data._shapes import Label, write_coco_set

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


CATEGORIES = (
    "text",
    "title",
    "figure",
    "figure_caption",
    "table",
    "table_caption",
    "header",
    "footer",
    "reference",
    "equation",
)
WIDTH, HEIGHT = 608, 800
BOTTOM = HEIGHT - 55

_VOCABULARY = (
    "the of and to in is that for with as are on by this from be we which model network layer channel "
    "filter weight each can not more than between result table figure shows data training accuracy "
    "pruning ratio method cost loss measured compared baseline sensitivity removal groups convolution "
    "images detection recognition learning deep gradient feature maps structured redundant parameters "
    "inference latency devices memory bandwidth budget search evaluation metric threshold sampled "
    "randomly initial final several different small large number average value"
)
WORDS = _VOCABULARY.split()


@dataclass
class _Page:
    """A page while it is being set."""

    rng: np.random.Generator
    image: Image.Image = field(default_factory=lambda: Image.new("RGB", (WIDTH, HEIGHT), "white"))
    labels: list[Label] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw = ImageDraw.Draw(self.image)
        self.serif = str(self.rng.choice(["STIXGeneral", "DejaVuSerif"]))
        self.body = _font(self.serif, int(self.rng.integers(11, 13)))

    def text_line(self, x: float, y: float, text: str, font: ImageFont.FreeTypeFont) -> tuple[float, ...]:
        self.draw.text((x, y), text, font=font, fill="black")
        return self.draw.textbbox((x, y), text, font=font)

    def label(self, category: str, boxes: list[tuple[float, ...]]) -> None:
        left, top, right, bottom = zip(*boxes)
        self.labels.append(Label(category, (min(left), min(top), max(right), max(bottom))))


# A block is drawn at (left, top) within a width, and says where it ends; None where it does not fit on the page.
_Block = Callable[[_Page, int, int, int], "int | None"]


def make_layout_pages(folder: str | Path, count: int, *, seed: int = 0) -> Path:
    """Writes ``count`` pages of 608 x 800 pixels as a COCO data set.

    Example:
        >>> make_layout_pages("output/layout_pages/val", 40, seed=1).name  # doctest: +SKIP
        'annotations.json'
    """
    rng = np.random.default_rng(seed)
    return write_coco_set(folder, CATEGORIES, (draw_page(rng) for _ in range(count)))


def draw_page(rng: np.random.Generator) -> tuple[Image.Image, list[Label]]:
    """One page and the labels of all that is on it."""
    page = _Page(rng)
    top = 50
    if rng.random() < 0.6:
        _running_lines(page)
    if rng.random() < 0.6:
        top = _paper_title(page, top)
    columns = [(45, WIDTH - 90)] if rng.random() < 0.4 else [(35, 258), (315, 258)]
    for left, width in columns:
        _fill_column(page, left, top, width)
    return page.image, page.labels


def _fill_column(page: _Page, left: int, top: int, width: int) -> None:
    """Sets blocks until one does not fit; a paragraph follows everything else, so that no two headings come in a row."""
    blocks, odds = zip(*_BLOCKS.items())
    chances = np.array(odds) / sum(odds)
    block: _Block | None = None
    end: int | None = top
    while end is not None:
        any_next = block in (None, _paragraph)
        block = blocks[int(page.rng.choice(len(blocks), p=chances))] if any_next else _paragraph
        end = block(page, left, end, width)


def _running_lines(page: _Page) -> None:
    font = _font(page.serif, 10)
    header = page.text_line(45, 22, _phrase(page.rng, 6).title(), font)
    page.draw.line((45, 38, WIDTH - 45, 38), fill="black")
    page.label("header", [header])
    number = f"{int(page.rng.integers(1, 400))}"
    page.label("footer", [page.text_line(WIDTH / 2 - 10, HEIGHT - 35, number, font)])


def _paper_title(page: _Page, top: int) -> int:
    font = _font("DejaVuSans-Bold", 20)
    text = _phrase(page.rng, 4).title()
    box = page.text_line((WIDTH - font.getlength(text)) / 2, top, text, font)
    page.label("title", [box])
    return int(box[3]) + 25


def _paragraph(page: _Page, left: int, top: int, width: int) -> int | None:
    count = int(page.rng.integers(3, 9))
    height = _line_height(page)
    if top + count * height > BOTTOM:
        return None
    boxes = [
        page.text_line(left, top + row * height, line, page.body)
        for row, line in enumerate(_lines(page.rng, page.body, width, count))
    ]
    page.label("text", boxes)
    return top + count * height + 14


def _section_title(page: _Page, left: int, top: int, width: int) -> int | None:
    if top + 80 > BOTTOM:
        return None
    text = f"{int(page.rng.integers(1, 9))}. {_phrase(page.rng, 3).capitalize()}"
    page.label("title", [page.text_line(left, top, text, _font("DejaVuSans-Bold", 14))])
    return top + 30


def _figure(page: _Page, left: int, top: int, width: int) -> int | None:
    wide = int(width * page.rng.uniform(0.65, 0.95))
    high = min(int(wide * page.rng.uniform(0.5, 0.7)), 230)
    if top + high + 50 > BOTTOM:
        return None
    picture = draw_figure(page.rng, wide, high)
    at = left + (width - picture.width) // 2
    page.image.paste(picture, (at, top))
    page.label("figure", [(at, top, at + picture.width, top + picture.height)])
    return _caption(page, "Figure", left, top + picture.height + 8, width) + 12


def _table(page: _Page, left: int, top: int, width: int) -> int | None:
    rows, columns = (int(each) for each in page.rng.integers((4, 3), (9, 5)))
    step, across = _line_height(page) + 6, width // columns
    if top + 28 + rows * step > BOTTOM:
        return None
    top = _caption(page, "Table", left, top, width)
    right, bottom = left + columns * across, top + rows * step
    for row in range(rows + 1):
        page.draw.line((left, top + row * step, right, top + row * step), fill="black")
    for column in range(columns + 1):
        page.draw.line((left + column * across, top, left + column * across, bottom), fill="black")
    for row in range(rows):
        for column in range(columns):
            entry = _phrase(page.rng, 1)[:8] if row == 0 or column == 0 else f"{page.rng.uniform(0, 99):.2f}"
            page.draw.text(
                (left + column * across + 4, top + row * step + 3), entry, font=page.body, fill="black"
            )
    page.label("table", [(left, top, right, bottom)])
    return bottom + 20


def _equation(page: _Page, left: int, top: int, width: int) -> int | None:
    picture = draw_equation(page.rng)
    if top + picture.height + 20 > BOTTOM:
        return None
    at = left + (width - picture.width) // 2
    page.image.paste(picture, (at, top))
    page.label("equation", [(at, top, at + picture.width, top + picture.height)])
    return top + picture.height + 14


def _caption(page: _Page, kind: str, left: int, top: int, width: int) -> int:
    """Draws and labels a caption centred in the column; returns where it ends."""
    font = _font(page.serif, 11)
    text = f"{kind} {int(page.rng.integers(1, 9))}: {_phrase(page.rng, 3)}"
    box = page.text_line(left + (width - font.getlength(text)) / 2, top, text, font)
    page.label(f"{kind.lower()}_caption", [box])
    return top + 20


def _references(page: _Page, left: int, top: int, width: int) -> int | None:
    height = _line_height(page)
    count = int(page.rng.integers(3, 7))
    if top + 30 + 2 * count * height > BOTTOM:
        return None
    page.label("title", [page.text_line(left, top, "References", _font("DejaVuSans-Bold", 14))])
    boxes, y = [], top + 28
    for entry in range(count):
        first, second = _lines(page.rng, page.body, width - 22, 2)
        boxes.append(page.text_line(left, y, f"[{entry + 1}]  {first}", page.body))
        boxes.append(page.text_line(left + 22, y + height, second, page.body))
        y += 2 * height
    page.label("reference", boxes)
    return y + 14


_BLOCKS: dict[_Block, float] = {
    _paragraph: 1.0,
    _section_title: 2.0,
    _figure: 1.5,
    _table: 1.5,
    _equation: 1.0,
    _references: 0.6,
}


def _lines(rng: np.random.Generator, font: ImageFont.FreeTypeFont, width: int, count: int) -> Iterator[str]:
    """Lines that fill the width; the last one ends early."""
    for row in range(count):
        room = width * (rng.uniform(0.3, 0.9) if row == count - 1 else 1.0)
        line = str(rng.choice(WORDS))
        while font.getlength(longer := f"{line} {rng.choice(WORDS)}") <= room:
            line = longer
        yield line.capitalize() if row == 0 else line


def _phrase(rng: np.random.Generator, count: int) -> str:
    return " ".join(str(each) for each in rng.choice(WORDS, count))


def _line_height(page: _Page) -> int:
    return int(page.body.size * 1.35)


@cache
def _font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """One of the fonts that matplotlib ships."""
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"), size)
