"""The compiled copy says what the live model says, or does not serve and says why."""

from __future__ import annotations

import logging
import signal
import tracemalloc
from functools import partial

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from interrupting import interrupts_raise
from networks import SHAPE, ConvBN, DictNet, SmallNet, TextNet, images, made
from paddle import nn
from states import assert_same, picture

from dysens import DygraphSensitivity
from dysens.compiled import _forward as fast_forward
from dysens.compiled._watch import WeightWatch
from dysens.errors import ForwardError, InputError
from dysens.evaluators import Evaluator

RATIOS = [0.25, 0.6]
SCORE = 1e-4  # how far scores of order 1 may lie apart; every ratio here moves them by more


def size_of_outputs(model, *sizes, rows=2):
    """A score that every channel has a part in: how large the outputs are, for images of several sizes."""
    data = [images(rows, [1, 3, *size], seed=n) for n, size in enumerate(sizes or [(16, 16)])]

    def score():
        with paddle.no_grad():
            return float(np.mean([np.abs(model(x).numpy()).mean() for x in data]))

    return score


def losses(sens):
    return np.array([loss for curve in sens.values() for loss in curve.values()])


def assert_same_numbers(model, shape, score, groups=None):
    """A sweep served by a copy (it would raise otherwise) against one by the live model."""
    ds = DygraphSensitivity(model, shape)
    fast = ds.sensitive(score, RATIOS, target_vars=groups, progress=False, fast="on")
    live = ds.sensitive(score, RATIOS, target_vars=groups, progress=False, fast="off")
    assert fast.baseline == pytest.approx(live.baseline, abs=SCORE)
    np.testing.assert_allclose(losses(fast), losses(live), atol=SCORE)
    assert np.abs(losses(live)).max() > 100 * SCORE


class Upsampler(nn.Layer):
    """As DB's head: transposed convolutions, one with a batch norm behind it, one without."""

    def __init__(self):
        super().__init__()
        self.first = ConvBN(3, 8, stride=2)
        self.up = nn.Conv2DTranspose(8, 12, 2, 2)
        self.norm = nn.BatchNorm2D(12)
        self.last = nn.Conv2DTranspose(12, 2, 2, 2)
        for layer in (self.up, self.last):
            layer.bias.set_value(paddle.linspace(0.5, 1.5, layer.bias.shape[0]))

    def forward(self, x):
        return F.sigmoid(self.last(F.relu(self.norm(self.up(self.first(x))))))


class TestSameNumbers:
    @pytest.mark.parametrize("network", [SmallNet, TextNet])
    def test_by_a_function(self, network):
        model = made(network)
        assert_same_numbers(model, SHAPE, size_of_outputs(model))

    def test_transposed_convolutions(self):
        """Their bias is added in another way in the copy; with and without batch norm behind it."""
        before = F.conv2d_transpose
        model = made(Upsampler)
        assert_same_numbers(model, SHAPE, size_of_outputs(model))
        assert F.conv2d_transpose is before

    def test_sizes_that_vary(self):
        model = made(SmallNet)
        assert_same_numbers(model, SHAPE, size_of_outputs(model, (16, 16), (24, 16), (16, 32), (20, 20)))

    def test_structure_of_outputs(self):
        model = made(DictNet)
        data = {"image": images(2), "more": {"mask": images(2, [1, 1, 16, 16])}}

        def score():
            found = model(data, scale=2.0)
            assert list(found) == ["maps", "boxes", "number"]
            assert found["boxes"] is None
            assert found["number"] == 7
            assert isinstance(found["maps"], list)
            maps, total = found["maps"]
            assert float(total) == pytest.approx(float(maps.sum()), abs=1e-2)
            return float(maps.abs().mean())

        assert_same_numbers(model, (data,), score)

    def test_weights_changed_between_two_sweeps(self):
        model = made(SmallNet)
        score = size_of_outputs(model)
        ds = DygraphSensitivity(model, SHAPE)
        first = ds.sensitive(score, [0.5], progress=False, fast="on")
        for tensor in model.parameters():
            tensor.set_value(tensor * 1.2)
        second = ds.sensitive(score, [0.5], progress=False, fast="on")
        assert second.baseline == pytest.approx(score(), abs=SCORE)
        assert abs(second.baseline - first.baseline) > 100 * SCORE

    def test_under_mixed_precision(self):
        """What the function switches on around the model holds for the copy, or the live model runs."""
        model = made(SmallNet)
        plain = size_of_outputs(model)

        def score():
            with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
                return plain()

        ds = DygraphSensitivity(model, SHAPE)
        fast = ds.sensitive(score, [0.5], progress=False, fast="auto")
        live = ds.sensitive(score, [0.5], progress=False, fast="off")
        np.testing.assert_allclose(losses(fast), losses(live), atol=0.02)


