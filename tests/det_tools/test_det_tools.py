"""PaddleDetection's tools from the sweep to the exported model, on a released detector."""

from __future__ import annotations

import json
import pickle
import re

import paddle
import pytest
import yaml

from dysens.cli import main as dysens
from dysens.ratios import read_ratio_file

from .conftest import ROOT, run_tool, start_tool

PARAMS = (
    "backbone.blocks5.0.pw_conv.conv.weight,backbone.blocks5.3.pw_conv.conv.weight,"
    "backbone.blocks6.*.pw_conv.conv.weight"
)
GROUPS = 4


@pytest.fixture(scope="module")
def pruned(layout_options, layout_folder):
    """All four steps in one go: two ratios of four groups."""
    ratios = ("--pruned_params", PARAMS, "--pruned_ratios", "0.25 0.5", "--fast", "off")
    run_tool("det_sensitivity", *layout_options, *ratios, "--flops", "0.02")
    return layout_folder


def points_in(journal):
    """(parameter path, ratio) to loss, of all points on disk."""
    lines = [json.loads(line) for line in journal.read_text().split("\n")[:-1]]
    return {(line["path"], line["ratio"]): line["loss"] for line in lines if line["kind"] == "point"}


def score(text):
    return float(re.findall(r"mAP ([0-9.]+)", text)[-1])


def flops_in(text):
    return int(re.search(r"([0-9,]+) FLOPs", text)[1].replace(",", ""))


def test_the_sweep_is_in_the_journal(pruned):
    points = points_in(pruned / "sensitivities.jsonl")
    assert len(points) == GROUPS * 2
    assert {ratio for _, ratio in points} == {0.25, 0.5}


def test_the_ratios_are_a_slim_config(pruned):
    content = yaml.safe_load((pruned / "ratios.yml").read_text())
    assert content["slim"] == "Pruner"
    assert content["Pruner"]["criterion"] == "fpgm"
    # ppdet reads no ONNX: the released weights are there as it reads them.
    whole = paddle.load(content["pretrain_weights"])
    assert whole["backbone.blocks5.0.pw_conv.conv.weight"].shape[0] == 256
    swept = {path for path, _ in points_in(pruned / "sensitivities.jsonl")}
    chosen = read_ratio_file(pruned / "ratios.yml").ratios
    assert chosen
    assert set(chosen) <= swept


def test_the_trained_network_is_read_back_exported_and_scored(pruned, layout_options, tmp_path, capfd):
    final = [*layout_options, f"weights={pruned / 'model_final'}"]
    run_tool("det_eval", *final)
    told = capfd.readouterr().out
    before = score(told)
    run_tool("det_eval", *layout_options)
    whole = flops_in(capfd.readouterr().out)
    assert 0 < flops_in(told) <= 0.98 * whole

    run_tool("det_export", *final, "--out", tmp_path / "inference")
    assert (tmp_path / "inference" / "infer_cfg.yml").is_file()
    told = capfd.readouterr().out
    assert float(re.search(r"differ from the network's by ([0-9.e+-]+)", told)[1]) < 1e-3

    run_tool("det_eval", *layout_options, "--exported", tmp_path / "inference")
    assert score(capfd.readouterr().out) == pytest.approx(before, abs=0.01)


def test_weights_without_their_plan_are_a_sentence(pruned, layout_options, tmp_path):
    bare = tmp_path / "bare.pdparams"
    bare.write_bytes((pruned / "model_final.pdparams").read_bytes())
    with pytest.raises(SystemExit, match=r"error: .*plan of a pruned network"):
        run_tool("det_eval", *layout_options, f"weights={bare}")


@pytest.mark.once("test-all")  # sharing is tested for sweeps and workers, merging for `dysens merge`
def test_two_processes_with_a_ratio_each_give_what_one_gives(pruned, layout_options, tmp_path):
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    only = ("--pruned_params", PARAMS, "--fast", "off", "--steps", "sweep")
    process = start_tool(
        "det_sensitivity", *layout_options, *only, "--pruned_ratios", "0.25", "--sensitivities_file", first
    )
    run_tool(
        "det_sensitivity", *layout_options, *only, "--pruned_ratios", "0.5", "--sensitivities_file", second
    )
    assert process.wait() == 0
    both = tmp_path / "both.jsonl"
    assert dysens(["merge", str(first), str(second), "-o", str(both)]) == 0
    expected = points_in(pruned / "sensitivities.jsonl")
    assert points_in(both) == pytest.approx(expected, abs=1e-6)


@pytest.mark.once("test-all")  # workers are tested in sweep, and by `dysens` in cli
def test_workers_give_what_one_process_gives(pruned, layout_options, tmp_path):
    journal = tmp_path / "shared.jsonl"
    only = ("--pruned_params", PARAMS, "--fast", "off", "--steps", "sweep", "--pruned_ratios", "0.5")
    run_tool("det_sensitivity", *layout_options, *only, "--workers", "2", "--sensitivities_file", journal)
    one = points_in(pruned / "sensitivities.jsonl")
    assert points_in(journal) == pytest.approx(
        {point: loss for point, loss in one.items() if point[1] == 0.5}, abs=1e-6
    )


