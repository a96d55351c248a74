"""The drawn sets: their format, that a seed fixes them, and that boxes and texts are right."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dysens.data import Fonts, find_fonts, write_lines, write_scenes
from dysens.data._text import CHINESE, MAX_LENGTH, draw_text
from dysens.data._text_images import draw_background, draw_scene
from dysens.errors import InputError

LATIN = Fonts(find_fonts().latin)
TOOL = Path(__file__).parents[2] / "tools" / "make_text_images.py"


def rows(label: Path) -> list[list[str]]:
    return [line.split("\t") for line in label.read_text(encoding="utf-8").splitlines()]


def test_scenes_are_a_simple_data_set(tmp_path):
    label = write_scenes(tmp_path / "set", 5, seed=3, size=(240, 160), fonts=LATIN)
    assert label == tmp_path / "set" / "label.txt"
    assert len(rows(label)) == 5
    for name, boxes in rows(label):
        with Image.open(label.parent / name) as image:
            assert image.size == (240, 160)
        assert json.loads(boxes)
        for box in json.loads(boxes):
            points = np.array(box["points"])
            assert box["transcription"].strip()
            assert points.shape == (4, 2)
            assert (points >= 0).all()
            assert (points <= (240, 160)).all()
            # Clockwise from the top left, as PaddleOCR orders them: the shoelace area is positive with y downwards.
            x, y = points.T
            assert np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)) > 0


def test_lines_are_a_simple_data_set(tmp_path):
    label = write_lines(tmp_path, 20, seed=1, fonts=LATIN)
    for name, text in rows(label):
        assert 0 < len(text) <= MAX_LENGTH
        with Image.open(tmp_path / name) as image:
            assert image.height >= 16


def test_lines_of_given_characters(tmp_path):
    texts = [
        text
        for _, text in rows(write_lines(tmp_path / "set", 10, seed=2, fonts=LATIN, characters="A 7\u00e9"))
    ]
    assert set("".join(texts)) == set("A7\u00e9")
    with pytest.raises(InputError, match="no characters to draw"):
        write_lines(tmp_path / "none", 1, characters=" \n")
    with pytest.raises(InputError, match="no font for them was found"):
        write_lines(tmp_path / "boxes", 1, fonts=LATIN, characters="ab\u8bba")


@pytest.mark.parametrize("write", [write_scenes, write_lines])
def test_seed_fixes_each_image_whatever_the_count(write, tmp_path):
    few, many, other = (
        write(tmp_path / name, count, seed=seed, fonts=LATIN)
        for name, count, seed in (("a", 2, 7), ("b", 4, 7), ("c", 2, 8))
    )
    assert rows(few) == rows(many)[:2]
    assert rows(few) != rows(other)
    for name in ("00000.png", "00001.png"):
        assert (few.parent / name).read_bytes() == (many.parent / name).read_bytes()


@pytest.mark.parametrize("seed", range(8))
def test_lines_of_a_scene_do_not_overlap(seed):
    _, boxes = draw_scene(np.random.default_rng(seed), LATIN, 320, 320)
    spans = [(np.min(box.corners, axis=0), np.max(box.corners, axis=0)) for box in boxes]
    for index, (low, high) in enumerate(spans):
        for other_low, other_high in spans[index + 1 :]:
            assert (high < other_low).any() or (other_high < low).any()


def test_text_stands_inside_its_box():
    """Where nothing but the text differs from the plain background, the ink must lie in the boxes."""
    from PIL import ImageDraw

    for seed in range(6):
        image, boxes = draw_scene(np.random.default_rng(seed), LATIN, 256, 256)
        rng = np.random.default_rng(seed)
        background = np.asarray(draw_background(rng, 256, 256), dtype=float)
        cover = Image.new("L", image.size, 0)
        for box in boxes:
            ImageDraw.Draw(cover).polygon([tuple(corner) for corner in box.corners], fill=255)
        changed = np.abs(np.asarray(image, dtype=float) - background).max(axis=2) > 60
        inside = np.asarray(cover) > 0
        assert changed[inside].mean() > 5 * max(changed[~inside].mean(), 0.002)


def test_chinese_only_where_a_font_has_it():
    rng = np.random.default_rng(0)
    texts = [draw_text(rng, chinese=True) for _ in range(200)]
    assert {text for text, chinese in texts if chinese} <= set(CHINESE)
    assert 0.2 < np.mean([chinese for _, chinese in texts]) < 0.5
    assert not any(chinese for _, chinese in (draw_text(rng, chinese=False) for _ in range(200)))


@pytest.mark.skipif(not find_fonts().chinese, reason="no Chinese font is installed")
def test_chinese_is_drawn(tmp_path):
    texts = [text for _, text in rows(write_lines(tmp_path, 30))]
    assert any(text in CHINESE for text in texts)


def test_found_fonts_exist():
    fonts = find_fonts()
    assert fonts.latin
    assert all(path.is_file() for path in fonts.latin + fonts.chinese)


def test_bad_sizes_and_counts(tmp_path):
    with pytest.raises(InputError, match="at least one"):
        write_lines(tmp_path, 0)
    with pytest.raises(InputError, match="too small for text"):
        write_scenes(tmp_path, 1, size=(40, 40))


def test_tool_writes_the_four_sets(tmp_path, capsys):
    spec = importlib.util.spec_from_file_location("make_text_images", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    tool.main(["--out", str(tmp_path), "--scenes", "2", "--lines", "3", "--size", "160", "128"])
    assert "det_train" in capsys.readouterr().out
    counts = {path.parent.name: len(rows(path)) for path in tmp_path.glob("*/label.txt")}
    assert counts == {"det_train": 2, "det_eval": 2, "rec_train": 3, "rec_eval": 3}
    assert rows(tmp_path / "rec_train" / "label.txt") != rows(tmp_path / "rec_eval" / "label.txt")
    with pytest.raises(SystemExit, match="at least one"):
        tool.main(["--out", str(tmp_path), "--scenes", "0"])