class Upsampling(nn.Layer):
    """Every way to interpolate that detectors use, also to the size of another map."""

    def __init__(self):
        super().__init__()
        self.stem, self.deep, self.head = ConvBN(3, 8), ConvBN(8, 8, stride=2), nn.Conv2D(8, 2, 1)

    def forward(self, x):
        x = self.stem(x)
        low = self.deep(x)
        to_size = {"size": x.shape[2:]}
        return self.head(
            x
            + F.interpolate(low, scale_factor=2, mode="nearest")
            + F.interpolate(low, mode="bilinear", **to_size)
            + F.interpolate(low, mode="bicubic", align_corners=True, **to_size)
            + nn.Upsample(scale_factor=[2, 2], mode="nearest")(low)
            + F.interpolate(low, mode="nearest", **to_size)
        )


class Fractional(Upsampling):
    def forward(self, x):
        return self.head(F.interpolate(self.stem(x), scale_factor=1.5, mode="nearest"))


def test_interpolation():
    """Paddle 3.3's predictor refuses these ops as they are."""
    model = made(Upsampling)
    assert_same_numbers(model, SHAPE, size_of_outputs(model, (16, 16), (24, 32)))


class Answers(Evaluator):
    """Counts how often the masked model agrees with the whole one."""

    name = "answers"

    def __init__(self, model, sizes):
        inputs = [images(n, [1, 3, s, s], seed=n) for n, s in sizes]
        self._batches = [[x, model(x).argmax(axis=1).numpy()] for x in inputs]

    def batches(self):
        return self._batches

    def measure(self, outputs, batch):
        return (outputs.argmax(axis=1).numpy() == batch[1]).tolist()

    def score(self, measurements):
        return float(np.concatenate(measurements).mean())


def test_by_an_evaluator():
    model = made(SmallNet)
    evaluator = Answers(model, [(6, 16), (1, 16), (1, 24), (2, 24), (30, 16)])
    assert_same_numbers(model, SHAPE, evaluator)


def test_the_live_layer_with_masks_as_on_a_gpu():
    """Where there is no copy, the weights themselves are masked: what cutting the channels out gives."""
    model = made(SmallNet)
    evaluator = Answers(model, [(40, 16)])
    ds = DygraphSensitivity(model, SHAPE)
    sens = ds.sensitive(evaluator, [0.5], progress=False, fast="off")
    for name, curve in sens.items():
        with ds.pruned({name: 0.5}):
            cut = evaluator.score([evaluator.measure(model(b[0]), b) for b in evaluator.batches()])
        assert curve[0.5] == pytest.approx((1 - cut) / 1.001, abs=1e-6)


RUNS = logging.getLogger("runs")
RUNS.setLevel(logging.DEBUG)
RUNS.propagate = False


class Counted(SmallNet):
    """Says when its own forward runs; to a logger, since no copy serves a forward that is seen to count."""

    def forward(self, x):
        RUNS.debug("run")
        return super().forward(x)


class _Counting(logging.Handler):
    def __init__(self):
        super().__init__()
        self.runs = 0

    def emit(self, record):
        self.runs += 1


def forwards_of(action):
    """How often the forward of a `Counted` runs meanwhile, and what the action returns."""
    counting = _Counting()
    RUNS.addHandler(counting)
    try:
        found = action()
    finally:
        RUNS.removeHandler(counting)
    return counting.runs, found


def test_who_runs():
    model = made(Counted)
    ds = DygraphSensitivity(model, SHAPE)

    def sweep(fast):
        return ds.sensitive(size_of_outputs(model), [0.2, 0.5, 0.7], progress=False, fast=fast)

    (live, sens), (served, _) = (forwards_of(partial(sweep, fast)) for fast in ("off", "on"))
    assert live == len(sens.points) + 2  # the whole model too, and once to count its FLOPs
    assert served < 8  # only to trace and to compare


