"""The shipped digits."""

from __future__ import annotations

import numpy as np

from dysens.data import load_digits


def test_sizes_and_types() -> None:
    train, test = load_digits()
    assert (len(train), len(test)) == (1200, 597)
    assert train.images.shape == (1200, 1, 8, 8)
    assert train.images.dtype == np.float32
    assert test.labels.shape == (597,)
    assert test.labels.dtype == np.int64


def test_values() -> None:
    for part in load_digits():
        assert part.images.min() == 0
        assert part.images.max() == 1
        assert set(part.labels) == set(range(10))
        assert np.bincount(part.labels).min() > 50


def test_parts_share_no_image() -> None:
    train, test = load_digits()
    assert not {image.tobytes() for image in train.images} & {image.tobytes() for image in test.images}


def test_callers_cannot_spoil_it_for_each_other() -> None:
    load_digits()[0].images[:] = 5
    assert load_digits()[0].images.max() == 1
