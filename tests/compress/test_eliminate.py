"""Elimination against the textbook: least squares for every choice, one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from dysens.compress._eliminate import Reader, eliminate, set_error


def consumer(random: np.random.Generator, size: int, latent: int, unit: np.ndarray | None = None):
    """What a consumer reads (fewer sources than channels), its weights, and the reader of it."""
    mixing = random.standard_normal((size, latent))
    covariance = mixing @ mixing.T + 0.1 * np.diag(random.uniform(0.5, 2.0, size))
    weight = random.standard_normal((size, 7))
    power = float(np.trace(weight.T @ covariance @ weight))
    unit = np.arange(size) if unit is None else unit
    return covariance, weight, Reader(unit, np.linalg.inv(covariance), weight @ weight.T, power)


def least_squares_error(covariance: np.ndarray, weight: np.ndarray, gone: np.ndarray) -> float:
    """The power that is lost when the rest is refitted."""
    kept = np.setdiff1d(np.arange(len(covariance)), gone)
    rest = covariance[np.ix_(gone, gone)]
    if len(kept):
        across = covariance[np.ix_(gone, kept)]
        rest = rest - across @ np.linalg.solve(covariance[np.ix_(kept, kept)], across.T)
    return float(np.trace(weight[gone].T @ rest @ weight[gone])) / float(
        np.trace(weight.T @ covariance @ weight)
    )


def greedy_by_hand(consumers, size: int, width: int = 1) -> tuple[list[int], list[float]]:
    order: list[int] = []
    errors = []
    for _ in range(size - 1):
        costs = {}
        for unit in set(range(size)) - set(order):
            gone = np.flatnonzero(np.isin(np.repeat(np.arange(size), width), [*order, unit]))
            costs[unit] = sum(least_squares_error(c, w, gone) for c, w, _ in consumers)
        order.append(min(costs, key=costs.get))
        errors.append(costs[order[-1]])
    return order, errors


@pytest.mark.parametrize("width", [1, 2])
def test_the_order_is_that_of_refitting_after_every_removal(width):
    random = np.random.default_rng(1)
    unit = np.repeat(np.arange(9), width)
    consumers = [consumer(random, 9 * width, 5, unit) for _ in range(2)]
    order, errors = greedy_by_hand(consumers, 9, width)
    found = eliminate([reader for *_, reader in consumers], [np.arange(9)])
    assert np.argsort(found.rank).tolist()[:-1] == order
    np.testing.assert_allclose(found.errors, errors, rtol=1e-8)


def test_a_batch_of_removals_costs_as_much_as_one_after_the_other():
    random = np.random.default_rng(2)
    size = 300  # more than are done at once
    *_, reader = consumer(random, size, 80)
    found = eliminate([reader], [np.arange(size)])
    assert sorted(found.rank) == list(range(size))
    for removed in (40, 150, 290):
        exact = set_error([reader], np.flatnonzero(found.rank < removed))
        assert found.errors[removed - 1] == pytest.approx(exact, rel=1e-6)
    random_error = set_error([reader], random.permutation(size)[:150])
    assert found.errors[149] < 0.5 * random_error


def test_a_copy_of_another_channel_costs_nothing_and_its_twin_then_does():
    random = np.random.default_rng(3)
    mixing = np.vstack([np.eye(4), [[0, 0, 3.0, 0]]])  # the last is three times the third
    covariance = mixing @ mixing.T + 1e-9 * np.eye(5)
    weight = random.standard_normal((5, 3)) + 5
    reader = Reader(np.arange(5), np.linalg.inv(covariance), weight @ weight.T, 1.0)
    found = eliminate([reader], [np.arange(5)])
    assert set(np.flatnonzero(found.rank == 0)) <= {2, 4}
    assert found.errors[0] < 1e-6 < 1 < found.errors[1]


def test_each_round_takes_one_unit_of_every_block():
    random = np.random.default_rng(4)
    *_, reader = consumer(random, 12, 6)
    blocks = [np.arange(0, 4), np.arange(4, 8), np.arange(8, 12)]
    found = eliminate([reader], blocks)
    assert len(found.errors) == 3
    for block in blocks:
        assert sorted(found.rank[block]) == [0, 1, 2, 3]
    assert (np.diff(found.errors) > 0).all()


def test_units_that_a_consumer_does_not_read_cost_nothing_there():
    random = np.random.default_rng(5)
    *_, reader = consumer(random, 4, 3, np.array([0, 1, 2, 3]))
    found = eliminate([reader], [np.arange(6)])
    assert set(np.flatnonzero(found.rank < 2)) == {4, 5}
    assert found.errors[1] == 0