class Outside(SmallNet):
    """Looks at values in Python."""

    def forward(self, x):
        return super().forward(
            paddle.to_tensor(np.frombuffer(x.numpy().tobytes(), "float32").reshape(x.shape))
        )


class Strange(SmallNet):
    def forward(self, x):
        return [super().forward(x), object()]


class Hooked(SmallNet):
    def __init__(self):
        super().__init__()
        self.point.register_forward_post_hook(lambda layer, inputs, outputs: outputs * 2)


def in_training_mode(model):
    score = size_of_outputs(model)

    def trains():
        model.train()
        paddle.seed(3)
        return score()

    return trains


def changing_weights(model):
    """As one does who scores the moving average of the weights."""
    score = size_of_outputs(model)

    def swaps():
        model.fc.bias.set_value(model.fc.bias + 1.0)
        return score()

    return swaps


def training_a_step(model):
    score, x = size_of_outputs(model), images(2)

    def steps():
        """Without training mode, as one does whose batch norms are frozen."""
        optimizer = paddle.optimizer.SGD(0.01, parameters=model.parameters())
        before = score()
        model(x).square().mean().backward()
        assert model.fc.weight.grad is not None
        optimizer.step()
        optimizer.clear_grad()
        return before + score()

    return steps


def first_of_outputs(model):
    x = images(2)
    return lambda: float(model(x)[0].abs().mean())


UNSERVABLE = [
    (Outside, size_of_outputs, "turns a tensor into a Python value by numpy"),
    (Strange, first_of_outputs, "a object beside the tensors"),
    (Hooked, size_of_outputs, "layers inside the model have hooks"),
    (SmallNet, in_training_mode, "in training mode"),
    (SmallNet, changing_weights, "changes weights or statistics"),
    (SmallNet, training_a_step, "computes gradients"),
]


@pytest.mark.parametrize(("network", "scoring", "why"), UNSERVABLE)
class TestFallback:
    def test_one_warning_says_why_and_the_numbers_are_the_live_ones(
        self, network, scoring, why, caplog, monkeypatch
    ):
        # No forward is quick: "auto" compiles at the first call, and does not leave a toy alone for some seconds.
        monkeypatch.setattr(fast_forward, "_QUICK_FORWARD_SECONDS", 0.0)
        model = made(network)
        score = scoring(model)
        ds = DygraphSensitivity(model, SHAPE)
        before = picture(model)
        auto = ds.sensitive(score, RATIOS, target_vars="point.*", progress=False)
        warnings = [
            record.getMessage()
            for record in caplog.records
            if record.name.startswith("dysens.compiled") and "came back to life" not in record.getMessage()
        ]
        live = ds.sensitive(score, RATIOS, target_vars="point.*", progress=False, fast="off")
        np.testing.assert_allclose(losses(auto), losses(live), atol=SCORE)
        assert len(warnings) == 1
        assert "runs the live model" in warnings[0]
        assert why in warnings[0]
        assert_same(before, picture(model))

    def test_on_raises(self, network, scoring, why):
        model = made(network)
        score = scoring(model)
        ds = DygraphSensitivity(model, SHAPE)
        before = picture(model)
        with pytest.raises(ForwardError, match=why):
            ds.sensitive(score, RATIOS, target_vars="point.*", progress=False, fast="on")
        assert_same(before, picture(model))


@pytest.mark.skipif(not paddle.__version__.startswith("2."), reason="3.x computes this one right")
def test_a_copy_that_differs_does_not_serve(caplog):
    """oneDNN in Paddle 2.6 takes other pixels than Paddle does; OpenVINO takes the same."""
    model = made(Fractional)
    DygraphSensitivity(model, SHAPE).sensitive(size_of_outputs(model), RATIOS, progress=False, fast="paddle")
    assert "outputs of the compiled copy differ by" in caplog.text
    assert_same_numbers(model, SHAPE, size_of_outputs(model))


