from __future__ import annotations

import numpy as np
import pytest
import yaml

from dysens.adapters.det import DetTask, export, load_config
from dysens.adapters.det.export import InferenceModel, largest_difference
from dysens.errors import InputError, ProofError
from dysens.sensitivity import DygraphSensitivity

SIZE = "TestReader.inputs_def.image_shape=[3, 64, 64]"


def test_a_pruned_detector_with_fused_branches_is_exported_and_stays_as_it_was(config, tmp_path):
    """PP-YOLOE's RepVGG blocks are fused for export. Untrained, but every box is kept: there is something to compare."""
    task = DetTask(config("ppyoloe_crn_s_shapes", SIZE, "PPYOLOEHead.nms.score_threshold=0.0"))
    ds = DygraphSensitivity(task.model, task.example_inputs)
    group = next(each for each in ds.groups if "conv1" in each.path and "blocks" in each.path)
    ds.prune_vars({group.path: 0.5})
    before = {name: value.numpy().copy() for name, value in task.model.state_dict().items()}
    layers = {name for name, _ in task.model.named_sublayers()}

    done = export(task, tmp_path / "out")
    assert done.difference < 1e-3
    assert done.bytes > 1_000_000
    assert {name for name, _ in task.model.named_sublayers()} == layers
    for name, value in task.model.state_dict().items():
        assert np.array_equal(value.numpy(), before[name]), name

    task.model.eval()
    found = InferenceModel(tmp_path / "out")(task.example_inputs)
    expected = task.model(task.example_inputs)
    assert int(found["bbox_num"][0]) == int(expected["bbox_num"][0]) > 0
    settings = yaml.safe_load((tmp_path / "out" / "infer_cfg.yml").read_text())
    assert settings["label_list"] == ["circle", "square", "triangle"]


def test_boxes_are_compared_image_by_image_and_foreign_names_are_told(layout, tmp_path, caplog):
    """Two pages at once. Without annotations in TestDataset, ppdet would name the ten classes as COCO's eighty."""
    pages = layout.config["EvalDataset"]["dataset_dir"]
    paths = [f"EvalDataset.dataset_dir={pages}", f"TestDataset.dataset_dir={tmp_path}"]
    task = DetTask(load_config(layout.config.path, paths))
    images = task.evaluator.first_inputs()
    assert len(images["image"]) == 2
    done = export(task, tmp_path, images)
    assert done.boxes > 20
    assert 0 < done.difference < 1e-3
    assert "has the names of 80 classes, and the network has 10" in caplog.text


def test_a_box_in_another_image_is_another_box():
    rows = np.array([[0, 0.9, 10, 10, 50, 50], [1, 0.8, 20, 20, 60, 60]], "float32")
    assert largest_difference((rows, np.array([2, 0])), (rows[::-1], np.array([2, 0])), 100) == 0
    with pytest.raises(ProofError, match="2 of 2 differ"):
        largest_difference((rows, np.array([2, 0])), (rows, np.array([0, 2])), 100)


def test_a_sweep_is_served_by_a_compiled_copy_also_with_suppression_in_the_network(layout):
    """On Paddle 3, ppdet's non-maximum suppression can be traced only because the adapter mends it."""
    task = DetTask(layout.config)
    ds = DygraphSensitivity(task.model, task.example_inputs)
    path = "backbone.blocks5.2.pw_conv.conv.weight"
    losses = [
        ds.sensitive(task.evaluator, ratios=[0.5], target_vars=[path], progress=False, fast=fast)
        .points[0]
        .loss
        for fast in ("on", "off")
    ]
    assert losses[0] == pytest.approx(losses[1], abs=0.02)


def test_an_architecture_that_paddledetection_cannot_export_is_a_sentence(picodet, tmp_path, monkeypatch):
    monkeypatch.setitem(picodet.config.values, "architecture", "Nothing")
    with pytest.raises(InputError, match="cannot export the architecture Nothing"):
        export(picodet, tmp_path)
