"""The global generators that initial weights and the frameworks' augmentations are drawn from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import paddle


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draws of ``random``, NumPy and Paddle inside repeat; those outside go on as if nothing had happened."""
    states = random.getstate(), np.random.get_state(), paddle.get_rng_state()
    random.seed(seed)
    np.random.seed(seed)
    paddle.seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        paddle.set_rng_state(states[2])
