"""Batch norms keep their statistics in a training exactly where these fit its images better than the batches' own."""

from __future__ import annotations

import logging

import numpy as np
import paddle
import pytest
from paddle import nn

from dysens.adapters._norms import frozen_norms, losses_by_statistics, norms_of, statistics_fit


@pytest.fixture
def network():
    paddle.seed(0)
    return nn.Sequential(nn.Conv2D(3, 4, 3), nn.BatchNorm2D(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 1))


def batches(shift=0.0):
    drawn = np.random.default_rng(1)
    return [paddle.to_tensor(drawn.normal(shift, 1, (4, 3, 8, 8)).astype("float32")) for _ in range(6)]


def state(network):
    return {name: tensor.numpy() for name, tensor in network.state_dict().items()}


def towards_zero(network):
    return lambda batch: (network(batch) ** 2).mean()


def test_statistics_that_fit_are_kept_and_others_are_not(network, caplog):
    norm = network[1]
    norm._variance.set_value(
        paddle.full([4], 1e4)
    )  # what follows is nearly constant, and so is the output: a small loss
    network[4].bias.set_value(paddle.zeros([1]))
    with caplog.at_level(logging.INFO):
        assert statistics_fit(network, [norm], batches(), towards_zero(network), 0)
    assert "keep their statistics" in caplog.text
    assert "freeze_norm=false" in caplog.text

    norm._variance.set_value(paddle.full([4], 1e-6))
    caplog.clear()
    with caplog.at_level(logging.INFO):
        assert not statistics_fit(network, [norm], batches(), towards_zero(network), 0, "+Global.freeze_norm")
    assert "follow the batches" in caplog.text
    assert "+Global.freeze_norm=true" in caplog.text


def test_measuring_leaves_the_network_as_it_was(network):
    before, training = state(network), network.training
    kept, of_batches = losses_by_statistics(
        network, norms_of(network), batches(3.0), towards_zero(network), 0
    )
    assert kept != of_batches
    assert all(np.array_equal(before[name], value) for name, value in state(network).items())
    assert network.training is training
    assert network[1]._use_global_stats is None


@pytest.mark.parametrize(("size", "taken"), [(4, 4), (40, 2), (128, 1)])
def test_large_batches_are_not_all_taken(network, size, taken):
    """A stock recogniser has 128 lines in a batch, and each of them goes through its training branches."""
    seen = []

    def loss(batch):
        seen.append(batch)
        return paddle.zeros([1])

    loader = [{"image": paddle.zeros([size, 3, 8, 8]), "im_id": paddle.zeros([size, 1])} for _ in range(6)]
    losses_by_statistics(network, norms_of(network), loader, loss, 0)
    assert len(seen) == 2 * taken


def test_a_loss_that_cannot_be_had_is_said(network, caplog):
    def fails(batch):
        raise KeyError("gt_bbox")

    assert not statistics_fit(network, norms_of(network), batches(), fails, 0)
    assert "was not measured" in caplog.text
    assert "gt_bbox" in caplog.text


def test_frozen_norms_learn_scales_and_not_statistics(network):
    before = state(network)
    optimizer = paddle.optimizer.SGD(0.1, parameters=network.parameters())
    network.train()
    with frozen_norms(norms_of(network)):
        towards_zero(network)(batches(2.0)[0]).backward()
        optimizer.step()
    after = state(network)
    assert np.array_equal(after["1._mean"], before["1._mean"])
    assert np.array_equal(after["1._variance"], before["1._variance"])
    assert not np.array_equal(after["1.weight"], before["1.weight"])

    network(batches(2.0)[0])  # behind it, they follow the batches again
    assert not np.array_equal(state(network)["1._mean"], before["1._mean"])


def test_norms_of_a_branch_can_be_left_out(network):
    both = nn.Sequential(network, nn.BatchNorm2D(2))
    assert len(norms_of(both)) == 2
    assert norms_of(both, ["0"]) == [both[1]]