def test_toys_are_left_alone_without_a_word(caplog, monkeypatch):
    for bound in ("_QUICK_FORWARD_SECONDS", "_PATIENCE_SECONDS"):  # a toy on the slowest machine, too
        monkeypatch.setattr(fast_forward, bound, 600.0)
    model = made(Counted)
    ds = DygraphSensitivity(model, SHAPE)
    ran, sens = forwards_of(lambda: ds.sensitive(size_of_outputs(model), RATIOS, progress=False))
    assert ran >= len(sens.points)
    assert not [record for record in caplog.records if record.name.startswith("dysens")]


@pytest.mark.parametrize("fast", ["yes", None, True])
def test_other_choices_are_refused(fast):
    model = made(SmallNet)
    with pytest.raises(InputError, match='"auto", "on", "off", "paddle" or "openvino"'):
        DygraphSensitivity(model, SHAPE).sensitive(size_of_outputs(model), RATIOS, fast=fast)


@pytest.mark.parametrize("blow", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("at", [1, 3])
def test_left_as_found_when_broken_off(blow, at):
    model = made(SmallNet)
    model.train()
    score = size_of_outputs(model)
    calls = []

    def breaks():
        model.eval()
        found = score()
        calls.append(found)
        if len(calls) == at:
            if blow is KeyboardInterrupt:
                signal.raise_signal(signal.SIGINT)
            raise ValueError("the data set is gone")
        return found

    ds = DygraphSensitivity(model, SHAPE)
    before = picture(model)
    with interrupts_raise(), pytest.raises(blow):
        ds.sensitive(breaks, RATIOS, progress=False, fast="on")
    assert_same(before, picture(model))
    assert "forward" not in model.__dict__
    assert calls[0] == pytest.approx(_score_in_eval_mode(model, score), abs=SCORE)


def _score_in_eval_mode(model, score):
    model.eval()
    return score()


def test_a_forward_of_its_own_comes_back():
    model = made(SmallNet)
    plain = model.forward
    model.forward = own = lambda x: plain(x) * 3
    score = size_of_outputs(model)
    expected = score()
    sens = DygraphSensitivity(model, SHAPE).sensitive(score, RATIOS, progress=False, fast="on")
    assert sens.baseline == pytest.approx(expected, rel=1e-4)
    assert model.forward is own


class TestWeightWatch:
    @pytest.fixture
    def model(self):
        return made(SmallNet)

    def test_what_only_reads_is_no_change(self, model):
        watch = WeightWatch(model)
        model(images())
        model.state_dict()
        assert not watch.changed()

    @pytest.mark.parametrize(
        "change",
        [
            lambda model: model.point.weight.set_value(model.point.weight * 1.0001),
            lambda model: paddle.assign(model.point.bias + 1.5, model.point.bias),
            lambda model: setattr(model.point, "weight", model.create_parameter([16, 8, 1, 1])),
            lambda model: (model.train(), model(images())),  # the statistics of batch norms
            lambda model: model.set_state_dict({k: v + 1 for k, v in model.state_dict().items()}),
        ],
    )
    def test_changes(self, model, change):
        watch, other = WeightWatch(model), WeightWatch(model)
        change(model)
        later = WeightWatch(model)
        assert watch.changed()
        assert other.changed()
        assert not later.changed()

    def test_each_watch_remembers_what_it_saw(self, model):
        """Those that saw the same bytes hold them together; one that comes after a change holds others."""
        before = model.point.bias.numpy().copy()
        first = WeightWatch(model)
        model.point.bias.set_value(before + 1)
        second = WeightWatch(model)
        assert (first.changed(), second.changed()) == (True, False)
        model.point.bias.set_value(before)
        assert (first.changed(), second.changed()) == (False, True)

    def test_several_hold_the_weights_once(self):
        model = paddle.nn.Linear(1500, 1500)
        tracemalloc.start()
        try:
            watches = [WeightWatch(model) for _ in range(4)]
            held, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(watches) == 4
        assert 1 <= held / (4 * 1500**2) < 1.5
        assert most / (4 * 1500**2) < 2.5  # one more is made for each comparison

    def test_a_change_in_any_piece_is_seen(self, model, monkeypatch):
        monkeypatch.setattr("dysens.compiled._watch._AT_ONCE", 100)
        weights = model.point.weight.numpy()
        for place in range(0, weights.size, 17):
            watch = WeightWatch(model)
            changed = weights.copy()
            changed.flat[place] += 1
            model.point.weight.set_value(changed)
            assert watch.changed()
