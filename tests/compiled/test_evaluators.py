"""Ready evaluators, and how their data are kept and run."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from networks import SHAPE, SmallNet, images, made
from states import assert_same, picture

from dysens import DygraphSensitivity
from dysens.compiled._batches import KeptBatches, chunked, size_of
from dysens.compiled._calls import packed_call
from dysens.errors import InputError
from dysens.evaluators import Evaluator, MetricEvaluator, UpdateEvaluator, evaluate


@pytest.fixture
def model():
    return made(SmallNet)


@pytest.fixture
def batches(model):
    """Labelled by the model itself, with every fourth label wrong."""
    found = []
    for seed in range(5):
        x = images(4, seed=seed)
        labels = model(x).argmax(axis=1).numpy()
        labels[0] = (labels[0] + 1) % 4
        found.append([x, paddle.to_tensor(labels.reshape(-1, 1))])
    return found


class Right:
    """Counts right answers; the plainest thing with update and compute."""

    def __init__(self):
        self.right = self.all = 0

    def update(self, outputs, batch):
        self.right += int((outputs.argmax(axis=1) == batch[1].flatten()).sum())
        self.all += len(batch[0])

    def compute(self):
        return self.right / self.all


def test_evaluate_leaves_the_model_as_found(model, batches):
    """In training but for a frozen layer, as a training loop that scores after every epoch has it."""
    model.train()
    model.stem.eval()
    before = picture(model)
    evaluate(model, UpdateEvaluator(batches, Right))
    assert model.training
    assert not model.stem.training
    assert_same(before, picture(model))


class TestMetricEvaluator:
    def test_scores_as_paddle_model_does(self, model, batches):
        metric = paddle.metric.Accuracy(topk=(1, 2))
        wrapped = paddle.Model(model)
        wrapped.prepare(metrics=paddle.metric.Accuracy(topk=(1, 2)))
        expected = wrapped.evaluate(batches, verbose=0)
        assert evaluate(model, MetricEvaluator(batches, metric)) == pytest.approx(expected["acc_top1"])
        assert evaluate(model, MetricEvaluator(batches, metric, index=1)) == pytest.approx(
            expected["acc_top2"]
        )

    def test_metric_of_two_values_and_own_state(self, model, batches):
        precision = paddle.metric.Precision()
        precision.update(np.array([1.0]), np.array([1]))
        binary = [[x, (y > 1).astype("int64")] for x, y in batches]
        evaluator = MetricEvaluator(binary, precision)

        class First(paddle.nn.Layer):
            def forward(self, x):
                return paddle.nn.functional.sigmoid(x.mean(axis=[1, 2, 3]).unsqueeze(1))

        assert 0 < evaluate(First(), evaluator) < 1
        assert precision.accumulate() == 1.0, "the metric that was handed in is not touched"

    def test_measurements_can_be_scored_in_parts(self, model, batches):
        evaluator = MetricEvaluator(batches, paddle.metric.Accuracy())
        measured = [evaluator.measure(model(*evaluator.arguments(b)), b) for b in evaluator.batches()]
        assert evaluator.score(measured) == pytest.approx(0.75)
        assert evaluator.score(measured) == evaluator.score(measured[::-1])
        assert evaluator.score(measured[:1]) == pytest.approx(0.75)

    def test_labels_and_arguments(self):
        batch = ["a", "b", "c", "d"]
        evaluator = MetricEvaluator([batch], paddle.metric.Accuracy(), labels=2)
        assert evaluator.arguments(batch) == ("a", "b")

    def test_name_says_which_metric(self):
        assert (
            MetricEvaluator([[1]], paddle.metric.Accuracy(topk=(1, 5)), index=1).name == "Accuracy acc_top5"
        )
        assert MetricEvaluator([[1]], paddle.metric.Accuracy(), name="mine").name == "mine"

    def test_bad_input_is_said(self):
        with pytest.raises(InputError, match="UpdateEvaluator"):
            MetricEvaluator([[1]], Right())
        with pytest.raises(InputError, match="only once"):
            MetricEvaluator((b for b in [[1]]), paddle.metric.Accuracy())
        with pytest.raises(InputError, match="has to give batches"):
            MetricEvaluator(7, paddle.metric.Accuracy())


class TestUpdateEvaluator:
    def test_scores_by_update_and_compute(self, model, batches):
        evaluator = UpdateEvaluator(batches, Right)
        assert evaluate(model, evaluator) == pytest.approx(0.75)
        assert evaluator.name == "Right"

    def test_keep_makes_measurements_small(self, model, batches):
        small = UpdateEvaluator(
            batches, Right, keep=lambda outputs, batch: (outputs, [batch[0][:, 0, 0, 0], batch[1]])
        )
        measured = [small.measure(model(*small.arguments(b)), b) for b in small.batches()]
        assert size_of(measured) < size_of(batches) / 10
        assert small.score(measured) == pytest.approx(0.75)

    def test_other_arguments(self, model, batches):
        as_dicts = [{"image": x, "label": y} for x, y in batches]

        class RightOfDict(Right):
            def update(self, outputs, batch):
                super().update(outputs, [batch["image"], batch["label"]])

        evaluator = UpdateEvaluator(as_dicts, RightOfDict, arguments=lambda batch: (batch["image"],))
        assert evaluate(model, evaluator) == pytest.approx(0.75)

    def test_bad_input_is_said(self):
        with pytest.raises(InputError, match="has no update and no compute"):
            UpdateEvaluator([[1]], list)
        with pytest.raises(InputError, match="such as its class does"):
            UpdateEvaluator([[1]], Right())


def test_a_sweep_gives_what_a_function_gives(model, batches):
    ds = DygraphSensitivity(model, SHAPE)
    evaluator = MetricEvaluator(batches, paddle.metric.Accuracy())

    def accuracy():
        model.eval()
        return evaluate(model, evaluator)

    one = ds.sensitive(evaluator, ratios=[0.3, 0.6], progress=False)
    other = ds.sensitive(accuracy, ratios=[0.3, 0.6], progress=False)
    assert one.to_dict() == other.to_dict()
    assert one.baseline == other.baseline == pytest.approx(0.75)


class Counting:
    """A loader that says how often it was read."""

    def __init__(self, batches):
        self.batches = batches
        self.reads = 0

    def __call__(self):
        self.reads += 1
        return iter(self.batches)


class TestKeptBatches:
    data = tuple(np.full([256], number, "float32") for number in range(6))  # 1 KiB each

    def test_what_fits_is_read_once(self):
        read = Counting(self.data)
        kept = KeptBatches(read, cache_gib=1)
        for _ in range(3):
            assert [(n, int(b[0])) for n, b in kept] == [(n, n) for n in range(6)]
        assert read.reads == 1
        assert kept.complete
        assert len(kept) == 6

    @pytest.mark.parametrize(("kib", "expected"), [(0, 0), (2.5, 2), (6, 6)])
    def test_the_rest_is_read_again(self, kib, expected):
        read = Counting(self.data)
        kept = KeptBatches(read, cache_gib=kib / 2**20)
        for _ in range(3):
            assert [int(b[0]) for _, b in kept] == list(range(6))
        assert len(kept.kept) == expected
        assert read.reads == (1 if expected == 6 else 3)

    def test_a_pass_that_was_broken_off_counts_for_nothing(self):
        kept = KeptBatches(lambda: iter(self.data), cache_gib=1)
        next(iter(kept))
        assert [int(b[0]) for _, b in kept] == list(range(6))

    def test_a_loader_that_changes_is_told(self):
        growing = list(self.data)
        kept = KeptBatches(lambda: iter(growing), cache_gib=0)
        list(kept)
        growing.pop()
        with pytest.raises(InputError, match="6 batches at first and 5"):
            list(kept)

    def test_a_shuffling_loader_is_told_when_it_matters(self):
        loader = paddle.io.DataLoader(self.data, batch_size=2, shuffle=True)
        kept = KeptBatches(lambda: loader, cache_gib=1)
        assert len(list(kept)) == len(list(kept)) == 3
        kept = KeptBatches(lambda: loader, cache_gib=0)
        list(kept)
        with pytest.raises(InputError, match="shuffle=False"):
            list(kept)

    def test_nothing_and_nonsense(self):
        with pytest.raises(InputError, match="no batches"):
            list(KeptBatches(lambda: []))
        for nonsense in (-1, "2", True, float("nan")):
            with pytest.raises(InputError, match="cache_gib"):
                KeptBatches(list, nonsense)


class TestChunks:
    def calls(self, *shapes):
        return [(n, packed_call((images(s[0], [1, *s[1:]], seed=n),), {})) for n, s in enumerate(shapes)]

    def test_equal_shapes_run_together(self):
        calls = self.calls(*[(1, 3, 8, 8)] * 10, *[(1, 3, 4, 8)] * 3)
        chunks = chunked(calls, stack=True)
        assert sorted(n for chunk in chunks for n in chunk.members) == list(range(13))
        assert sorted(len(chunk.members) for chunk in chunks) == [2, 3, 4, 4]
        for chunk in chunks:
            parts = chunk.split({"same": chunk.call.tensors[0] * 2, "none": None})
            for number, part in zip(chunk.members, parts):
                assert np.array_equal(part["same"].numpy(), 2 * calls[number][1].tensors[0].numpy())
                assert part["none"] is None

    def test_large_batches_stay_alone(self):
        chunks = chunked(self.calls(*[(8, 3, 4, 4)] * 3), stack=True)
        assert [len(chunk.members) for chunk in chunks] == [1, 1, 1]

    def test_the_order_is_random_but_fixed(self):
        calls = self.calls(*[(8, 3, 4, 4)] * 12)
        first = [chunk.members for chunk in chunked(calls, stack=True)]
        assert first == [chunk.members for chunk in chunked(calls, stack=True)]
        assert first != sorted(first)


class Means(Evaluator):
    """The mean of outputs per batch; remembers the batches that it was asked to measure."""

    name = "means"

    def __init__(self, shapes):
        self._batches = [[images(s[0], [1, *s[1:]], seed=n)] for n, s in enumerate(shapes)]

    def batches(self):
        return self._batches

    def measure(self, outputs, batch):
        assert len(outputs) == len(batch[0])
        return float(outputs.abs().mean())

    def score(self, measurements):
        return float(np.mean(measurements))


@pytest.mark.parametrize("cache", [0, 1e-5, 1])
def test_numbers_do_not_depend_on_the_cache(model, cache):
    evaluator = Means([(1, 3, 16, 16)] * 5 + [(2, 3, 24, 16)] * 3 + [(3, 3, 16, 16)])
    ds = DygraphSensitivity(model, SHAPE)
    found = ds.sensitive(evaluator, ratios=[0.5], progress=False, fast="on", cache_gib=cache)
    live = ds.sensitive(evaluator, ratios=[0.5], progress=False, fast="off")
    for name, curve in live.items():
        assert found[name][0.5] == pytest.approx(curve[0.5], abs=1e-4)
