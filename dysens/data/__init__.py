"""Data that ships or is drawn here: digits, text images, layout pages, shapes."""

from typing import TYPE_CHECKING

from dysens._lazy import lazy_exports

if TYPE_CHECKING:
    from dysens.data._digits import Digits, load_digits
    from dysens.data._layout_pages import make_layout_pages
    from dysens.data._shapes import make_shapes
    from dysens.data._text import Fonts, find_fonts
    from dysens.data._text_images import LABEL_FILE, write_lines, write_scenes

__all__ = [
    "LABEL_FILE",
    "Digits",
    "Fonts",
    "find_fonts",
    "load_digits",
    "make_layout_pages",
    "make_shapes",
    "write_lines",
    "write_scenes",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "_digits": ["Digits", "load_digits"],
        "_layout_pages": ["make_layout_pages"],
        "_shapes": ["make_shapes"],
        "_text": ["Fonts", "find_fonts"],
        "_text_images": ["LABEL_FILE", "write_lines", "write_scenes"],
    },
)
