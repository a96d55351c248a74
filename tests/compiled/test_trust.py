"""Forwards that a compiled copy cannot repeat, or only for some calls: the numbers are those of the live model all the same."""

from __future__ import annotations

import gc
import sys
import time

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from networks import images
from paddle import nn

from dysens import DygraphSensitivity, Sensitivities
from dysens.compiled import _forward as fast_forward
from dysens.compiled import _live_model as live_model
from dysens.errors import ForwardError
from dysens.evaluators import Evaluator
from dysens.model import isolate, preserved

RATIOS = [0.25, 0.75]
SHAPE = [2, 3, 12, 12]
SCORE = 1e-4


@pytest.fixture(autouse=True)
def toys_are_compiled(monkeypatch):
    monkeypatch.setattr(fast_forward, "_QUICK_FORWARD_SECONDS", 0.0)


class Net(nn.Layer):
    """Two convolutions and a head; what comes between differs."""

    def __init__(self):
        super().__init__()
        self.stem, self.mid, self.head = nn.Conv2D(3, 8, 3, padding=1), nn.Conv2D(8, 6, 1), nn.Linear(6, 3)

    def between(self, x, h):
        return h

    def forward(self, x):
        h = self.between(x, F.relu(self.stem(x)))
        return self.head(F.relu(self.mid(h)).mean(axis=[2, 3]))


def made(network):
    paddle.seed(5)
    model = network()
    for tensor in model.parameters():
        tensor.set_value(tensor * 3)
    model.eval()
    return model


def batches(*sizes, seed=0):
    """Some with large values, some with small ones."""
    return [
        images(n, [1, 3, side, side], seed=seed + i) * (1 + i % 2) - i % 2
        for i, (n, side) in enumerate(sizes)
    ]


class Closeness(Evaluator):
    """How near the outputs are to zero: every channel has a part in it."""

    name = "closeness"

    def __init__(self, data):
        self._data = [[x] for x in data]

    def batches(self):
        return self._data

    def measure(self, outputs, batch):
        return float((outputs[0] if isinstance(outputs, (list, tuple)) else outputs).square().mean())

    def score(self, measurements):
        return 1 / (1 + float(np.mean(measurements)))


def losses(sens):
    return np.array([loss for curve in sens.values() for loss in curve.values()])


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def assert_live_numbers(model, score, shape=SHAPE, groups=None):
    """With the copy, if one serves, and without."""
    ds = DygraphSensitivity(model, shape)
    found = ds.sensitive(score, RATIOS, target_vars=groups, progress=False)
    live = ds.sensitive(score, RATIOS, target_vars=groups, progress=False, fast="off")
    assert found.baseline == pytest.approx(live.baseline, abs=SCORE)
    np.testing.assert_allclose(losses(found), losses(live), atol=SCORE)
    assert np.abs(losses(live)).max() > 20 * SCORE


class Bool(Net):
    def between(self, x, h):
        return h * 0.1 if x.mean() > 0 else h


class Sum(Net):
    def between(self, x, h):
        if h.sum() > 200:
            h = h / 2
        return h


class Int(Net):
    def between(self, x, h):
        for _ in range(int(x.max())):
            h = h * 0.5
        return h


class Float(Net):
    def between(self, x, h):
        return h * float(x.mean())


class Item(Net):
    def between(self, x, h):
        return h * max(x.mean().item(), 0.1)


class Numpy(Net):
    def between(self, x, h):
        return h + paddle.to_tensor(x.numpy().mean())


class Array(Net):
    def between(self, x, h):
        return h + float(np.asarray(x).max())


class ToList(Net):
    def between(self, x, h):
        return h * x.mean(axis=[0, 2, 3]).tolist()[0]


class Index(Net):
    def between(self, x, h):
        return h * (1.0, 0.5, 0.2)[(x.mean() > 0).astype("int64")]


class Cond(Net):
    def between(self, x, h):
        return paddle.static.nn.cond(x.mean() > 0, lambda: h * 0.1, lambda: h)


class While(Net):
    def between(self, x, h):
        return paddle.static.nn.while_loop(lambda h: h.max() > 1, lambda h: [h / 2], [h])[0]


