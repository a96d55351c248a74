"""What can be cut from PaddleDetection's networks, and that blocks still fuse after the cut."""

from __future__ import annotations

import numpy as np
import paddle
from networks import randomize

from dysens import DygraphSensitivity
from dysens.adapters.det import DetTask
from dysens.groups.roles import tensors_by_path


def features(task: DetTask) -> list[np.ndarray]:
    task.model.eval()
    with paddle.no_grad():
        maps = task.model.neck(task.model.backbone(task.example_inputs))
    return [each.numpy() for each in maps]


def test_repvgg_blocks_of_pp_yoloe_fuse_after_the_cut(config):
    """Two branches of each block add up to one convolution; the heads make the output, and all before them can be cut."""
    task = DetTask(config("ppyoloe_crn_s_shapes"), input_size=(96, 64))
    model = task.model
    randomize(model)
    ds = DygraphSensitivity(model, task.example_inputs, criterion="l1")
    paths = {tensor.name: path for path, tensor in tensors_by_path(model).items()}
    assert {paths[name].rpartition(".")[0].rstrip("0123456789.") for name in ds.unprunable} == {
        "yolo_head.pred_cls",
        "yolo_head.pred_reg",
        "yolo_head.proj_conv",
    }
    random = np.random.default_rng(0)
    ds.prune_vars({group.name: random.uniform(0.1, 0.6) for group in ds.groups})
    before = features(task)
    blocks = [layer for layer in model.sublayers() if hasattr(layer, "convert_to_deploy")]
    assert len(blocks) > 10
    for block in blocks:
        block.convert_to_deploy()
    for one, other in zip(before, features(task)):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-4 * np.abs(one).max())
    assert task.model(task.example_inputs)["bbox"].shape[1] == 6
