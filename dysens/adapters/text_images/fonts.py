"""The fonts that are at hand: matplotlib's for Latin text, an installed one for Chinese."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib import font_manager

LATIN_FILES = (
    "DejaVuSans.ttf",
    "DejaVuSans-Bold.ttf",
    "DejaVuSans-Oblique.ttf",
    "DejaVuSansMono.ttf",
    "DejaVuSerif.ttf",
    "DejaVuSerif-Bold.ttf",
    "STIXGeneral.ttf",
    "STIXGeneralBol.ttf",
)
# Parts of the file names of common fonts with simplified Chinese.
CHINESE_FILES = (
    "wqy",
    "notosanscjk",
    "notoserifcjk",
    "sourcehan",
    "droidsansfallback",
    "simhei",
    "msyh",
    "pingfang",
)


@dataclass(frozen=True)
class Fonts:
    """Font files by script; without Chinese ones no Chinese text is drawn."""

    latin: tuple[Path, ...]
    chinese: tuple[Path, ...] = ()


def find_fonts() -> Fonts:
    """matplotlib's own fonts, and the Chinese fonts installed on this machine."""
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    installed = sorted(Path(file) for file in font_manager.findSystemFonts())
    chinese = [
        path
        for path in installed
        if any(part in path.name.lower().replace("-", "") for part in CHINESE_FILES)
    ]
    return Fonts(tuple(folder / name for name in LATIN_FILES), tuple(chinese))