class Selected(Net):
    def between(self, x, h):
        found = paddle.nonzero(x[:, 0] > 1.5)
        return h * 0.1 if found.shape[0] > 10 else h


class Masked(Net):
    def between(self, x, h):
        return h / (1 + len(x[x > 1]) / 100)


class Noisy(Net):
    def between(self, x, h):
        return h + 0.0 * paddle.randn([1])


class Buffer(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("average", paddle.zeros([1]))

    def between(self, x, h):
        self.average.set_value(0.9 * self.average + 0.1 * x.mean())
        return h + 0.0 * self.average


class Counter(Net):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def between(self, x, h):
        self.calls += 1
        return h * min(self.calls, 1)


class Remembering(Net):
    def __init__(self):
        super().__init__()
        self.seen = []

    def between(self, x, h):
        self.seen.append(x.shape[0])
        return h * min(len(self.seen), 1)


CALLS = [0]


class Global(Net):
    def between(self, x, h):
        CALLS[0] += 1
        return h * min(CALLS[0], 1)


class Writing(Net):
    def forward(self, x):
        x.clip_(-0.5, 0.5)
        return super().forward(x)


CONVERTING = {
    Bool: "bool",
    Sum: "bool",
    Int: "int",
    Float: "float",
    Item: "item",
    Numpy: "numpy",
    Array: "numpy",
    ToList: "tolist",
    Index: "index",
    Cond: "item",
    While: "item",
}
REFUSED = {
    **{network: f"turns a tensor into a Python value by {how}" for network, how in CONVERTING.items()},
    Selected: "sizes that depend on values, behind nonzero",
    Masked: "sizes that depend on values",
    Buffer: "writes to weights or buffers",
    Counter: 'changes "calls"',
    Remembering: 'changes "seen"',
    Global: "CALLS",
    Noisy: "draws random numbers",
    Writing: "writes into its inputs",
}


@pytest.mark.parametrize("network", REFUSED)
def test_what_no_copy_can_repeat_is_run_live_and_said(network, caplog):
    """Each kind of batch takes another way through the network."""
    model = made(network)
    ds = DygraphSensitivity(model, SHAPE)
    caplog.clear()
    evaluator = Closeness(batches((2, 12), (2, 12), (2, 12), (2, 12)))
    found = ds.sensitive(evaluator, [0.5], progress=False)
    said = [line for line in warnings_of(caplog) if "runs the live model" in line]
    assert len(said) == 1
    assert REFUSED[network] in said[0]
    if network in CONVERTING:
        assert network.__name__ in said[0]  # where
    live = ds.sensitive(evaluator, [0.5], progress=False, fast="off")
    np.testing.assert_allclose(losses(found), losses(live), atol=1e-6)


def test_tensor_and_layer_are_as_they_were_after_an_observation():
    kinds = (paddle.Tensor, paddle.nn.Layer, paddle._C_ops)
    before = [dict(kind.__dict__) for kind in kinds]
    assert_live_numbers(made(Net), Closeness(batches((2, 12))))
    assert [dict(kind.__dict__) for kind in kinds] == before


class BySize(Net):
    """A layer that runs on large pictures only."""

    def __init__(self):
        super().__init__()
        self.big = nn.Conv2D(8, 8, 3, padding=1)

    def between(self, x, h):
        return h + F.relu(self.big(h)) if x.shape[2] > 16 else h


class ByBatch(Net):
    def between(self, x, h):
        return h * 0.1 if x.shape[0] > 8 else h


class OtherLayerByBatch(BySize):
    def between(self, x, h):
        return h + F.relu(self.big(h)) if x.shape[0] > 8 else h


@pytest.mark.parametrize(
    ("network", "sizes", "shape"),
    [
        (BySize, [(2, 12), (2, 16), (2, 20)], [1, 3, 20, 20]),
        (BySize, [(2, 20), (2, 16), (2, 12), (2, 24)], [1, 3, 20, 20]),
        (ByBatch, [(16, 12), (16, 12), (3, 12)], SHAPE),
        (ByBatch, [(3, 12), (16, 12), (9, 12)], SHAPE),
        (OtherLayerByBatch, [(3, 12), (12, 12)], [9, 3, 12, 12]),
    ],
)
def test_ways_that_depend_on_the_size(network, sizes, shape):
    assert_live_numbers(made(network), Closeness(batches(*sizes)), shape)


class Flagged(Net):
    """Reads plain values from everywhere."""

    factor = 1.0

    def __init__(self):
        super().__init__()
        self.temperature, self.mode, self.halve = 1.0, "plain", False
        self.settings = {"power": 1}
        self.act = nn.LeakyReLU(0.1)

    def between(self, x, h):
        h = self.act(h - 1) * self.factor * FACTORS["all"] / self.temperature
        h = h**2 if self.mode == "square" else h
        return (h / 2 if self.halve else h) * self.settings["power"]


FACTORS = {"all": 1.0}


def assign(owner, name, value):
    setattr(owner, name, value)


CHANGES = {
    "number": (lambda m: assign(m, "temperature", 3.0), lambda m: assign(m, "temperature", 1.0)),
    "string": (lambda m: assign(m, "mode", "square"), lambda m: assign(m, "mode", "plain")),
    "flag": (lambda m: assign(m, "halve", True), lambda m: assign(m, "halve", False)),
    "in a dict": (lambda m: m.settings.update(power=3), lambda m: m.settings.update(power=1)),
    "of a sublayer": (
        lambda m: assign(m.act, "_negative_slope", 0.9),
        lambda m: assign(m.act, "_negative_slope", 0.1),
    ),
    "of the class": (lambda m: assign(Flagged, "factor", 2.0), lambda m: assign(Flagged, "factor", 1.0)),
    "of the module": (lambda m: FACTORS.update(all=2.0), lambda m: FACTORS.update(all=1.0)),
    "stride": (lambda m: assign(m.stem, "_stride", [2, 2]), lambda m: assign(m.stem, "_stride", [1, 1])),
}


@pytest.mark.parametrize("what", CHANGES)
def test_attributes_that_change_between_calls(what):
    model, x = made(Flagged), images(2, [1, 3, 12, 12])
    change, back = CHANGES[what]

    def score():
        """As one does who tries several settings."""
        with paddle.no_grad():
            plain = model(x).abs().mean()
            change(model)
            other = model(x).abs().mean()
            back(model)
        return 1 + float(plain) + 10 * float(other)

    assert_live_numbers(model, score, groups="stem.*")


def test_too_many_values_of_an_attribute(caplog):
    model, x = made(Flagged), images(2, [1, 3, 12, 12])

    def score():
        with paddle.no_grad():
            found = []
            for step in range(12):
                model.temperature = 1.0 + step / 8
                found.append(float(model(x).abs().mean()))
        model.temperature = 1.0
        return 1 + sum(found)

    assert_live_numbers(model, score, groups="stem.*")
    assert '"temperature" has another value' in " ".join(warnings_of(caplog))


class WriteOnly(Net):
    """Leaves something behind that it never reads, as PaddleDetection's networks do."""

    def __init__(self):
        super().__init__()
        self.height = None

    def between(self, x, h):
        self.inputs, self.height = {"image": x}, x.shape[2]
        return h * self.height


def test_what_is_only_written_is_no_obstacle():
    model = made(WriteOnly)
    evaluator = Closeness(batches((2, 12), (2, 14), (3, 12)))
    DygraphSensitivity(model, SHAPE).sensitive(evaluator, [0.5], progress=False, fast="on")


class Allocating(Net):
    """Makes so many objects that a garbage collection falls into its forward."""

    def between(self, x, h):
        return h * len([[number] for number in range(20_000)])


def test_what_a_garbage_collection_runs_is_no_part_of_the_forward():
    collected = []

    def clock(phase, info):
        collected.append(time.perf_counter())

    model = made(Allocating)
    gc.callbacks.append(clock)
    try:
        ds = DygraphSensitivity(model, SHAPE)
        ds.sensitive(Closeness(batches((2, 12))), [0.5], progress=False, fast="on")
    finally:
        gc.callbacks.remove(clock)
    assert collected
    assert gc.isenabled()


class Leaving(Net):
    """Leaves something behind that others may read."""

    def between(self, x, h):
        self.features = h
        return h


def test_what_is_left_for_others_is_there(caplog):
    model, x = made(Leaving), images(2, [1, 3, 12, 12])

    def score():
        with paddle.no_grad():
            return 1 + float(model(x).abs().mean()) + float(model.features.mean())

    assert_live_numbers(model, score)
    assert '"features"' in " ".join(warnings_of(caplog))


class SetOnce(Net):
    """Paddle's own layer notes its layout at the first call."""

    def __init__(self):
        super().__init__()
        self.up = nn.Upsample(scale_factor=2, mode="nearest")

    def between(self, x, h):
        return self.up(h)


def test_what_is_set_once_is_no_obstacle():
    evaluator = Closeness(batches((2, 12), (3, 12)))
    DygraphSensitivity(made(SetOnce), SHAPE).sensitive(evaluator, [0.5], progress=False, fast="on")


class Cached(Net):
    """Keeps what it computed for the first size, rightly or not."""

    def __init__(self):
        super().__init__()
        self.side = None

    def between(self, x, h):
        if self.side is None:
            self.side = x.shape[2]
        return h * self.side / 10


def test_what_is_set_once_by_size_is_run_live(caplog):
    model, sizes = made(Cached), (12, 18)
    data = [images(2, [1, 3, side, side]) for side in sizes]

    def score():
        with paddle.no_grad():
            return 1 + sum(float(model(x).abs().mean()) for x in data)

    assert_live_numbers(model, score)
    assert "runs the live model" in caplog.text


class Crossing(Net):
    """Writes for one size of batch what it reads for another."""

    def __init__(self):
        super().__init__()
        self.scale = 1.0

    def between(self, x, h):
        if x.shape[0] > 4:
            self.scale = 2.0
            return h
        return h * self.scale


def test_what_one_call_leaves_for_another(caplog):
    ds = DygraphSensitivity(made(Crossing), SHAPE)
    ds.sensitive(Closeness(batches((6, 12), (2, 12))), [0.5], progress=False)
    assert 'some calls read "scale", which others write' in caplog.text


def test_hooks_and_layers_that_come_during_an_evaluation():
    model, x = made(Net), images(2, [1, 3, 12, 12])

    def score():
        with paddle.no_grad():
            plain = float(model(x).abs().mean())
            handle = model.mid.register_forward_post_hook(lambda layer, inputs, outputs: outputs * 2)
            hooked = float(model(x).abs().mean())
            handle.remove()
        return 1 + plain + 3 * hooked

    assert_live_numbers(model, score)

    def replacing():
        own = model.mid
        with paddle.no_grad():
            plain = float(model(x).abs().mean())
            model.mid = nn.Sequential(own, nn.Tanh())
            other = float(model(x).abs().mean())
        model.mid = own
        return 1 + plain + 3 * other

    assert_live_numbers(model, replacing, groups="stem.*")


class BatchStatistics(Net):
    def between(self, x, h):
        return h / (h.mean(axis=0, keepdim=True) + 1)


class BatchMaximum(Net):
    """Only very bright samples tell in others."""

    def between(self, x, h):
        return h / (1 + F.relu(x.max() - 4.5))


class Sorted(Net):
    def between(self, x, h):
        return h + paddle.sort(x.mean(axis=[1, 2, 3]), axis=0).reshape([-1, 1, 1, 1])


@pytest.mark.parametrize("network", [BatchStatistics, BatchMaximum, Sorted])
def test_single_samples_that_depend_on_each_other_when_they_run_together(network):
    data = batches(*[(1, 12)] * 9)
    data[7] = data[7] * 3  # one that stands out, in a late chunk
    assert_live_numbers(made(network), Closeness(data), groups="mid.*")


class OtherWayAlone(Net):
    """One picture takes another way than several."""

    def between(self, x, h):
        return h if x.shape[0] > 1 else h * 0.2


@pytest.mark.parametrize("sizes", [(1, 2), (2, 1, 1), (1, 3, 1, 2), (3, 1)])
def test_batches_of_several_sizes_that_would_run_together(sizes):
    assert_live_numbers(made(OtherWayAlone), Closeness(batches(*[(size, 12) for size in sizes])))


class Carrying(Net):
    """Each batch depends on those before it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("average", paddle.zeros([1]))
        self.calls = 0

    def between(self, x, h):
        self.calls += 1
        self.average.set_value(0.5 * self.average + h.mean())
        return h * (1 + self.average + 0.1 * min(self.calls, 3))


@pytest.mark.parametrize("fast", ["off", "auto"])
def test_state_that_batches_leave_behind_is_that_of_the_evaluators_order(fast):
    model = made(Carrying)
    evaluator = Closeness(batches(*[(2, 12)] * 5))

    def score():
        with preserved(model), paddle.no_grad():
            model.eval()
            return evaluator.score([evaluator.measure(model(b[0]), b) for b in evaluator.batches()])

    ds = DygraphSensitivity(model, SHAPE)
    whole = score()
    found = ds.sensitive(evaluator, [0.5], progress=False, fast=fast)
    assert found.baseline == pytest.approx(whole, abs=1e-6)
    assert ds.groups
    for group in ds.groups:
        with ds.pruned({group.name: 0.5}):
            loss = (whole - score()) / (whole + 1e-3)
        assert found[group.name][0.5] == pytest.approx(loss, abs=1e-4)
    searched = ds.search(evaluator, 0.05, ratios=[0.25, 0.5], progress=False, fast=fast)
    assert all(group.share == 1 for group in searched.groups)  # no part of the data says what all of it does


class TestTraining:
    def tuned(self, model, optimizer=None):
        x = batches((4, 12))[0]

        def score():
            mine = optimizer or paddle.optimizer.Adam(0.05, parameters=model.parameters())
            model.train()
            for _ in range(5):
                model(x).square().mean().backward()
                mine.step()
                mine.clear_grad()
            model.eval()
            with paddle.no_grad():
                return 1 / (1 + float(model(x).square().mean()))

        return score

    @pytest.mark.parametrize("given", [True, False])
    def test_points_are_those_of_cut_models(self, given, caplog):
        model = made(Net)
        optimizer = paddle.optimizer.Adam(0.05, parameters=model.parameters()) if given else None
        ds = DygraphSensitivity(model, SHAPE, optimizer=optimizer)
        score = self.tuned(model, optimizer)
        before = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
        found = ds.sensitive(score, [0.75], progress=False)
        assert [line for line in warnings_of(caplog) if "really cut" in line]
        for name, tensor in model.state_dict().items():
            np.testing.assert_array_equal(tensor.numpy(), before[name])

        def once():
            with preserved(model, optimizer, gradients=True):
                isolate(model, optimizer)
                return score()

        whole = once()
        for group in ds.groups:
            with ds.pruned({group.name: 0.75}):
                loss = (whole - once()) / (whole + 1e-3)
            assert found[group.name][0.75] == pytest.approx(loss, abs=1e-4)

    def test_an_optimizer_that_nobody_was_told_of(self):
        model = made(Net)
        ds = DygraphSensitivity(model, SHAPE)
        score = self.tuned(model, paddle.optimizer.Adam(0.05, parameters=model.parameters()))
        with pytest.raises(ForwardError, match=r"really cut.*optimizer="):
            ds.sensitive(score, [0.75], progress=False)


def test_outputs_may_be_written_to():
    """As post-processing does, without no_grad."""
    model, x = made(Net), images(2, [1, 3, 12, 12])

    def score():
        out = model(x)
        out[out < 0] = 0.0
        out += 1
        return float(out.mean())

    ds = DygraphSensitivity(model, SHAPE)
    found = ds.sensitive(score, RATIOS, progress=False, fast="on")
    live = ds.sensitive(score, RATIOS, progress=False, fast="off")
    np.testing.assert_allclose(losses(found), losses(live), atol=SCORE)


USUAL = sys.getswitchinterval()


class Hidden(Net):
    """Depends on what nobody can watch."""

    def between(self, x, h):
        return h * (3.0 if sys.getswitchinterval() > USUAL else 1.0)


class Switching(Closeness):
    """Turns something on in the middle of the sweep."""

    def __init__(self, data, after):
        super().__init__(data)
        self._left = after

    def measure(self, outputs, batch):
        self._left -= 1
        if self._left == 0:
            sys.setswitchinterval(2 * USUAL)
        return super().measure(outputs, batch)


class TestSpotChecks:
    @pytest.fixture(autouse=True)
    def every_call(self, monkeypatch):
        monkeypatch.setattr(live_model, "_BUDGET", 1e9)
        monkeypatch.setattr(live_model, "_LARGEST_SHARE", 1.0)
        yield
        sys.setswitchinterval(USUAL)

    def test_what_a_wrong_copy_served_is_measured_again(self, tmp_path, caplog):
        journal, data = tmp_path / "s.jsonl", batches((4, 12), (4, 12))
        ds = DygraphSensitivity(made(Hidden), SHAPE)
        found = ds.sensitive(Switching(data, 9), RATIOS, sen_file=journal, progress=False)
        assert [line for line in warnings_of(caplog) if "measured again" in line]
        live = ds.sensitive(Closeness(data), RATIOS, progress=False, fast="off")  # still turned on
        for sens in (found, Sensitivities.load(journal)):
            assert sens.baseline == pytest.approx(live.baseline, abs=1e-7)
            np.testing.assert_allclose(losses(sens), losses(live), atol=1e-6)

    def test_by_a_function(self, caplog):
        model, evaluator = made(Hidden), Switching(batches((4, 12), (4, 12)), 9)
        ds = DygraphSensitivity(model, SHAPE)

        def score():
            with paddle.no_grad():
                return evaluator.score([evaluator.measure(model(x), [x]) for (x,) in evaluator.batches()])

        found = ds.sensitive(score, RATIOS, progress=False)
        assert [line for line in warnings_of(caplog) if "measured again" in line]
        live = ds.sensitive(score, RATIOS, progress=False, fast="off")
        np.testing.assert_allclose(losses(found), losses(live), atol=1e-6)

    def test_a_search_begins_again(self, tmp_path, caplog):
        journal, data = tmp_path / "s.jsonl", batches(*[(4, 12)] * 3)
        ds = DygraphSensitivity(made(Hidden), SHAPE)
        found = ds.search(Switching(data, 11), 0.1, sen_file=journal, progress=False, spot_checks=0)
        assert [line for line in warnings_of(caplog) if "measured again" in line]
        live = ds.sensitive(Closeness(data), progress=False, fast="off")
        assert found.baseline == pytest.approx(live.baseline, abs=1e-7)
        points = Sensitivities.load(journal).points
        assert points
        for point in points:
            assert point.loss == pytest.approx(live[point.param][point.ratio], abs=1e-6)

    def test_a_right_copy_stays(self, caplog):
        assert_live_numbers(made(Net), Closeness(batches((4, 12), (2, 12))))
        assert not warnings_of(caplog)


def test_a_share_of_calls_is_picked():
    picked = [live_model.SpotChecks(live_seconds=1.0, served_seconds=0.5) for _ in range(2)]
    calls = [[checks.due() for _ in range(3000)] for checks in picked]
    assert calls[0] == calls[1]
    assert sum(calls[0]) == 12


class Setting(Closeness):
    """Sets something in the model for each batch."""

    def __init__(self, data, model):
        super().__init__(data)
        self._model = model

    def arguments(self, batch):
        self._model.temperature = 1.0 if float(batch[0].mean()) > 0 else 4.0
        return super().arguments(batch)


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_an_evaluator_that_sets_attributes_for_its_batches(shift, caplog):
    """The same for all of them, and another for some."""
    model, data = made(Flagged), batches((2, 12), (2, 12), (2, 12))
    assert_live_numbers(model, Setting([x + shift for x in data], model), groups="stem.*")
    assert "sets attributes of the model" in caplog.text


def test_weights_that_change_between_two_points(caplog):
    """By an observer, say: the points that follow are those of the model as it is then."""
    model, found = made(Net), {}
    for fast in ("off", "auto"):
        before = model.head.bias.numpy().copy()
        ds = DygraphSensitivity(model, SHAPE)

        def change(point):
            model.head.bias.set_value(paddle.full([3], 2.0))

        evaluator = Closeness(batches((2, 12)))
        found[fast] = ds.sensitive(evaluator, RATIOS, progress=False, fast=fast, observer=change)
        model.head.bias.set_value(paddle.to_tensor(before))
    np.testing.assert_allclose(losses(found["auto"]), losses(found["off"]), atol=SCORE)
    assert "changed between two points" in caplog.text
