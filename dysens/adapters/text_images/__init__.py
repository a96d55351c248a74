"""Labelled text images that anyone can make offline, in the format that PaddleOCR reads."""

from dysens.adapters.text_images.fonts import Fonts, find_fonts
from dysens.adapters.text_images.sets import write_lines, write_scenes

__all__ = ["Fonts", "find_fonts", "write_lines", "write_scenes"]
