"""`ds.compress`: from data and a budget to a cut that was measured as a whole."""

from __future__ import annotations

import logging
from html import escape

import numpy as np
import paddle
import pytest
from paddle import nn

from dysens import DygraphSensitivity, load_pruned, save_pruned
from dysens.compress import CompressOutcome
from dysens.compress._samples import read_samples
from dysens.errors import InputError, UnreachableError
from dysens.evaluators import Evaluator
from dysens.model import view_of
from tests import networks
from tests.networks import made
from tests.states import assert_same, picture

SHAPE = [2, 3, 16, 16]


def images(number: int = 4, size: int = 6, shape=(3, 16, 16), seed: int = 0) -> list[paddle.Tensor]:
    random = np.random.default_rng(seed)
    return [paddle.to_tensor(random.standard_normal([size, *shape]).astype("float32")) for _ in range(number)]


class Likeness(Evaluator):
    """1 for the outputs of the whole network, less the further they are from them."""

    name = "likeness"

    def __init__(self, model, data, falls: float = 1.0) -> None:
        self._data = data
        self._falls = falls
        self._whole = [self._flat(model(batch)) for batch in data]
        self.scored = 0

    def batches(self):
        return list(enumerate(self._data))

    def arguments(self, batch):
        return (batch[1],)

    def measure(self, outputs, batch):
        whole = self._whole[batch[0]]
        ours = self._flat(outputs)
        return float(np.square(ours - whole).sum()), float(np.square(whole - whole.mean()).sum())

    def score(self, measurements):
        self.scored += 1
        apart, varies = np.sum(measurements, axis=0)
        return max(1 - self._falls * float(apart / varies), 1e-3)

    @staticmethod
    def _flat(outputs):
        return outputs.numpy().ravel()


@pytest.fixture
def small():
    model = made(networks.SmallNet, width=16)
    return model, DygraphSensitivity(model, SHAPE)


@pytest.mark.parametrize("name", ["SmallNet", "TextNet", "ResNeXtBlock", "ShuffleNet", "Unequal"])
@pytest.mark.parametrize("budget", ["flops", "params"])
def test_a_budget_is_met_the_outcome_tells_and_restore_is_exact(name, budget, caplog):
    model = made(getattr(networks, name))
    ds = DygraphSensitivity(model, SHAPE)
    before = picture(model)
    whole = images(1, 8, seed=9)
    outputs = model(whole[0]).numpy()
    outcome = ds.compress(images(), align=None, progress=False, **{budget: 0.3})
    left = {
        "flops": outcome.flops_after / outcome.flops_before,
        "params": outcome.params_after / outcome.params_before,
    }
    assert left[budget] <= 0.7
    assert outcome.proof < 1e-4
    in_sequence = [t.output_error / 0.75 for t in outcome.tried if "sequence" in t.allocation]
    others = [t.output_error for t in outcome.tried if "sequence" not in t.allocation]
    won = outcome.output_error / (0.75 if "sequence" in outcome.allocation else 1.0)
    assert won == pytest.approx(min(in_sequence + others), rel=1e-2, abs=1e-6)
    assert {t.budget for t in outcome.tried} == {0.3}
    assert all(after < channels for _, _, channels, after in outcome.widths)
    ours = model(whole[0]).numpy()
    assert ours.shape == outputs.shape
    text = str(outcome)
    assert all(
        word in text
        for word in ("FLOPs", "parameters", "output error", "milliseconds", outcome.allocation, "seconds")
    )
    assert "<table" in outcome._repr_html_()
    ds.restore()
    assert_same(before, picture(model))
    np.testing.assert_array_equal(model(whole[0]).numpy(), outputs)


