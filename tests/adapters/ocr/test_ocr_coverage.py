"""What can be cut from PaddleOCR's networks: branches of training go with the rest, and blocks still fuse after the cut."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from networks import randomize

from dysens import DygraphSensitivity
from dysens.adapters.ocr import OcrTask, reparameterize

SMALL = ("Train.loader.batch_size_per_card=2", "Global.d2s_train_image_shape=[3, 48, 80]")
SMALL_DET = ("Train.dataset.transforms.2.EastRandomCropData.size=[96,64]",)


def random_ratios(ds: DygraphSensitivity) -> dict[str, float]:
    random = np.random.default_rng(0)
    return {group.name: random.uniform(0.1, 0.6) for group in ds.groups}


@pytest.mark.parametrize(
    ("name", "branch"),
    [
        pytest.param("ch_PP-OCRv3_rec", "head.sar_head.", marks=pytest.mark.once("test-all")),
        pytest.param("ch_PP-OCRv4_rec", "head.before_gtc.", marks=pytest.mark.once("paddle3")),
    ],
)
def test_the_backbone_is_pruned_together_with_the_branch_of_training(config, name, branch):
    """MultiHead's second branch takes in what the backbone gives, and runs in training only."""
    task = OcrTask(config(name, *SMALL))
    model = task.model
    model.train()
    ds = DygraphSensitivity(model, task.example_inputs, criterion="l1", train_inputs=task.train_inputs)
    both = [
        group
        for group in ds.groups
        if any(layer.startswith("backbone.") for layer in group.layers)
        and any(layer.startswith(branch) for layer in group.layers)
    ]
    assert len(both) == 1
    ds.prune_vars(random_ratios(ds))
    images, labels = task.train_inputs
    loss = task.loss()(model(images, labels), [images, *labels])["loss"]
    loss.backward()
    assert np.isfinite(float(loss))
    cut = {name for name, _ in both[0].members}
    shrunk = [p for p in model.parameters() if p.name in cut and not p.stop_gradient]
    assert len(shrunk) > 4
    assert all(p.grad is not None and p.grad.shape == p.shape for p in shrunk)


@pytest.mark.once("paddle26")
def test_pp_lcnet_v3_fuses_after_the_cut(config):
    """Every block of the unfused backbone has several branches; cut, they still add up to one convolution."""
    backbone = OcrTask(config("ch_PP-OCRv4_det", "Global.pretrained_model=null", *SMALL_DET)).model.backbone
    randomize(backbone)
    ds = DygraphSensitivity(backbone, [1, 3, 64, 64], criterion="l1")
    ds.prune_vars(random_ratios(ds))
    before = answer(backbone)
    assert reparameterize(backbone) > 10
    for one, other in zip(before, answer(backbone)):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-5 * np.abs(one).max())


def answer(backbone: paddle.nn.Layer) -> list[np.ndarray]:
    backbone.eval()
    paddle.seed(3)
    with paddle.no_grad():
        return [each.numpy() for each in backbone(paddle.rand([1, 3, 64, 64]))]
