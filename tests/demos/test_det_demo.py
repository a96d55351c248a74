"""The PaddleDetection demo from beginning to end, on a few small pages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from demos.stories import check_table

from dysens.costs import model_files
from dysens.demos._story import demo_parser, run_demo
from dysens.demos.det import SETTINGS, main, make_task

CONFIGS = Path(__file__).parents[2] / "configs" / "det"
# Half of the size that the detector was trained for: it still finds something, and a forward takes a quarter of the time.
SIZE = "[416, 320]"
NORMALIZE = "NormalizeImage: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225], is_scale: true}"
SMALL = (
    "TestReader.inputs_def.image_shape=[3, 416, 320]",
    f"EvalReader.sample_transforms=[Decode: {{}}, Resize: {{target_size: {SIZE}, keep_ratio: false}}, {NORMALIZE}, "
    "Permute: {}]",
    f"TrainReader.batch_transforms=[BatchRandomResize: {{target_size: {SIZE}, random_size: false, random_interp: false, "
    f"keep_ratio: false}}, {NORMALIZE}, Permute: {{}}]",
)


@pytest.mark.parametrize(("by", "exported"), [("compress", "inference"), ("search", "exported")])
def test_the_whole_story(tmp_path, capsys, by, exported):
    quick = SETTINGS["layout"].quick()
    setting = replace(
        quick,
        images=dict.fromkeys(quick.images, 2),
        grid=(0.5,),
        target_loss=0.9,
        overrides=(*quick.overrides, *SMALL),
    )
    arguments = ["--by", by, "--quick", "--output", str(tmp_path), "--configs", str(CONFIGS)]
    run_demo(demo_parser(None, SETTINGS, "det").parse_args(arguments), {"layout": setting}, make_task)
    check_table(capsys.readouterr().out, lowest_score=0.2, flops_left=0.74)
    folder = tmp_path / "layout"
    assert model_files(folder / exported / "model")
    assert len(yaml.safe_load((folder / exported / "infer_cfg.yml").read_text())["label_list"]) == 10
    assert (folder / "picodet_lcnet_layout_pruned" / "model_final.plan.json").is_file()


def test_configs_that_are_not_there(tmp_path):
    with pytest.raises(SystemExit, match=r"error: There is no config nowhere/picodet_lcnet_layout\.yml"):
        main(["--quick", "--output", str(tmp_path), "--configs", "nowhere"])
