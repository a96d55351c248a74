"""A short training leaves what a network knows: statistics that fit, and weights that an untrained branch would disturb."""

from __future__ import annotations

import logging

import numpy as np
import paddle
import pytest
from paddle import nn

from dysens.adapters.ocr import FineTuning, OcrTask, fine_tuning_of, train
from dysens.adapters.ocr._fine_tuning import norms_of
from dysens.pruning import read_state, save_pruned

SMALL_TRAINING = (
    "Train.loader.batch_size_per_card=3",
    "Train.dataset.transforms.2.EastRandomCropData.size=[224,160]",
)


@pytest.fixture
def detector(config, tmp_path):
    """Builds the released PP-OCRv3 detector on crops that text is read in."""

    def build(*overrides: str) -> OcrTask:
        training = ("Global.epoch_num=1", f"Global.save_model_dir={tmp_path}", "Train.loader.shuffle=false")
        return OcrTask(config("ch_PP-OCRv3_det", *SMALL_TRAINING, *training, *overrides))

    return build


def statistics(task, but="head.thresh."):
    return {
        name: tensor.numpy().copy()
        for name, tensor in task.network.state_dict().items()
        if name.endswith(("._mean", "._variance")) and not name.startswith(but)
    }


def test_a_released_detector_keeps_its_statistics_and_trains_its_new_branch(detector, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="dysens.adapters")
    task = detector()
    before = statistics(task)
    weights = {name: tensor.numpy().copy() for name, tensor in task.network.state_dict().items()}
    train(task)
    assert "The weights have nothing for the branch that only training runs (head.thresh)" in caplog.text
    assert "Batch norms keep their statistics: the loss on training images is" in caplog.text
    for name, value in statistics(task).items():
        np.testing.assert_array_equal(value, before[name])
    after = task.network.state_dict()
    moved = {name for name in weights if (after[name].numpy() != weights[name]).any()}
    assert {"head.thresh.conv_bn1._mean", "head.thresh.conv1.weight", "backbone.conv.conv.weight"} <= moved
    # Nothing of it stays with the network, and a run that goes on trains in the same way.
    assert not any(layer._use_global_stats for layer in norms_of(task.network))
    caplog.clear()
    resumed = detector(f"Global.checkpoints={tmp_path / 'latest'}", "Global.epoch_num=2")
    train(resumed, resume=tmp_path / "latest")
    for name, value in statistics(resumed).items():
        np.testing.assert_array_equal(value, before[name])
    assert "Batch norms" not in caplog.text  # the checkpoint knows


def test_statistics_that_do_not_fit_are_left_behind(detector):
    task = detector()
    assert fine_tuning_of(task) == FineTuning(("head.thresh",), frozen_norms=True)
    for layer in norms_of(task.network):
        layer._variance.set_value(layer._variance * 50)
    before = statistics(task)
    assert fine_tuning_of(task) == FineTuning(("head.thresh",), frozen_norms=False)
    for name, value in statistics(task).items():  # measuring leaves nothing behind
        np.testing.assert_array_equal(value, before[name])


def test_statistics_are_compared_on_a_part_of_a_large_batch(detector, monkeypatch):
    """A stock recogniser has 128 lines in a batch: their loss alone takes a minute for each way."""
    monkeypatch.setattr("dysens.adapters.ocr._fine_tuning.LINES", 2)
    task = detector()
    seen: list[int] = []
    hook = task.network.register_forward_pre_hook(
        lambda layer, inputs: seen.append(len(inputs[0])) if layer.training else None
    )
    assert fine_tuning_of(task).frozen_norms
    hook.remove()
    assert set(seen) == {2}


@pytest.mark.parametrize("frozen", [True, False])
def test_a_config_may_decide(frozen, detector):
    assert fine_tuning_of(detector(f"+Global.freeze_norm={frozen}")).frozen_norms is frozen


def test_a_new_branch_is_known_after_saving_until_it_was_trained(detector, tmp_path):
    task = detector("+Global.freeze_norm=true")
    save_pruned(task.network, tmp_path / "saved")
    assert fine_tuning_of(detector(f"Global.pretrained_model={tmp_path / 'saved'}")).new_branches == (
        "head.thresh",
    )
    train(task)
    assert "head.thresh.conv1.weight" in read_state(tmp_path / "latest.pdparams")
    trained = detector(f"Global.pretrained_model={tmp_path / 'latest'}", "+Global.freeze_norm=true")
    assert fine_tuning_of(trained).new_branches == ()


class Guided(nn.Layer):
    """A backbone, a branch that is used, and one of two parts that only guides it."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.ctc = nn.Linear(4, 4), nn.Linear(4, 2)
        self.before_gtc, self.gtc = nn.Linear(4, 3), nn.Linear(3, 2)
        self.use_guide = True

    def forward(self, x: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        """As PaddleOCR's MultiHead: with a guide, the CTC loss stays out of the backbone."""
        x = self.backbone(x)
        used = self.ctc(x.detach() if self.use_guide else x)
        return used, self.gtc(self.before_gtc(x))


def reached(network, loss):
    network.clear_gradients()
    loss.backward()
    return {
        name.partition(".")[0]
        for name, each in network.named_parameters()
        if each.grad is not None and float(each.grad.abs().sum()) > 0
    }


def test_gradients_do_not_leave_a_new_branch():
    network, images = Guided(), paddle.ones([2, 4])
    with FineTuning(("before_gtc", "gtc")).applied(network):
        for _ in range(2):
            used, guide = network(images)
            assert reached(network, guide.sum()) == {"before_gtc", "gtc"}
            used, guide = network(images)
            assert reached(network, used.sum()) == {"ctc", "backbone"}
    assert reached(network, network(images)[1].sum()) == {"before_gtc", "gtc", "backbone"}
    assert reached(network, network(images)[0].sum()) == {"ctc"}
