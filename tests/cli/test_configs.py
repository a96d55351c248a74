"""Configs of PaddleOCR and PaddleDetection as models, on a few generated images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dysens import Sensitivities
from dysens.data import Fonts, find_fonts, make_shapes, write_scenes
from dysens.pruning import has_plan

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """PP-OCRv3 det with its released weights, and two small images to score it on."""
    folder = tmp_path_factory.mktemp("scenes")
    write_scenes(folder, 2, 2, (192, 128), Fonts(find_fonts().latin))
    return [
        str(CONFIGS / "ocr" / "ch_PP-OCRv3_det.yml"),
        *("--set", f"Eval.dataset.data_dir={folder}"),
        *("--set", f"Eval.dataset.label_file_list=[{folder}/label.txt]"),
        "--eval-only",
    ]


@pytest.mark.once("paddle3")  # pipeline/test_front_ends.py goes the same way, and further, on the other stack
def test_a_paddleocr_config_from_sweep_to_pruned_checkpoint(dysens, scenes):
    words = [
        "--only",
        "backbone.conv.conv.weight,head.binarize.*",
        "--ratios",
        "0.25,0.75",
        "--fast",
        "off",
        "--json",
    ]
    swept = dysens("sweep", *scenes, *words)
    assert swept.code == 0, swept.err
    sens = Sensitivities.load("sens.jsonl")
    assert len(json.loads(swept.out)["groups"]) == len(sens) == 3
    assert sens.baseline > 0.5
    assert "scored by DetMetric.hmean on" in dysens("show", "sens.jsonl").out

    cut = dysens("prune", *scenes, "sens.jsonl", "--flops", "0.01", "-o", "out/pruned", "--json")
    assert cut.code == 0, cut.err
    outcome = json.loads(cut.out)
    assert outcome["flops_after"] <= 0.99 * outcome["flops_before"]
    assert has_plan("out/pruned")
    assert outcome["metric"] == "hmean"
    assert outcome["score_before"] == pytest.approx(sens.baseline)
    assert 0 <= outcome["score_after"] <= 1
    again = dysens("groups", *scenes, "--weights", "out/pruned.pdparams", "--json")
    widths = {group["path"]: group["channels"] for group in json.loads(again.out)["groups"]}
    assert {group["path"]: group["after"] for group in outcome["groups"]}.items() <= widths.items()


@pytest.mark.once("paddle26")
def test_a_cut_whose_pictures_are_missing_is_made_and_said_not_to_be_scored(dysens, scenes):
    Path("r.yml").write_text("backbone.conv.conv.weight: 0.25\n")
    missing = ("--set", "Eval.dataset.label_file_list=[nowhere.txt]")
    done = dysens("prune", *scenes, *missing, "r.yml", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["metric"] is None
    assert "The cut is not scored. " in done.err
    assert "nowhere.txt" in done.err


@pytest.mark.once("paddle26")
def test_groups_are_listed_without_training_data_and_without_a_download(dysens, scenes):
    """The training forward is looked at, too."""
    settings = (
        "Train.dataset.label_file_list=[nowhere.txt]",
        "Global.pretrained_model=https://nowhere.invalid/x",
    )
    done = dysens("groups", *scenes[:-1], *(word for text in settings for word in ("--set", text)), "--json")
    assert done.code == 0, done.err
    assert "https://nowhere.invalid/x are not fetched" in done.err
    assert len(json.loads(done.out)["groups"]) > 20


def test_a_config_without_weights_is_not_swept(dysens):
    done = dysens("sweep", CONFIGS / "ocr" / "det_mv3_db.yml", "--eval-only")
    assert done.code == 1
    assert "random weights" in done.err


@pytest.mark.once("paddle3")  # the other stack goes further with such a config: det_tools
def test_a_paddledetection_config(dysens, tmp_path):
    make_shapes(tmp_path / "shapes", 2, seed=3)
    roles = ("TrainDataset", "EvalDataset", "TestDataset")
    folders = [word for role in roles for word in ("--set", f"{role}.dataset_dir={tmp_path / 'shapes'}")]
    config = CONFIGS / "det" / "picodet_s_shapes.yml"
    done = dysens("groups", config, *folders, "--set", "weights=null", "--eval-only", "--json")
    assert done.code == 0, done.err
    assert len(json.loads(done.out)["groups"]) > 30
    misspelt = dysens("groups", config, "--set", "EvalDatset.dataset_dir=x")
    assert 'did you mean "EvalDataset"?' in misspelt.err