def test_it_beats_the_same_budget_cut_by_norms(small):
    model, ds = small
    unseen = images(1, 16, seed=7)[0]
    whole = model(unseen).numpy()

    def error():
        return float(np.square(model(unseen).numpy() - whole).sum() / np.square(whole - whole.mean()).sum())

    with ds.compressed(images(), flops=0.5, align=None, progress=False) as outcome:
        ours = error()
        ratios = outcome.ratios
    with ds.pruned(ratios):
        assert ours < 0.1 * error()


def test_errors_of_layers_that_make_outputs_count_more(monkeypatch):
    """Two blocks alike, of which the second is read by the layer that makes the output: the first gives more."""
    paddle.seed(3)
    model = nn.Sequential(
        nn.Conv2D(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2D(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2D(32, 4, 3, padding=1),
    )
    model.eval()

    def kept_last() -> int:
        ds = DygraphSensitivity(model, [1, 3, 16, 16])
        with ds.compressed(images(), flops=0.3, align=1, progress=False) as outcome:
            return {path: after for _, path, _, after in outcome.widths}.get("2.weight", 32)

    counted = kept_last()
    monkeypatch.setattr("dysens.compress._compress._AT_OUTPUTS", 1.0)
    assert counted > kept_last()


def test_widths_are_multiples_of_the_alignment(small):
    _, ds = small
    outcome = ds.compress(images(), flops=0.3, align=4, progress=False)
    assert outcome.widths
    assert all(after % 4 == 0 for *_, after in outcome.widths)


def test_the_context_manager_leaves_the_model_as_found(small):
    model, ds = small
    before = picture(model)
    with ds.compressed(images(), flops=0.3, progress=False) as outcome:
        assert isinstance(outcome, CompressOutcome)
        assert outcome.flops_after < outcome.flops_before
    assert_same(before, picture(model))
    with pytest.raises(ZeroDivisionError), ds.compressed(images(), flops=0.3, progress=False):
        _ = 1 / 0
    assert_same(before, picture(model))
    ds.compress(images(), flops=0.3, progress=False)  # nothing is left that would forbid it


def test_skipped_and_targeted_groups(small):
    _, ds = small
    outcome = ds.compress(images(), flops=0.1, align=None, skip_vars=["stem.*"], progress=False)
    assert "stem.0.weight" not in [path for _, path, *_ in outcome.widths]
    ds.restore()
    outcome = ds.compress(images(), flops=0.05, align=None, target_vars=["point.weight"], progress=False)
    assert [path for _, path, *_ in outcome.widths] == ["point.weight"]


def test_the_result_is_saved_and_rebuilt(small, tmp_path):
    model, ds = small
    unseen = images(1, 4, seed=7)[0]
    ds.compress(images(), flops=0.4, align=None, progress=False)
    expected = model(unseen).numpy()
    save_pruned(model, tmp_path / "small")
    again = made(networks.SmallNet, width=16, seed=3)
    load_pruned(again, tmp_path / "small")
    again.eval()
    np.testing.assert_array_equal(again(unseen).numpy(), expected)


# Scores


def test_an_evaluator_as_data_scores_too(small):
    model, ds = small
    outcome = ds.compress(Likeness(model, images()), flops=0.3, align=None, progress=False)
    assert outcome.score_before == 1
    assert 0 < outcome.score_after < 1
    assert "score" in str(outcome)
    ds.restore()
    with ds.compressed(images(), flops=0.3, align=None, progress=False, evaluator=lambda: 0.5) as outcome:
        assert (outcome.score_before, outcome.score_after) == (0.5, 0.5)


def test_the_best_score_wins_not_the_nearest_outputs(small):
    """Scores count up with every cut that is scored, so the last one scored is the best."""
    _, ds = small
    asked = []

    def rising():
        asked.append(1)
        return 0.5 + 0.01 * len(asked)

    outcome = ds.compress(images(), flops=0.3, align=None, progress=False, evaluator=rising)
    scored = [trial for trial in outcome.tried if trial.score is not None]
    assert len(scored) == len(asked) - 1 > 1
    assert outcome.score_after == max(trial.score for trial in scored)
    won = max(scored, key=lambda trial: trial.score)
    assert outcome.allocation == won.allocation
    nearest = min(scored, key=lambda trial: trial.output_error)
    assert won.output_error > nearest.output_error
    # It is said why, and which one comes nearer.
    assert outcome.reason in str(outcome)
    assert outcome.reason.startswith(f'"{won.allocation}" was taken for the best score ({won.score:.4g} by')
    assert f"of the {len(scored)} cuts" in outcome.reason
    assert f'"{nearest.allocation}" has an error of {nearest.output_error:.3g}' in outcome.reason
    assert outcome.reason.endswith(f"scores {nearest.score:.4g}.")


def test_equal_scores_are_not_said_to_decide(small):
    """What is folded in sequence stays behind unless it is a quarter better, also among equals."""
    _, ds = small
    reasons = []
    for flops in (0.2, 0.3, 0.4, 0.5, 0.6):
        with ds.compressed(
            images(), flops=flops, align=None, progress=False, evaluator=lambda: 0.5
        ) as outcome:
            reasons.append(outcome.reason)
    assert not any("but scores" in reason for reason in reasons)
    assert any("scores the same, which would have to be smaller by a quarter" in each for each in reasons)


def test_without_scores_it_is_said_that_the_outputs_decided(small):
    _, ds = small
    outcome = ds.compress(images(), flops=0.3, align=None, progress=False)
    assert outcome.reason.startswith(f'"{outcome.allocation}" was taken for the smallest output error')
    (won,) = (trial for trial in outcome.tried if trial.allocation == outcome.allocation)
    assert f"({won.output_error:.3g})" in outcome.reason
    assert outcome.reason in str(outcome)
    assert escape(outcome.reason) in outcome._repr_html_()


def test_it_backs_off_when_the_score_falls_too_far(small, caplog):
    model, ds = small
    strict = Likeness(model, images(seed=2), falls=300.0)
    with ds.compressed(images(), flops=0.5, align=None, evaluator=strict, progress=False) as outcome:
        loss = (1 - outcome.score_after) / 1.001
        assert loss > 0.05
    caplog.clear()
    outcome = ds.compress(images(), flops=0.5, max_loss=0.05, align=None, evaluator=strict, progress=False)
    assert (1 - outcome.score_after) / 1.001 <= 0.05
    assert 0 < 1 - outcome.flops_after / outcome.flops_before < 0.5
    assert any("max_loss" in note for note in outcome.notes)
    assert "max_loss" in caplog.text
    assert strict.score([strict.measure(model(b[1]), b) for b in strict.batches()]) == pytest.approx(
        outcome.score_after, abs=1e-3
    )


def test_as_much_as_a_loss_allows(small):
    model, ds = small
    outcome = ds.compress(
        Likeness(model, images(seed=2), falls=30.0), max_loss=0.1, align=None, progress=False
    )
    assert (1 - outcome.score_after) / 1.001 <= 0.1
    assert 1 - outcome.flops_after / outcome.flops_before > 0.05


def test_a_ruined_score_is_said_aloud_with_a_budget_that_holds(small, caplog):
    model, ds = small
    with caplog.at_level(logging.WARNING, "dysens"):
        outcome = ds.compress(
            Likeness(model, images(seed=2), falls=100.0), flops=0.8, align=None, progress=False
        )
    assert (1 - outcome.score_after) > 0.2
    assert any("largest budget" in note for note in outcome.notes)
    assert "loses" in caplog.text


def test_nothing_is_cut_when_every_cut_loses_too_much(small):
    model, ds = small
    before = picture(model)
    hopeless = Likeness(model, images(seed=2), falls=1e9)
    with pytest.raises(UnreachableError, match="max_loss"):
        ds.compress(images(), flops=0.5, max_loss=0.01, evaluator=hopeless, progress=False)
    assert_same(before, picture(model))


def test_a_sweep_is_one_more_way_to_allocate(small):
    model, ds = small
    sens = ds.sensitive(Likeness(model, images(1)), ratios=[0.25, 0.5, 0.75], progress=False, fast="off")
    outcome = ds.compress(images(), flops=0.3, align=None, sens=sens, progress=False)
    assert "by the sweep" in [trial.allocation for trial in outcome.tried]


# What data may look like


def test_loaders_tuples_arrays_and_dicts(small):
    _, ds = small
    for data in (
        [[batch, paddle.zeros([6, 1])] for batch in images()],
        [(batch.numpy(),) for batch in images()],
        paddle.io.DataLoader(paddle.io.TensorDataset([paddle.concat(images())]), batch_size=5),
        images(1, 16)[0],
    ):
        with ds.compressed(data, flops=0.2, align=None, progress=False) as outcome:
            assert outcome.output_error < 0.5
    model = made(networks.DictNet)
    ds = DygraphSensitivity(model, {"image": [2, 3, 8, 8], "more": {"mask": [2, 1, 8, 8]}})
    random = np.random.default_rng(0)
    data = [
        {
            "image": random.random((2, 3, 8, 8), "float32"),
            "more": {"mask": random.random((2, 1, 8, 8), "float32")},
        }
        for _ in range(4)
    ]
    outcome = ds.compress(data, flops=0.3, align=None, progress=False)
    assert outcome.flops_after <= 0.7 * outcome.flops_before


def test_only_so_many_samples_are_read(small):
    _, ds = small
    read = []

    def endless():
        while True:
            read.append(1)
            yield images(1, 4)[0]

    ds.compress(endless(), flops=0.2, samples=12, align=None, progress=False)
    assert len(read) == 3


@pytest.mark.parametrize("size", [1, 5, 16, 32, 64, 200])
def test_a_quarter_of_the_samples_is_held_out_whatever_the_batches(size):
    numbered = np.arange(200, dtype="float32").reshape(200, 1, 1, 1) * np.ones([200, 1, 2, 2], "float32")
    batches = [paddle.to_tensor(numbered[start : start + size]) for start in range(0, 200, size)]
    samples = read_samples(batches, view_of([1, 1, 2, 2]), 64)
    calibrated, held = (
        [int(row) for call in calls for row in call[0].numpy()[:, 0, 0, 0]]
        for calls in (samples.calibration, samples.held_back)
    )
    assert calibrated + held == list(range(64))
    assert len(held) == 16


def test_outputs_that_change_their_shape_are_compared_before(small):
    class Picky(paddle.nn.Layer):
        """Returns only those rows that score well, as a detector does."""

        def __init__(self):
            super().__init__()
            self.body = made(networks.SmallNet, width=16)

        def forward(self, x):
            scores = self.body(x)
            return scores[scores[:, 0] > scores[:, 0].mean() + 0.001]

    model = Picky()
    model.eval()
    ds = DygraphSensitivity(model, [8, 3, 16, 16])
    outcome = ds.compress(images(4, 8), flops=0.4, align=None, progress=False)
    assert np.isfinite(outcome.output_error)
    assert outcome.output_error > 0


def test_fewer_vectors_than_channels_are_said_aloud(small, caplog):
    _, ds = small
    with caplog.at_level(logging.WARNING, "dysens"):
        outcome = ds.compress(images(2, 3), flops=0.2, align=None, progress=False)
    assert any("fewer vectors" in note for note in outcome.notes)
    assert "fewer vectors" in caplog.text
    assert np.isfinite(outcome.output_error)


def test_a_baseline_that_cannot_be_used_is_refused_before_calibrating(small):
    model, ds = small
    assert ds.groups
    runs: list[str] = []

    def useless() -> float:
        runs.append("score")
        return 0.0

    hook = model.register_forward_pre_hook(lambda *_: runs.append("forward"))
    with pytest.raises(InputError, match="scores 0"):
        ds.compress(images(), flops=0.3, evaluator=useless, align=None, progress=False)
    hook.remove()
    assert runs == ["score"]


@pytest.mark.parametrize(
    ("data", "options", "says"),
    [
        ([], {"flops": 0.5}, "data are empty"),
        (None, {"flops": 0.5}, "iterable of the model's arguments"),
        ([paddle.zeros([2, 1, 16, 16])], {"flops": 0.5}, r"\[2, 1, 16, 16\]"),
        ([{"image": paddle.zeros([4, 3, 16, 16])}], {"flops": 0.5}, "a dict with the keys image where"),
        ([paddle.zeros([2, 48])], {"flops": 0.5}, r"\[2, 48\]"),
        ([paddle.full([4, 3, 16, 16], float("nan"))], {"flops": 0.5}, "NaN"),
        ([np.zeros([4, 3, 16, 16])], {"flops": 0.5}, r"type float64.*astype\(\"float32\"\)"),
        ([paddle.zeros([4, 3, 16, 16], "int64")], {"flops": 0.5}, "type int64"),
        (images(), {}, "how much to remove"),
        (images(), {"flops": 0.5, "params": 0.5}, "one budget"),
        (images(), {"flops": 1.5}, "flops is a share"),
        (images(), {"flops": True}, "flops is a share"),
        (images(), {"max_loss": 0.1}, "evaluator"),
        (images(), {"flops": 0.5, "align": 0}, "align"),
        (images(), {"flops": 0.5, "samples": 0}, "samples"),
        (images(), {"flops": 0.5, "evaluator": 3}, "evaluator has to be"),
        (images(), {"flops": 0.5, "skip_vars": ["*"]}, "leave no group"),
    ],
)
def test_bad_input_is_a_sentence_and_the_model_stays(small, data, options, says):
    model, ds = small
    before = picture(model)
    with pytest.raises(InputError, match=says) as error:
        ds.compress(data, progress=False, **options)
    assert str(error.value).endswith(".")
    assert_same(before, picture(model))


def test_a_network_that_gives_nan_is_not_compressed():
    model = made(networks.Unequal)
    ds = DygraphSensitivity(model, SHAPE)
    model.head.bias.set_value(paddle.full_like(model.head.bias, float("nan")))
    with pytest.raises(InputError, match="NaN"):
        ds.compress(images(), flops=0.3, align=None, progress=False)


def test_outputs_that_are_all_alike_are_said_aloud(caplog):
    model = made(networks.Unequal)
    ds = DygraphSensitivity(model, SHAPE)
    for tensor in (model.head.weight, model.head.bias):
        tensor.set_value(paddle.zeros_like(tensor))
    with caplog.at_level(logging.WARNING, "dysens"):
        outcome = ds.compress(images(), flops=0.3, align=None, progress=False)
    assert any("all alike" in note for note in outcome.notes)
    assert "all alike" in caplog.text


def test_a_budget_out_of_reach_tells_what_is_in_reach(small):
    _, ds = small
    with pytest.raises(UnreachableError, match=r"removes \d+\.\d%"):
        ds.compress(images(), flops=0.99, progress=False)


def test_a_cut_model_is_not_cut_again(small):
    _, ds = small
    ds.compress(images(), flops=0.2, align=None, progress=False)
    with pytest.raises(InputError, match="cut already"):
        ds.compress(images(), flops=0.2, progress=False)


def test_curves_without_labels_rise(small):
    model, ds = small
    curves = ds.estimate(images(), ratios=[0.25, 0.5, 0.75])
    assert set(curves) == {group.name for group in ds.groups}
    for curve in curves.values():
        assert list(curve.values()) == sorted(curve.values())
    assert list(curves.to_frame().columns) == ["param", "path", "ratio", "error"]
    sens = ds.sensitive(Likeness(model, images(1)), ratios=[0.25, 0.5, 0.75], progress=False, fast="off")
    assert -1 <= curves.rank_correlation(sens) <= 1
