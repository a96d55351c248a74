from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from dysens.data import make_layout_pages, make_shapes
from dysens.data._layout_pages import CATEGORIES
from dysens.data._shapes import SHAPES


def read(path):
    content = json.loads(path.read_text())
    images = [
        np.asarray(Image.open(path.parent / "images" / each["file_name"])) for each in content["images"]
    ]
    return content, images


@pytest.mark.parametrize(
    ("make", "names", "size"),
    [(make_shapes, SHAPES, (128, 128)), (make_layout_pages, CATEGORIES, (608, 800))],
)
def test_the_files_are_a_coco_set(tmp_path, make, names, size):
    content, images = read(make(tmp_path / "set", 3, seed=1))
    assert [each["name"] for each in content["categories"]] == list(names)
    assert [each["id"] for each in content["images"]] == [0, 1, 2]
    assert all((each["width"], each["height"]) == size for each in content["images"])
    assert all(image.shape == (size[1], size[0], 3) for image in images)
    assert len({each["id"] for each in content["annotations"]}) == len(content["annotations"])
    assert {each["image_id"] for each in content["annotations"]} == {0, 1, 2}


@pytest.mark.parametrize("make", [make_shapes, make_layout_pages])
def test_a_seed_fixes_the_images_and_the_labels(tmp_path, make):
    (first, one), (again, two), (other, _) = (
        read(make(tmp_path / name, 2, seed=seed)) for name, seed in (("a", 4), ("b", 4), ("c", 5))
    )
    assert first == again
    assert all(np.array_equal(left, right) for left, right in zip(one, two))
    assert first["annotations"] != other["annotations"]


def test_labels_are_inside_the_page_and_what_is_on_it_is_labelled(tmp_path):
    content, images = read(make_layout_pages(tmp_path, 8, seed=2))
    seen = set()
    unlabelled = [image.min(axis=2) < 128 for image in images]
    for each in content["annotations"]:
        left, top, width, height = each["bbox"]
        assert 0 <= left < left + width <= 608
        assert 0 <= top < top + height <= 800
        assert each["area"] == width * height
        ink = unlabelled[each["image_id"]][
            int(top) : int(np.ceil(top + height)) + 1, int(left) : int(np.ceil(left + width)) + 1
        ]
        seen.add(CATEGORIES[each["category_id"]])
        ink[:] = False
    assert {"text", "title", "figure", "table", "equation"} <= seen
    # Only the rule under the header is not part of anything.
    for ink in unlabelled:
        assert set(np.nonzero(ink)[0]) <= {38}


def test_shapes_do_not_touch(tmp_path):
    content, _ = read(make_shapes(tmp_path, 10, seed=0))
    for image in content["images"]:
        boxes = [each["bbox"] for each in content["annotations"] if each["image_id"] == image["id"]]
        taken = np.zeros((128, 128), dtype=int)
        for left, top, width, height in boxes:
            taken[top : top + height, left : left + width] += 1
        assert taken.max() == 1
