"""From a task to a smaller model in one call, and in one command, on networks that are cheap to score."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pipeline.test_pipeline import Agreement, Guarded
from sweep.sweeping import SHAPE, network

from dysens import load_pruned
from dysens.adapters import LayerTask
from dysens.cli import COMMANDS, main
from dysens.errors import InputError
from dysens.pipeline import (
    Compressing,
    RuinedError,
    Subject,
    compress,
    states_table,
)
from dysens.pipeline._scoring import standard_error
from dysens.pipeline._states import Row
from dysens.report import read_card

NETWORK = """
from pathlib import Path

import numpy as np
import paddle
from pipeline.test_pipeline import Agreement
from sweep.sweeping import SHAPE, network


def scored():
    model = network()
    return model, Agreement(model)


def images():
    generator = np.random.default_rng(3)
    return [generator.standard_normal(SHAPE).astype("float32") for _ in range(8)]


def nothing():
    return None


class Interrupted(Agreement):
    def score(self, measurements):
        score = super().score(measurements)
        if Path("out/card.json").is_file():  # what was cut is saved, and its card written
            raise KeyboardInterrupt
        return score


def interrupted():
    model = network()
    evaluator = Interrupted(model)
    return model, evaluator


def fall(model):
    return 1.0 if sum(p.size for p in model.parameters()) == WHOLE else 0.1


WHOLE = sum(p.size for p in network().parameters())
"""


@pytest.fixture
def model():
    return network()


def options(folder, **changes) -> Compressing:
    return replace(
        Compressing(folder / "out", flops=0.3, samples=8, align=1, rounds=2, progress=False), **changes
    )


class Trained(LayerTask):
    """As a framework's task: it has a loop."""

    def train(self):
        self.trained = True
        return self.folder


def test_every_state_is_in_the_table(model, tmp_path):
    evaluator = Agreement(model)
    task = Trained(model, SHAPE, evaluator)
    told = []
    result = compress(Subject(task), options(tmp_path, train=True, export=True, anyway=True), told.append)
    assert [row.state for row in result.rows] == ["original", "pruned", "trained", "exported"]
    whole, pruned, trained, exported = result.rows
    assert whole.score == 1.0
    assert result.outcome.score_after == pruned.score == trained.score == exported.score
    assert whole.spread == 0.0
    assert pruned.flops <= 0.7 * whole.flops
    assert (
        (pruned.flops, pruned.params) == (trained.flops, trained.params) == (exported.flops, exported.params)
    )
    assert pruned.bytes < whole.bytes
    assert min(row.milliseconds for row in result.rows) > 0
    # Told as it goes, and at the end with the times.
    assert [len(each.rows) for each in told] == [2, 3, 4, 4]
    assert told[-1].rows == result.rows
    again = load_pruned(network(), tmp_path / "out" / "pruned")
    assert again.convs[1].weight.shape == model.convs[1].weight.shape
    assert task.score_exported(tmp_path / "out" / "inference") == exported.score
    # What was exported only to be timed is gone.
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "inference",
        "pruned.pdparams",
        "pruned.plan.json",
    ]
    lines = str(result).splitlines()
    assert lines[0].split() == ["score", "FLOPs", "parameters", "file,", "KiB", "ms"]
    assert [line.split()[0] for line in lines[1:]] == [row.state for row in result.rows]


def test_a_ruined_cut_is_saved_and_not_trained(model, tmp_path):
    whole = sum(p.size for p in model.parameters())
    task = Trained(model, SHAPE, lambda: 0.9 if sum(p.size for p in model.parameters()) == whole else 0.2)
    data = [np.random.default_rng(0).standard_normal(SHAPE).astype("float32") for _ in range(4)]
    wanted = options(tmp_path, train=True, data=data, export=True)
    with pytest.raises(
        RuinedError, match=r"loses 78% of the score \(0\.9000 -> 0\.2000\).*max_loss 0\.1.*anyway"
    ) as error:
        compress(Subject(task), wanted)
    assert not hasattr(task, "trained")
    assert [row.state for row in error.value.compressed.rows] == ["original", "pruned"]
    again = load_pruned(network(), wanted.save)
    assert [p.shape for p in again.parameters()] == [p.shape for p in model.parameters()]
    assert not (tmp_path / "out" / "inference").exists()


