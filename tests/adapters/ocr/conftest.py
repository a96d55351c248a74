"""Small sets of text images, and the shipped configs pointed at them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dysens.adapters.ocr import load_config
from dysens.adapters.text_images import Fonts, find_fonts, write_lines, write_scenes

CONFIGS = Path(__file__).parents[3] / "configs" / "ocr"
GetConfig = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sets as tools/make_text_images.py lays them out, with Latin text only so that they are the same everywhere."""
    folder = tmp_path_factory.mktemp("text_images")
    fonts = Fonts(find_fonts().latin)
    for part, seed, lines in (("train", 1, 12), ("eval", 2, 8)):
        write_scenes(folder / f"det_{part}", 6, seed, (256, 192), fonts)
        write_lines(folder / f"rec_{part}", lines, seed, fonts)
    return folder


@pytest.fixture(scope="session")
def config(images: Path) -> GetConfig:
    """Reads one of configs/ocr with the paths of `images`, plus overrides."""

    def read(name: str, *overrides: str) -> dict[str, Any]:
        kind = "det" if "det" in name else "rec"
        paths = [
            f"{mode}.dataset.{key}"
            for mode in ("Train", "Eval")
            for key in (
                f"data_dir={images}/{kind}_{mode.lower()}",
                f"label_file_list=[{images}/{kind}_{mode.lower()}/label.txt]",
            )
        ]
        return load_config(CONFIGS / f"{name}.yml", [*paths, *overrides])

    return read
