"""PaddleOCR's own loop trains what it is handed, and goes on where it was."""

from __future__ import annotations

import logging
import pickle
import re

import numpy as np
import paddle
import pytest

from dysens.adapters.ocr import OcrTask, train
from dysens.errors import InputError
from dysens.pruning import has_plan, read_state

# No augmentation, the same order in each epoch, every loss in the log: so two runs can be compared step by step.
TINY = [
    "Architecture.Backbone.scale=0.35",
    "Architecture.Backbone.model_name=small",
    "Architecture.Neck.hidden_size=16",
    "Train.dataset.transforms.2.RecResizeImg.image_shape=[3,32,96]",
    "Train.loader.batch_size_per_card=4",
    "Train.loader.shuffle=false",
    "Global.print_batch_step=1",
    "Global.log_smooth_window=1",
    "Global.save_epoch_step=1",
]


def build(config, folder, *overrides):
    return OcrTask(
        config("rec_mv3_crnn", *TINY, "Global.epoch_num=2", f"Global.save_model_dir={folder}", *overrides)
    )


def losses(caplog):
    """The loss of each step that the loop reported."""
    text = "\n".join(record.getMessage() for record in caplog.records)
    return {
        int(step): float(loss) for step, loss in re.findall(r"global_step: (\d+),.*? loss: ([\d.]+)", text)
    }


def test_training_goes_on_where_it_was(config, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="dysens.adapters.ocr")
    task = build(config, tmp_path)
    before = task.model.parameters()[0].numpy().copy()
    train(task)
    assert (task.model.parameters()[0].numpy() != before).any()
    in_one_go = losses(caplog)
    assert list(in_one_go) == [1, 2, 3, 4, 5, 6]
    caplog.clear()
    halfway = tmp_path / "iter_epoch_1"
    train(build(config, tmp_path, f"Global.checkpoints={halfway}"), resume=halfway)
    assert losses(caplog) == pytest.approx({step: in_one_go[step] for step in (4, 5, 6)}, rel=2e-4)


def test_resuming_from_nothing(config, tmp_path):
    with pytest.raises(InputError, match=r"cannot continue from .*latest\.pdparams"):
        train(build(config, tmp_path), resume=tmp_path / "latest")


def test_resuming_with_damaged_files(config, tmp_path):
    train(build(config, tmp_path))
    halfway = tmp_path / "iter_epoch_1"
    task = build(config, tmp_path, f"Global.checkpoints={halfway}")
    for ending, content in (
        *((".states", content) for content in ([1], {"epoch": "one"}, {"best_model_dict": 7})),
        *((".pdopt", content) for content in ([1], {"LR_Scheduler": 7})),
        (".pdparams", {**read_state(f"{halfway}.pdparams"), "StructuredToParameterName@@": 7}),
    ):
        path = halfway.with_name(halfway.name + ending)
        whole = path.read_bytes()
        path.write_bytes(pickle.dumps(content))
        with pytest.raises(InputError, match=rf"iter_epoch_1\{ending}"):
            train(task, resume=halfway)
        path.write_bytes(whole)


def test_incomplete_config(config, tmp_path):
    task = build(config, tmp_path)
    del task.config["Global"]["eval_batch_step"]
    with pytest.raises(InputError, match=r"needs Global.eval_batch_step"):
        train(task)


def test_without_a_gpu_mixed_precision_is_left_out_and_the_best_is_kept(config, tmp_path, caplog):
    task = build(config, tmp_path, "+Global.use_amp=true")
    train(task)
    if not paddle.is_compiled_with_cuda():
        assert "training goes on in single precision" in caplog.text
    best = read_state(
        tmp_path / "best_accuracy.pdparams"
    )  # scored at least once, though the config says never
    for name, tensor in task.network.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), best[name])
    assert has_plan(tmp_path / "best_accuracy")