def test_noise_is_used_only_with_a_word(model, tmp_path, caplog):
    result = compress(Subject(LayerTask(model, SHAPE, has_weights=False)), options(tmp_path))
    assert "random weights" in caplog.text
    assert "Generated noise is used instead" in caplog.text
    assert result.data == "generated noise"
    assert result.rows[0].score is None
    assert str(result).split()[0] == "FLOPs"  # nothing scores it: no column


def test_a_network_that_cannot_be_exported_has_no_size_and_no_time(model, tmp_path, caplog):
    class Unexportable(LayerTask):
        def export(self, folder, images=None):
            raise InputError("This one cannot.")

    result = compress(Subject(Unexportable(model, SHAPE, Agreement(model))), options(tmp_path))
    assert {(row.bytes, row.milliseconds) for row in result.rows} == {(None, None)}
    assert "This one cannot" in caplog.text


def test_a_baseline_that_is_next_to_nothing_is_refused(model, tmp_path):
    with pytest.raises(InputError, match=r"scores 0\.0400 in agreement"):
        compress(Subject(Guarded(model, SHAPE, Agreement(model, worth=0.04))), options(tmp_path))
    assert not (tmp_path / "out" / "pruned.pdparams").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"flops": None}, "Nothing says how much"),
        ({"params": 0.5}, "one budget, not flops and params"),
        ({"flops": 50.0}, "such as 0.5 or 50%, not 50"),
        ({"max_loss": -0.1}, "max_loss is a share"),
    ],
)
def test_budgets_that_make_no_sense(tmp_path, changes, said):
    with pytest.raises(InputError, match=said):
        options(tmp_path, **changes).check()


def test_what_is_there_is_not_replaced_without_a_word(model, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "pruned.plan.json").write_text("mine")
    with pytest.raises(InputError, match=r"a compressed model in .*out.* already"):
        compress(Subject(LayerTask(model, SHAPE)), options(tmp_path))
    assert (tmp_path / "out" / "pruned.plan.json").read_text() == "mine"
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        replace(options(tmp_path), folder=tmp_path / "file").check()


def test_a_loss_needs_a_score_and_an_error_an_evaluator(model, tmp_path):
    with pytest.raises(InputError, match="max_loss is about a score"):
        compress(Subject(LayerTask(model, SHAPE)), options(tmp_path, max_loss=0.1))
    with pytest.raises(InputError, match="higher_is_better=False"):
        compress(Subject(LayerTask(model, SHAPE, lambda: 1.0), lower_is_better=True), options(tmp_path))