@pytest.mark.once("test-all")  # pickles are continued in sweep and results, on both stacks
def test_a_pickle_of_paddleslim_is_continued_and_chosen_by(pruned, layout_options, tmp_path):
    """In a process of its own, as PaddleSlim knows parameters by automatic names. Three of the four groups are in it."""
    names = {
        "conv2d_12.w_0": "backbone.blocks5.0.pw_conv.conv.weight",
        "conv2d_18.w_0": "backbone.blocks5.3.pw_conv.conv.weight",
        "conv2d_26.w_0": "backbone.blocks6.0.pw_conv.conv.weight",
    }
    known = {name: {0.5: 0.01 * (number + 1)} for number, name in enumerate(names)}
    pickled = tmp_path / "sensitivities.pickle"
    pickled.write_bytes(pickle.dumps(known))
    before = pickled.read_bytes()
    options = ("--pruned_params", PARAMS, "--pruned_ratios", "0.5", "--fast", "off", "--flops", "0.02")
    files = ("--sensitivities_file", pickled, "--ratios_file", tmp_path / "ratios.yml")
    process = start_tool("det_sensitivity", *layout_options, *options, *files, "--steps", "sweep", "ratios")
    assert process.wait() == 0
    assert pickled.read_bytes() == before
    points = points_in(tmp_path / "sensitivities.pickle.jsonl")
    measured = "backbone.blocks6.1.pw_conv.conv.weight"
    assert points == {
        **{(path, 0.5): known[name][0.5] for name, path in names.items()},
        (measured, 0.5): pytest.approx(points_in(pruned / "sensitivities.jsonl")[measured, 0.5], abs=1e-6),
    }
    assert set(read_ratio_file(tmp_path / "ratios.yml").ratios) <= {path for path, _ in points}


@pytest.mark.once("test-all")  # adapters/det/test_det_trainer.py goes on with a training, on both stacks
def test_a_fine_tuning_goes_on_from_a_checkpoint(pruned, layout_options, capfd):
    """The run of the fixture had one epoch; one more is added to it."""
    run_tool(
        "det_sensitivity", *layout_options, "epoch=2", "--steps", "train", "--resume", pruned / "model_final"
    )
    assert score(capfd.readouterr().out) > 0
    assert paddle.load(str(pruned / "model_final.pdopt"))["last_epoch"] == 2
    assert not (pruned / "0.pdparams").exists()  # the first epoch was not repeated


@pytest.fixture
def slim(tmp_path):
    def write(**section):
        path = tmp_path / "slim.yml"
        path.write_text(yaml.safe_dump({"slim": "Pruner", "Pruner": section}))
        return path

    return write


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--steps", "ratios", "--flops", "0.3", "--loss", "0.1"], "not by --loss and --flops at once"),
        (["--steps", "ratios"], "Say how much to prune"),
        (["--steps", "sweep", "--gpus_per_worker", "2"], "--gpus_per_worker goes with --ray"),
        (["--steps", "ratios", "--loss", "0.1", "-s", "none.jsonl"], "run the step sweep first"),
        (["--steps", "prune", "--ratios_file", "none.yml"], "none.yml cannot be read"),
        (["--steps", "train", "--save", "none"], "run the step prune first"),
        (["--steps", "sweep", "--pruned_ratios", "1.5"], "1.5"),
        (["--steps", "train", "--resume", "none"], "none.pdparams is not there"),
        (["--steps", "prune", "train", "--resume", "none"], "--resume continues a fine-tuning"),
    ],
)
def test_bad_options_are_sentences(layout_options, options, sentence, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=f"error: .*{sentence}"):
        run_tool("det_sensitivity", *layout_options, *options)


def test_a_file_that_holds_no_sensitivities_is_a_sentence(layout_options, tmp_path):
    (tmp_path / "notes.txt").write_text("not a journal\n")
    options = ("--steps", "ratios", "--loss", "0.1", "--sensitivities_file", tmp_path / "notes.txt")
    with pytest.raises(SystemExit, match="holds no sensitivities"):
        run_tool("det_sensitivity", *layout_options, *options)


def test_ratios_for_another_criterion_are_refused(layout_options, slim):
    path = slim(criterion="l1_norm", pruned_params=["backbone.conv1.conv.weight"], pruned_ratios=[0.5])
    prune = ("--steps", "prune", "--ratios_file", path, "--criterion", "l2")
    with pytest.raises(SystemExit, match="give --criterion l1"):
        run_tool("det_sensitivity", *layout_options, *prune)


def test_a_flat_ratio_file_is_read_as_one(layout_options, tmp_path):
    """As `dysens ratios` and the page of the report write it; the ratio shows that it was read so."""
    flat = tmp_path / "ratios.yml"
    flat.write_text("backbone.conv1.conv.weight: 1.5\n")
    with pytest.raises(SystemExit, match=r"ratio of backbone\.conv1\.conv\.weight must be .* not 1\.5"):
        run_tool("det_sensitivity", *layout_options, "--steps", "prune", "--ratios_file", flat)


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--pruned_ratios=a b", '"a" is not a number'),
        ("--criterion=fpmg", 'did you mean "fpgm"?'),
        ("--steps=everything", "there are sweep, ratios, prune, train"),
        ("--pruned_ratio=0.5", 'did you mean "--pruned_ratios"?'),
    ],
)
def test_options_that_cannot_be_read_are_invalid_usage(option, sentence, capsys):
    with pytest.raises(SystemExit) as ended:
        run_tool("det_sensitivity", "-c", "any.yml", option)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_a_config_that_is_not_there_is_a_sentence():
    with pytest.raises(SystemExit, match=r'error: The config "none\.yml" cannot be read'):
        run_tool("det_sensitivity", "-c", "none.yml", "--print_params")


def test_a_config_of_the_other_framework_is_a_sentence():
    config = ROOT / "configs" / "ocr" / "ch_PP-OCRv3_det.yml"
    with pytest.raises(SystemExit, match=r"is a config of PaddleOCR, and det_sensitivity\.py takes"):
        run_tool("det_sensitivity", "-c", config, "--print_params")
