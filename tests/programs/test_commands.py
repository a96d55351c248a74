"""The command line takes the folder or path of an inference model wherever it takes a model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import paddle
import pytest

from dysens import Sensitivities
from dysens.cli import main
from dysens.costs import Predictor
from dysens.programs import load_inference
from programs.nets import ConvNet, exported

SCORING = '''
import numpy as np
import paddle
from dysens.evaluators import Evaluator

class Closeness(Evaluator):
    """How close the outputs are to those of the whole network."""
    name = "closeness"
    def batches(self):
        return [np.random.default_rng(n).uniform(-1, 1, (2, 3, 8, 8)).astype("float32") for n in range(8)]
    def arguments(self, batch):
        return (paddle.to_tensor(batch),)
    def measure(self, outputs, batch):
        return np.asarray(outputs)
    def score(self, measurements):
        return float(1.0 + np.concatenate(list(measurements))[:, 0].mean())

def evaluator():
    return Closeness()

def eval_function(program, exe, feed_names, fetch_list):
    found = [exe.run(program, feed={feed_names[0]: x}, fetch_list=fetch_list)[0] for x in Closeness().batches()]
    return float(1.0 + np.concatenate(found)[:, 0].mean())

def looking(program, exe, feed_names, fetch_list):
    return len(program.global_block().ops)

def inputs():
    return Closeness().batches()
'''


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "scoring_of_programs.py").write_text(SCORING)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    paddle.seed(1)
    exported(ConvNet(32), tmp_path / "model", [None, 3, 8, 8])
    return tmp_path / "model"


def run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    capfd.readouterr()
    code = main([str(word) for word in words])
    return code, *capfd.readouterr()


def test_groups_of_a_folder_of_a_path_and_of_a_file(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    listed = [
        json.loads(run(capfd, "groups", text, "--json")[1])["groups"]
        for text in ("model", "model/inference", model / "inference.pdiparams")
    ]
    assert listed[0] == listed[1] == listed[2]
    assert len(listed[0]) == len({group["path"] for group in listed[0]}) == 2


def test_sweep_resumes_in_another_import(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", model, "--evaluator", "scoring_of_programs:evaluator", "--fast", "off"]
    assert run(capfd, *words, "--ratios", "0.5")[0] == 0
    assert run(capfd, *words, "--ratios", "0.25,0.5")[0] == 0
    assert len(Sensitivities.load("sens.jsonl").points) == 4


def test_callbacks_and_data(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An Evaluator, or PaddleSlim's form of a function that runs a program: the same points."""
    found = []
    for words in (
        ["--evaluator", "scoring_of_programs:evaluator"],
        ["--data", "scoring_of_programs:evaluator"],
        ["--data", "scoring_of_programs:eval_function"],
        ["--evaluator", "scoring_of_programs:eval_function", "--fast", "off"],
    ):
        code, _, err = run(
            capfd, "sweep", model, *words, "--ratios", "0.5", "-o", f"{len(found)}.jsonl", "--json"
        )
        assert code == 0, err
        found.append([point.metric for point in Sensitivities.load(f"{len(found)}.jsonl").points])
    for points in found[1:]:
        assert points == pytest.approx(found[0], abs=1e-5)
    words = [
        "search",
        model,
        "--data",
        "scoring_of_programs:evaluator",
        "--target-loss",
        "0.1",
        "-o",
        "s.jsonl",
    ]
    assert run(capfd, *words)[0] == 0


def test_compress_and_export(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--evaluator", "scoring_of_programs:evaluator", "--eval-only"]
    code, out, err = run(capfd, "compress", model, "--flops", "0.3", "--export", "-o", "out", *words)
    assert code == 0, err
    made = [file.parent for file in Path("out").rglob("inference.pdiparams")]
    assert made, out
    small = load_inference(made[0])
    weights = sum(int(np.prod(p.shape)) for p in small.parameters())
    assert weights < sum(int(np.prod(p.shape)) for p in load_inference(model).parameters())
    assert list(Predictor(made[0] / "inference")._inputs) == ["x0"]
    # From its checkpoint, for who trained it on.
    code, out, err = run(capfd, "export", model, "--weights", "out/pruned", "-o", "again")
    assert code == 0, err
    assert [list(p.shape) for p in load_inference("again").parameters()] == [
        list(p.shape) for p in small.parameters()
    ]


def test_prune(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("ratios.yml").write_text(
        "conv2d_0.weight: 0.5\n".replace("conv2d_0", load_inference(model)._steps[0].layer)
    )
    code, _, err = run(capfd, "prune", "model/inference", "ratios.yml", "-o", "pruned")
    assert code == 0, err
    assert Path("pruned.plan.json").is_file()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["groups", "no/such"], 'no inference model at "no/such"'),
        (["groups", "."], "holds no inference model"),
        (["groups", "model", "--set", "depth=3"], 'An inference model has no setting "depth"'),
        (
            ["groups", "model", "--input-shape", "1,3,9,9"],
            r'The input "x0" is [any, 3, 8, 8], and cannot be [1, 3, 9, 9]',
        ),
        (["groups", "model", "--submodel", "Student"], "distillation"),
        (["sweep", "model"], "There is no evaluator for"),
        (
            ["sweep", "model", "--data", "scoring_of_programs:looking", "--ratios", "0.5"],
            "it looks at the program (global_block)",
        ),
        (["sweep", "model", "--data", "scoring_of_programs:inputs"], "has to return an Evaluator"),
        (["sweep", "model", "--data", "nowhere/label.txt"], "nowhere/label.txt"),
    ],
)
def test_what_cannot_be(
    model: Path, capfd: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    code, _, err = run(capfd, *words)
    assert code != 0
    assert sentence in err
