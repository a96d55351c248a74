"""Networks that lead tools astray: what is offered is right on any input and size, and everything else has a reason."""

from __future__ import annotations

import logging
import os
from collections import Counter
from contextlib import contextmanager

import numpy as np
import paddle
import pytest
from hostile_networks import HostileNet

from dysens import DygraphSensitivity
from dysens.evaluators import Evaluator
from dysens.model import preserved
from dysens.pruning import masked

NETWORKS = min(int(os.environ.get("DYSENS_RANDOM_NETWORKS") or 16), 500)
"""How many; `make test-all` draws more."""

FASTS = ("off", "auto")
"""The ways of running whose losses are compared with those of really cut networks."""

SHAPE = [1, 3, 8, 8]
TOLERANCE = 2e-3


class Closeness(Evaluator):
    """A score that moves with every output: how near they are to the whole network's."""

    name = "closeness"

    def __init__(self, model: paddle.nn.Layer, inputs: list[np.ndarray]) -> None:
        self._inputs = inputs
        self._targets = [answer(model, each) for each in inputs]

    def batches(self):
        return [(paddle.to_tensor(x), paddle.to_tensor(y)) for x, y in zip(self._inputs, self._targets)]

    def measure(self, outputs, batch):
        return float(((outputs - batch[1]) ** 2).mean()), 1

    def score(self, measurements):
        return 1 / (1 + 20 * float(np.mean([value for value, _ in measurements])))


def answer(model: paddle.nn.Layer, x: np.ndarray) -> np.ndarray:
    """What the model gives, from the state that it has, which it keeps."""
    buffers = [buffer for _, buffer in model.named_buffers()]
    values = [buffer.numpy().copy() for buffer in buffers]
    model.eval()
    with paddle.no_grad():
        found = model(paddle.to_tensor(x)).numpy()
    for buffer, value in zip(buffers, values):
        buffer.set_value(value)
    return found


def inputs(seed: int) -> list[np.ndarray]:
    """Dark and bright, small and large, one and several at a time."""
    random = np.random.default_rng(seed)
    kinds = [(1, 8, 1.0, 0.0), (3, 8, 2.0, 0.5), (2, 12, 1.0, -0.5), (1, 16, 0.5, 1.0), (2, 8, 0.1, 0.0)]
    return [
        (random.standard_normal([batch, 3, side, 8]) * scale + shift).astype("float32")
        for batch, side, scale, shift in kinds
    ]


def state(model: paddle.nn.Layer) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in model.state_dict().items()}


def apart(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).max() / (np.abs(other).max() + 1e-9))


def check(seed: int, counts: Counter[str]) -> None:
    model = HostileNet(seed)
    data = inputs(seed)
    before = state(model)
    whole = [answer(model, x) for x in data]
    ds = DygraphSensitivity(model, SHAPE)
    assert state(model) == before, f"{seed}: the analysis changes {model}"
    counts["networks"] += 1
    counts["networks without a group"] += not ds.groups
    counts["groups that agree"] += len(ds.groups)
    counts["weights refused"] += len(ds.unprunable)
    for ratios in [{group.name: 0.5} for group in ds.groups] + [{group.name: 0.3 for group in ds.groups}]:
        with ds.pruned(ratios) as outcome:
            cut = [answer(model, x) for x in data]
            model.train()
            try:
                model(paddle.to_tensor(data[1]))
            except Exception as error:
                raise AssertionError(f"{seed}: {model} no longer trains: {error}") from error
            finally:
                model.eval()
        with masked(model, outcome.plan):
            kept = [answer(model, x) for x in data]
        for one, other in zip(cut, kept):
            assert one.shape == other.shape
            assert apart(one, other) <= TOLERANCE, f"{seed}: {model}: {ratios} is cut wrongly"
    assert state(model) == before, f"{seed}: {model} is not restored"
    for x, y in zip(data, whole):
        assert np.array_equal(answer(model, x), y)
    if ds.groups:
        compare_sweeps(seed, model, ds, data, counts)
    assert state(model) == before, f"{seed}: a sweep changes {model}"


def compare_sweeps(seed, model, ds, data, counts) -> None:
    """The losses of a sweep are those of networks that are really cut."""
    evaluator = Closeness(model, data)

    def score() -> float:
        """As a sweep does it: batch by batch, and what the batches leave behind is put back afterwards."""
        with preserved(model), paddle.no_grad():
            return evaluator.score([evaluator.measure(model(b[0]), b) for b in evaluator.batches()])

    whole, truth = score(), {}
    for group in ds.groups:
        with ds.pruned({group.name: 0.5}):
            truth[group.name] = (whole - score()) / (whole + 1e-3)
    for fast in FASTS:
        with reasons() as said:
            found = ds.sensitive(evaluator, ratios=[0.5], fast=fast, progress=False)
        live = fast == "off" or bool(said)
        counts[f'sweeps with fast="{fast}" that agree, {"live" if live else "by a copy"}'] += 1
        for name, loss in truth.items():
            assert abs(found[name][0.5] - loss) <= TOLERANCE, f"{seed}: {model}: {name} with fast={fast}"


@contextmanager
def reasons():
    """Why the live model runs where a copy was wanted."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    handler.addFilter(lambda record: "runs the live model" in record.getMessage())
    logging.getLogger("dysens").addHandler(handler)
    try:
        yield said
    finally:
        logging.getLogger("dysens").removeHandler(handler)


def test_hostile_networks(capsys, monkeypatch):
    monkeypatch.setattr("dysens.compiled._forward._QUICK_FORWARD_SECONDS", 0.0)  # toys are compiled, too
    counts: Counter[str] = Counter()
    for seed in range(NETWORKS):
        check(seed, counts)
    with capsys.disabled():
        print("\nhostile networks:", ", ".join(f"{what} {number}" for what, number in counts.items()))
    assert counts["groups that agree"] >= NETWORKS / 2


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_is_the_same_network(seed):
    one, other = HostileNet(seed), HostileNet(seed)
    assert str(one) == str(other)
    assert state(one) == state(other)
