"""Networks of attention, recurrent layers and remembered widths: what `layers="all"` offers is right, the rest has a reason."""

from __future__ import annotations

import os

import numpy as np
import paddle
import pytest
from random_sequences import SHAPE, RandomSequence

from dysens import DygraphSensitivity
from dysens.groups import filters_by_path
from dysens.pruning import masked

NETWORKS = min(int(os.environ.get("DYSENS_RANDOM_NETWORKS") or 8), 300)
"""How many; `make test-all` draws more."""

TOLERANCE = 1e-3


CHUNK = 10  # a test, and what it may take at most, is of so many


@pytest.mark.parametrize("first", range(0, NETWORKS, CHUNK))
def test_random_sequences(first: int) -> None:
    seeds = range(first, min(first + CHUNK, NETWORKS))
    assert sum(check(seed) for seed in seeds) >= len(seeds) / 2


def check(seed: int) -> int:
    """Compare masks and cuts of one network, group by group and all at once; returns how many groups it has."""
    model = RandomSequence(seed)
    model.eval()
    data = [paddle.randn([2, *SHAPE[1:]]), paddle.randn([3, *SHAPE[1:]]) * 3 + 1]
    whole = answers(model, data)
    ds = DygraphSensitivity(model, SHAPE, layers="all")
    assert_equal(whole, answers(model, data), f"{seed}: {model} is changed by looking at it")
    cut = {path for group in ds.groups for path in group.filters}
    weights = filters_by_path(model, "all")
    assert all(path in cut or tensor.name in ds.unprunable for path, tensor in weights.items()), (
        f"{seed}: {model}"
    )
    random = np.random.default_rng(seed)
    every = [{group.name: float(random.choice([0.25, 0.5, 0.75]))} for group in ds.groups]
    together = {group.name: float(random.uniform(0.1, 0.8)) for group in ds.groups}
    for ratios in [*every, together] if ds.groups else ():
        with ds.pruned(ratios) as outcome:
            left = answers(model, data)
        with masked(model, outcome.plan):
            kept = answers(model, data)
        for one, other in zip(left, kept):
            apart = np.abs(one - other).max() / (np.abs(other).max() + 1e-9)
            assert apart <= TOLERANCE, f"{seed}: {model}: {ratios} is cut wrongly by {apart:.2g}"
    assert_equal(whole, answers(model, data), f"{seed}: {model} is not restored")
    return len(ds.groups)


def answers(model: paddle.nn.Layer, data: list[paddle.Tensor]) -> list[np.ndarray]:
    with paddle.no_grad():
        return [model(x).numpy() for x in data]


def assert_equal(one: list[np.ndarray], other: list[np.ndarray], message: str) -> None:
    assert all(np.array_equal(a, b) for a, b in zip(one, other)), message
