"""The steps as functions, on a network that is cheap to score."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import paddle
import pytest
from sweep.sweeping import SHAPE, network

from dysens import Sensitivities, load_pruned
from dysens.adapters import LayerTask
from dysens.errors import InputError
from dysens.evaluators import Evaluator
from dysens.pipeline import Measuring, Subject, choose, criterion_of, prune, score, search, search_file, sweep
from dysens.pipeline import train as train_task
from dysens.ratios import RatioFile, Target

ONLY = ["convs.1.weight"]


class Agreement(Evaluator):
    """The share of outputs that are as at the start; counts how often all batches were asked for."""

    name = "agreement"

    def __init__(self, model, worth=1.0):
        self.data = np.random.default_rng(2).standard_normal((4, *SHAPE)).astype("float32")
        self.expected = [model(paddle.to_tensor(batch)).numpy().argmax(axis=1) for batch in self.data]
        self.worth = worth
        self.scores = []

    def batches(self):
        return [[paddle.to_tensor(batch), number] for number, batch in enumerate(self.data)]

    def measure(self, outputs, batch):
        return float((outputs.numpy().argmax(axis=1) == self.expected[batch[1]]).mean())

    def score(self, measurements):
        score = self.worth * float(np.mean(measurements))
        if len(measurements) == len(
            self.data
        ):  # one batch alone is only asked about to see whether it is noisy
            self.scores.append(score)
        return score


class Guarded(LayerTask):
    """As a framework's task: its score is a share of what is right."""

    lowest_baseline = 0.05

    def low_baseline_hint(self):
        return "Do weights and data belong together?"


@pytest.fixture
def model():
    return network()


def measuring(folder: Path, **options) -> Measuring:
    settings = {"ratios": [0.25, 0.5], "only": ONLY, "fast": "off", "progress": False, **options}
    return Measuring(folder / "new" / "sens.jsonl", **settings)


def test_a_baseline_is_scored_once(model, tmp_path):
    evaluator = Agreement(model)
    sens = sweep(Subject(Guarded(model, SHAPE, evaluator)), measuring(tmp_path))
    assert len(sens.points) == 2
    assert len(evaluator.scores) == 3
    assert evaluator.scores[0] == sens.baseline == 1.0


@pytest.mark.parametrize("step", [sweep, search])
def test_a_baseline_that_is_next_to_nothing_is_refused_before_any_point(model, tmp_path, step):
    evaluator = Agreement(model, worth=0.04)
    options = measuring(tmp_path, target_loss=0.1)
    with pytest.raises(InputError, match=r"scores 0\.0400 in agreement.*belong together\?"):
        step(Subject(Guarded(model, SHAPE, evaluator)), options)
    assert len(evaluator.scores) == 1
    assert not options.sen_file.exists()


def test_a_metric_of_one_s_own_may_have_any_scale(model, tmp_path):
    subject = Subject(LayerTask(model, SHAPE, Agreement(model, worth=0.001)))
    assert sweep(subject, measuring(tmp_path)).baseline == pytest.approx(0.001)


def test_random_weights_are_refused_before_groups_are_looked_for(model, tmp_path):
    subject = Subject(LayerTask(model, SHAPE, Agreement(model), has_weights=False))
    with pytest.raises(InputError, match="random weights"):
        sweep(subject, measuring(tmp_path))
    assert "ds" not in vars(subject)


def test_from_sweep_to_pruned_checkpoint(model, tmp_path):
    subject = Subject(LayerTask(model, SHAPE, Agreement(model)))
    sens = sweep(subject, measuring(tmp_path))
    ratios = choose(sens, Target(params=0.05), subject)
    assert set(ratios) == set(ONLY)
    before = score(subject, "whole")
    cut = prune(subject, ratios, tmp_path / "pruned")
    assert cut.difference < 1e-4
    after = score(subject, "pruned")
    assert after.params == cut.outcome.params_after <= 0.95 * before.params
    again = load_pruned(network(), tmp_path / "pruned")
    assert again.convs[1].weight.shape == model.convs[1].weight.shape


def test_what_a_search_finds_is_a_file_that_ratios_are_chosen_from(model, tmp_path):
    subject = Subject(LayerTask(model, SHAPE, Agreement(model)))
    options = measuring(tmp_path, target_loss=0.9)
    found = search(subject, options)
    answers = Sensitivities.load(search_file(options))
    assert {path: max(answers[path]) for path in ONLY} == {g.path: g.ratio for g in found.groups}
    assert choose(answers, Target(), subject, searched=True) == {ONLY[0]: max(answers[ONLY[0]])}
    # Its costs are in the file, so FLOPs can be aimed at without the network.
    assert choose(answers, Target(flops=0.01), searched=True)[ONLY[0]] <= max(answers[ONLY[0]])
    with pytest.raises(InputError, match="leave one out"):
        choose(answers, Target(loss=0.1), searched=True)


def test_variance_needs_data(model, tmp_path):
    sweep(Subject(LayerTask(model, SHAPE, Agreement(model)), "variance"), measuring(tmp_path))
    header = json.loads((tmp_path / "new" / "sens.jsonl").read_text().splitlines()[0])
    assert header["criterion"] == "variance"
    with pytest.raises(InputError, match="a function, which shows none"):
        _ = Subject(LayerTask(model, SHAPE, lambda: 0.9), "variance").ds


def test_which_criterion_cuts(model, tmp_path, caplog):
    assert criterion_of(None) == "fpgm"
    assert criterion_of("l2", RatioFile({"a": 0.5})) == "l2"
    assert criterion_of(None, RatioFile({"a": 0.5}, "l1")) == "l1"
    with pytest.raises(InputError, match="criterion l1"):
        criterion_of("l2", RatioFile({"a": 0.5}, "l1"))
    options = measuring(tmp_path)
    sweep(Subject(LayerTask(model, SHAPE, Agreement(model)), "l1"), options)
    assert criterion_of(None, journal=options.sen_file) == "l1"
    assert criterion_of(None, RatioFile({"a": 0.5}), options.sen_file) == "l1"
    assert criterion_of(None, RatioFile({"a": 0.5}, "random"), options.sen_file) == "random"
    assert criterion_of(None, journal=tmp_path / "none.jsonl") == "fpgm"
    assert "swept with" not in caplog.text
    assert criterion_of("l2", journal=options.sen_file) == "l2"
    assert "swept with the criterion l1" in caplog.text


def test_a_score_leaves_the_model_as_it_was(model):
    model.train()
    found = score(Subject(LayerTask(model, SHAPE, lambda: 0.5)))
    assert (found.score, found.indicator) == (0.5, "score")
    assert model.training
    assert str(found).startswith("network: score 0.5000, ")


def test_a_layer_without_a_framework(model, tmp_path):
    evaluator = Agreement(model)
    task = LayerTask(model, SHAPE, evaluator, name="mine")
    exported = task.export(tmp_path / "inference")
    assert exported.difference < 1e-4
    assert exported.bytes > 1000
    assert "its outputs on noise differ" in str(exported)
    assert task.score_exported(tmp_path / "inference") == 1.0
    with pytest.raises(InputError, match='"mine" has no training loop'):
        train_task(task)
    with pytest.raises(InputError, match="A function scores the live model"):
        LayerTask(model, SHAPE, lambda: 1.0).score_exported(tmp_path / "inference")
    with pytest.raises(InputError, match="There is no evaluator for"):
        _ = LayerTask(model, SHAPE).evaluator
