from __future__ import annotations

import numpy as np
import pytest
import yaml

from dysens.adapters.det import DetTask, export
from dysens.adapters.det.export import InferenceModel
from dysens.errors import InputError
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
