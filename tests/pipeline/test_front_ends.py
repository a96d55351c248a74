"""``dysens`` and tools/ are two ways into one pipeline: the same options end in the same checkpoint."""

from __future__ import annotations

import importlib.util
import json
import shlex
from pathlib import Path

import numpy as np
import paddle
import pytest

from dysens.cli import main
from dysens.costs import Predictor
from dysens.data import Fonts, find_fonts, write_scenes
from dysens.ratios import read_ratio_file

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "ocr" / "ch_PP-OCRv3_det.yml"
GROUPS = ["backbone.stage3.0.expand_conv.conv.weight", "backbone.stage3.1.expand_conv.conv.weight"]
RATIOS = ["0.3", "0.6"]
CRITERION = ["--criterion", "variance"]  # of all, the one that looks at data


@pytest.fixture(scope="module")
def overrides(tmp_path_factory):
    """A few small scenes, and two steps of training."""
    folder = tmp_path_factory.mktemp("scenes")
    write_scenes(folder, 4, 1, (192, 128), Fonts(find_fonts().latin))
    sets = [
        f"{mode}.dataset.{key}"
        for mode in ("Train", "Eval")
        for key in (f"data_dir={folder}", f"label_file_list=[{folder}/label.txt]")
    ]
    return [
        *sets,
        "Train.dataset.transforms.2.EastRandomCropData.size=[96,64]",
        "Train.loader.batch_size_per_card=2",
        "Global.epoch_num=1",
        "Global.print_batch_step=1",
    ]


def run_tool(name, *words):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main([str(word) for word in words])


@pytest.fixture(scope="module")
def by_tools(overrides, tmp_path_factory):
    """All steps through tools/ocr_*.py; the folder with the files."""
    folder = tmp_path_factory.mktemp("tools")
    opt = ["-c", CONFIG, "-o", *overrides, f"Global.save_model_dir={folder}"]
    measured = ["--pruned_params", *GROUPS, "--ratios", *RATIOS, "--fast", "off"]
    run_tool("ocr_sensitivity", *opt, *measured, *CRITERION, "--flops", "0.02")
    run_tool("ocr_export", *opt, f"Global.pretrained_model={folder / 'latest'}")
    return folder


@pytest.fixture(scope="module")
def by_dysens(overrides, tmp_path_factory):
    """The same, command by command; the folder with the files."""
    folder = tmp_path_factory.mktemp("dysens")
    journal, ratios, pruned = folder / "sensitivities.jsonl", folder / "ratios.yml", folder / "pruned"
    settings = [word for text in [*overrides, f"Global.save_model_dir={folder}"] for word in ("--set", text)]

    def dysens(command, *words):
        assert main([command, *map(str, words), *settings]) == 0

    measured = ["--only", ",".join(GROUPS), "--ratios", ",".join(RATIOS), "--fast", "off"]
    dysens("sweep", CONFIG, *measured, *CRITERION, "-o", journal)
    dysens("ratios", journal, CONFIG, "--flops", "0.02", "-o", ratios)
    dysens("prune", CONFIG, ratios, *CRITERION, "-o", pruned)
    dysens("train", CONFIG, "--weights", pruned)
    dysens("export", CONFIG, "--weights", folder / "latest")
    return folder


def losses(folder):
    lines = map(json.loads, (folder / "sensitivities.jsonl").read_text().splitlines())
    return {(line["path"], line["ratio"]): line["loss"] for line in lines if line["kind"] == "point"}


def test_the_same_losses(by_tools, by_dysens):
    assert len(losses(by_tools)) == len(GROUPS) * len(RATIOS)
    assert losses(by_dysens) == losses(by_tools)


def test_the_same_ratios(by_tools, by_dysens):
    ours = read_ratio_file(by_dysens / "ratios.yml").ratios
    assert ours
    assert ours == read_ratio_file(by_tools / "ratios.yml").ratios


@pytest.mark.parametrize("name", ["pruned", "latest"])
def test_the_same_checkpoint(by_tools, by_dysens, name):
    ours, theirs = (paddle.load(str(folder / f"{name}.pdparams")) for folder in (by_dysens, by_tools))
    assert ours.keys() == theirs.keys()
    for path, value in theirs.items():
        np.testing.assert_array_equal(np.asarray(ours[path]), np.asarray(value), err_msg=path)
    plans = [json.loads((folder / f"{name}.plan.json").read_text()) for folder in (by_dysens, by_tools)]
    assert plans[0]["stages"] == plans[1]["stages"]


def test_the_same_exported_model(by_tools, by_dysens):
    image = np.random.default_rng(0).uniform(-1, 1, (1, 3, 64, 96)).astype("float32")
    ours, theirs = (
        Predictor(folder / "inference" / "inference")(image)[0] for folder in (by_dysens, by_tools)
    )
    np.testing.assert_array_equal(ours, theirs)


def test_the_same_score(by_tools, overrides, capfd):
    settings = [word for text in overrides for word in ("--set", text)]
    run_tool("ocr_eval", "-c", CONFIG, "-o", *overrides, f"Global.pretrained_model={by_tools / 'latest'}")
    printed = capfd.readouterr().out
    assert main(["eval", str(CONFIG), *settings, "--weights", str(by_tools / "latest")]) == 0
    assert capfd.readouterr().out == printed
    assert main(["eval", str(CONFIG), *settings, "--exported", str(by_tools / "inference"), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["score"] == pytest.approx(
        float(printed.split("hmean ")[1].split(",")[0]), abs=1e-4
    )


INTERRUPTING = """
calls = []

def score(model):
    calls.append(model)
    if len(calls) > 2:  # the whole network, and one point
        raise KeyboardInterrupt
    return 0.9
"""


def test_ctrl_c_in_a_tool_says_how_to_go_on(overrides, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "scoring_by_hand.py").write_text(INTERRUPTING)
    opt = ["-c", str(CONFIG), "-o", *overrides, f"Global.save_model_dir={tmp_path}"]
    measured = ["--pruned_params", GROUPS[0], "--ratios", *RATIOS, "--fast", "off"]
    words = [*opt, "--steps", "sweep", "--eval_only", "-e", "scoring_by_hand:score", *measured]
    with pytest.raises(SystemExit) as ended:
        run_tool("ocr_sensitivity", *words)
    assert ended.value.code == 130
    said = capfd.readouterr().err
    assert f"1 point is safe in {tmp_path / 'sensitivities.jsonl'}" in said
    assert shlex.split(said.splitlines()[-1])[2:] == words
