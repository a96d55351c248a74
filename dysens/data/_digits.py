"""The shipped digits: small real data for the demo, the documents and the tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

# In the order of the source, not shuffled: everybody gets the same split.
_TRAIN_IMAGES = 1200


@dataclass(frozen=True)
class Digits:
    """Images of shape [count, 1, 8, 8] with values from 0 to 1 (float32), and labels of shape [count] (int64)."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


def load_digits() -> tuple[Digits, Digits]:
    """1,200 digits to train on and 597 to score with; ORIGIN.md beside this file says where they come from.

    Example:
        >>> train, test = load_digits()
        >>> len(train), test.images.shape
        (1200, (597, 1, 8, 8))
    """
    with np.load(Path(__file__).with_name("digits.npz"), allow_pickle=False) as archive:
        images = archive["images"].astype("float32")[:, None] / 16
        labels = archive["labels"].astype("int64")
    return (
        Digits(images[:_TRAIN_IMAGES], labels[:_TRAIN_IMAGES]),
        Digits(images[_TRAIN_IMAGES:], labels[_TRAIN_IMAGES:]),
    )
