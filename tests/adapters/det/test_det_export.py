from __future__ import annotations

import numpy as np
import paddle
import pytest
import yaml
from layout_size import HALF_SIZE
from networks import randomize

from dysens.adapters.det import DetTask, export, load_config
from dysens.adapters.det._export import InferenceModel, largest_difference
from dysens.errors import InputError, ProofError
from dysens.model import tensors_by_path
from dysens.sensitivity import DygraphSensitivity


@pytest.mark.once("paddle3")  # one detector a stack: the next is exported on the other
def test_a_pruned_detector_with_fused_branches_is_exported_and_stays_as_it_was(config, tmp_path):
    """PP-YOLOE's RepVGG blocks are fused for export. Untrained, but every box is kept: there is something to compare."""
    task = DetTask(config("ppyoloe_crn_s_shapes", "PPYOLOEHead.nms.score_threshold=0.0"), input_size=(96, 64))
    model = task.model
    randomize(model)
    ds = DygraphSensitivity(model, task.example_inputs, criterion="l1")
    # The heads make the output; all before them can be cut.
    paths = {tensor.name: path for path, tensor in tensors_by_path(model).items()}
    assert {paths[name].rpartition(".")[0].rstrip("0123456789.") for name in ds.unprunable} == {
        "yolo_head.pred_cls",
        "yolo_head.pred_reg",
        "yolo_head.proj_conv",
    }
    random = np.random.default_rng(0)
    ds.prune_vars({group.name: random.uniform(0.1, 0.6) for group in ds.groups})
    before = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    layers = {name for name, _ in model.named_sublayers()}

    done = export(task, tmp_path / "out")
    assert done.difference < 1e-3
    assert done.bytes > 1_000_000
    assert {name for name, _ in model.named_sublayers()} == layers
    for name, value in model.state_dict().items():
        assert np.array_equal(value.numpy(), before[name]), name

    model.eval()
    found = InferenceModel(tmp_path / "out")(task.example_inputs)
    expected = model(task.example_inputs)
    assert int(found["bbox_num"][0]) == int(expected["bbox_num"][0]) > 0
    settings = yaml.safe_load((tmp_path / "out" / "infer_cfg.yml").read_text())
    assert settings["label_list"] == ["circle", "square", "triangle"]

    # The two branches of each block, cut alike, add up to one convolution.
    whole = features(task)
    blocks = [layer for layer in model.sublayers() if hasattr(layer, "convert_to_deploy")]
    assert len(blocks) > 10
    for block in blocks:
        block.convert_to_deploy()
    for one, other in zip(whole, features(task)):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-4 * np.abs(one).max())


def features(task: DetTask) -> list[np.ndarray]:
    task.model.eval()
    with paddle.no_grad():
        maps = task.model.neck(task.model.backbone(task.example_inputs))
    return [each.numpy() for each in maps]


@pytest.mark.once("paddle26")
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


@pytest.mark.once("paddle3")  # on Paddle 2.6 there is nothing to mend
def test_a_sweep_is_served_by_a_compiled_copy_also_with_suppression_in_the_network(layout):
    """On Paddle 3, ppdet's non-maximum suppression can be traced only because the adapter mends it."""
    pages = f"EvalDataset.dataset_dir={layout.config['EvalDataset']['dataset_dir']}"
    task = DetTask(load_config(layout.config.path, [pages, *HALF_SIZE]))
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