def test_the_spread_of_a_score_is_that_of_a_mean(model):
    shares = [0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    evaluator = Agreement(model)
    found = standard_error(evaluator, shares)
    assert found == pytest.approx(np.std(shares, ddof=1) / np.sqrt(len(shares)))
    assert standard_error(evaluator, shares[:1]) is None


def test_what_is_not_known_is_not_zero():
    assert states_table([Row("original", None, 100, 10)], "hmean").split()[-3:] == [
        "10",
        "unknown",
        "unknown",
    ]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_network.py").write_text(NETWORK)
    return tmp_path


SHAPED = ["--input-shape", ",".join(map(str, SHAPE)), "--samples", "8", "--align", "1"]


def test_the_command(home, capfd):
    words = ["compress", "own_network:scored", *SHAPED, "--flops", "30%", "--export", "-o", "out"]
    assert main([*words, "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert [row["state"] for row in data["states"]] == ["original", "pruned", "exported"]
    assert data["states"][1]["flops"] == data["flops_after"] <= 0.7 * data["flops_before"]
    assert data["difference"] < 1e-4
    assert main(words) == 1
    assert "replace it by --force" in capfd.readouterr().err
    assert main([*words, "--force"]) == 0
    printed = capfd.readouterr()
    heading = printed.out.splitlines()[0]
    assert all(name in heading for name in COMMANDS["compress"].columns)
    assert "original: score 1.0000 (agreement)" in printed.err
    assert "out/pruned.pdparams" in printed.err
    # Why this cut was taken, with what it was scored on.
    assert data["reason"].startswith(f'"{data["allocation"]}" was taken for the best score (')
    assert "by agreement)" in data["reason"]
    assert data["reason"] in printed.err


def test_the_command_with_workers(home, capfd):
    found = []
    for more in ([], ["--workers", "2"]):
        words = ["compress", "own_network:scored", *SHAPED, "--flops", "30%", "-o", f"out{len(more)}", *more]
        assert main([*words, "--json"]) == 0
        data = json.loads(capfd.readouterr().out)
        found.append((data["groups"], data["output_error"]))
    assert found[0] == found[1]


def test_every_step_writes_a_card(home, capfd):
    shape = SHAPED[:2]
    words = ["compress", "own_network:scored", *SHAPED, "--flops", "30%", "-o", "out"]
    assert main(words) == 0
    card = read_card("out/card.json")
    assert [state.state for state in card.states] == ["original", "pruned"]
    assert card.states[0].score == 1.0
    assert card.states[0].spread == 0.0
    assert card.metric == "score"
    assert card.evaluated_on == "agreement"
    assert card.proofs["masked_and_cut"] < 1e-4
    assert not card.running
    assert [path for path, _, _ in card.widths] == [f"convs.{place}.weight" for place in range(4)]
    assert card.commands[0].endswith(
        "compress own_network:scored --input-shape 2,3,6,6 --samples 8 --align 1 --flops 30% -o out"
    )
    # What is made from it goes on with its card.
    assert (
        main(["export", "own_network:scored", *shape, "--weights", "out/pruned.pdparams", "-o", "exported"])
        == 0
    )
    after = read_card("exported/card.json")
    assert [state.state for state in after.states] == ["original", "pruned", "exported"]
    assert after.states[:2] == card.states
    assert after.states[2].bytes > 1000
    assert after.states[2].score is None
    assert len(after.commands) == 2
    assert after.proofs["live_and_exported"] < 1e-4
    # Without one, a card is begun; one that is broken is said to be.
    Path("out/card.json").write_text("{}")
    assert (
        main(["export", "own_network:scored", *shape, "--weights", "out/pruned.pdparams", "-o", "exported"])
        == 0
    )
    said = capfd.readouterr().err
    assert "A new card is started" in said
    assert "exported is there from an earlier run; it is replaced" in said
    assert len(read_card("exported/card.json").states) == 1
    Path("ratios.yml").write_text("convs.1.weight: 0.5\n")
    assert main(["prune", "own_network:scored", "ratios.yml", *shape, "-o", "cut/pruned"]) == 0
    card = read_card("cut/card.json")
    assert [state.params for state in card.states] == sorted(
        [state.params for state in card.states], reverse=True
    )
    assert card.widths[:2] == (("convs.0.weight", 20, 20), ("convs.1.weight", 20, 10))


def test_the_command_says_why_it_did_not_train(home, capfd):
    words = ["compress", "own_network:scored", "-e", "own_network:fall", *SHAPED, "--flops", "0.3", "--train"]
    assert main([*words, "--data", "own_network:images"]) == 1
    printed = capfd.readouterr()
    assert printed.out.splitlines()[2].split()[:2] == ["pruned", "0.1000"]
    assert "train it all the same with --anyway" in printed.err
    assert main([*words, "--data", "own_network:nothing", "-o", "other"]) == 1
    assert 'The data "own_network:nothing" have to be' in capfd.readouterr().err


def test_ctrl_c_says_what_is_kept_and_how_to_go_on(home, capfd):
    words = ["compress", "own_network:interrupted", *SHAPED, "--flops", "0.3", "--export", "-o", "out"]
    assert main(words) == 130
    said = capfd.readouterr().err
    assert (
        "Interrupted: the compressed network is safe in out/pruned.pdparams, with its plan. To continue:"
        in said
    )
    card = read_card("out/card.json")
    assert not card.running
    assert card.notes[-1] == 'The run was interrupted after the state "pruned".'
    command = shlex.split(said.splitlines()[-1])
    assert command[:3] == ["dysens", "export", "own_network:interrupted"]
    assert main(command[1:]) == 0
    assert Path("out/inference/inference.pdiparams").is_file()


def test_random_weights_of_a_config_are_compressed_without_a_score(model, tmp_path, caplog):
    """To try the way out before there are weights; the metric of such a network is 0, which nothing is relative to."""
    task = Guarded(model, SHAPE, Agreement(model, worth=0.0), has_weights=False)
    result = compress(Subject(task), options(tmp_path, export=True))
    assert "random weights" in caplog.text
    assert "not scored" in caplog.text
    assert [row.state for row in result.rows] == ["original", "pruned", "exported"]
    assert {row.score for row in result.rows} == {None}
    assert result.scored_on is None
    with pytest.raises(InputError, match=r"max_loss is about a score: give weights\."):
        compress(Subject(task), options(tmp_path / "again", max_loss=0.1))
