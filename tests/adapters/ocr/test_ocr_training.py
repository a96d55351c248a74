"""PaddleOCR's own loop trains what it is handed, and goes on where it was."""

from __future__ import annotations

import importlib
import logging
import pickle
import re
import signal
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from interrupting import interrupts_raise
from paddle.nn import functional

from dysens.adapters.ocr import OcrTask, load_ppocr, train
from dysens.adapters.ocr._training import _plans_beside_checkpoints, quick_log_softmax
from dysens.errors import InputError
from dysens.pruning import has_plan, read_state
from dysens.sensitivity import DygraphSensitivity

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


def test_a_short_epoch_is_reported_although_the_config_reports_seldom(config, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="dysens.adapters.ocr")
    task = build(config, tmp_path, "Global.print_batch_step=100", "Global.epoch_num=1")
    train(task)
    steps = len(task.train_dataloader())
    assert 1 < len(losses(caplog)) <= steps
    assert task.config["Global"]["print_batch_step"] == 100


def test_ctrl_c_leaves_no_half_of_a_checkpoint(tmp_path):
    """It comes between the optimizer and the weights, and waits for weights and plan."""
    network = paddle.nn.Conv2D(3, 8, 3)

    def save_model(model, optimizer, folder, prefix):
        Path(folder, f"{prefix}.pdopt").touch()
        signal.raise_signal(signal.SIGINT)
        paddle.save(model.state_dict(), f"{folder}/{prefix}.pdparams")

    loop = SimpleNamespace(save_model=save_model)
    with interrupts_raise(), pytest.raises(KeyboardInterrupt), _plans_beside_checkpoints(loop):
        loop.save_model(network, None, str(tmp_path), prefix="latest")
    assert read_state(tmp_path / "latest.pdparams").keys() == {"weight", "bias"}
    assert has_plan(tmp_path / "latest")
    assert loop.save_model is save_model


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


def test_log_softmax_is_the_same_and_quick_while_training(config, tmp_path, monkeypatch):
    """Paddle's own takes minutes for a batch of a recogniser with 18,000 characters, so no training may get to it."""
    logits = [paddle.uniform([6, 40], min=-20, max=20, seed=1) for _ in range(2)]
    answers = []
    for values, how in zip(logits, (nullcontext, quick_log_softmax)):
        values.stop_gradient = False
        with how():
            answer = functional.log_softmax(values, axis=1)
        answer[:, :3].sum().backward()
        answers.append((answer.numpy(), values.grad.numpy()))
    for theirs, ours in zip(*answers):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)

    def slow(*arguments, **named):
        raise AssertionError("Paddle's own was called")

    monkeypatch.setattr(functional, "log_softmax", slow)
    task = OcrTask(
        config(
            "PP-OCRv5_mobile_rec",
            "Global.epoch_num=1",
            "Global.pretrained_model=null",
            "Train.loader.batch_size_per_card=4",
            f"Global.save_model_dir={tmp_path}",
        )
    )
    train(task)
    assert functional.log_softmax is slow
    assert has_plan(tmp_path / "best_accuracy")


class DecaySchedule:
    """Halves the weight decay in every step, as one of PaddleOCR's own would lower it."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self):
        self.optimizer.regularization._coeff *= 0.5


AVERAGE = """
class ModelEMA:
    def __init__(self, model, decay=0.9998, gamma=2000, ema_decay_type="threshold", ema_filter_no_grad=False):
        self.decay, self.kind = decay, ema_decay_type
        self.shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
"""


@pytest.fixture
def newer(monkeypatch, tmp_path):
    """PaddleOCR with what newer versions have: a third result of `build_optimizer`, and averages of weights."""
    ppocr = load_ppocr()
    given = {}

    def build_optimizer(*arguments, **named):
        optimizer, schedule = ppocr.build_optimizer(*arguments, **named)
        return optimizer, schedule, DecaySchedule(optimizer)

    def loop(*arguments, wd_scheduler=None, ema=None, original=ppocr.program.train):
        given.update(decay=wd_scheduler, average=ema)
        original(*arguments)

    def use(task):
        task._ppocr = replace(ppocr, build_optimizer=build_optimizer)
        monkeypatch.setattr(ppocr.program, "train", loop)
        return given

    folder = tmp_path / "newer"
    folder.mkdir()
    (folder / "ema.py").write_text(AVERAGE)
    utilities = importlib.import_module("ppocr.utils")
    monkeypatch.setattr(utilities, "__path__", [*utilities.__path__, str(folder)])
    importlib.invalidate_caches()
    yield use
    sys.modules.pop("ppocr.utils.ema", None)


EMA = ("+Global.use_ema=true", "+Global.ema_decay=0.75", "+Global.ema_decay_type=normal")


def test_schedules_and_averages_of_newer_versions_are_built_after_the_cut(config, newer, tmp_path):
    task = build(config, tmp_path, "Global.epoch_num=1", *EMA)
    ds = DygraphSensitivity(task.model, task.example_inputs)
    ds.prune_vars({ds.groups[0].path: 0.5})
    given = newer(task)
    train(task)
    assert given["average"].shapes == {
        name: tensor.shape for name, tensor in task.network.state_dict().items()
    }
    assert (given["average"].decay, given["average"].kind) == (0.75, "normal")
    decayed = [each.shape for each in given["decay"].optimizer._parameter_list]
    assert decayed == [each.shape for each in task.network.parameters() if not each.stop_gradient]


def test_a_loop_that_does_not_take_the_schedule(config, newer, tmp_path, monkeypatch):
    task = build(config, tmp_path)
    before = load_ppocr().program.train
    newer(task)
    monkeypatch.setattr(load_ppocr().program, "train", before)
    with pytest.raises(InputError, match=r"returns more than its loop .* takes: DecaySchedule"):
        train(task)


def test_a_version_without_averages_says_so(config, tmp_path, caplog):
    train(build(config, tmp_path, "Global.epoch_num=1", *EMA))
    assert "which this version of PaddleOCR does not have: training goes on without it" in caplog.text


# What PaddleOCR 3's files for PP-OCRv5 have in `Global`, and configs of our own have not.
STOCK = {
    "debug": False,
    "use_gpu": True,
    "distributed": True,
    "use_visualdl": False,
    "infer_img": "doc/imgs_en/img_10.jpg",
    "save_inference_dir": None,
    "save_res_path": "checkpoints/predicts.txt",
    "eval_batch_step": [0, 1500],
    "calc_epoch_interval": 1,
    "print_batch_step": 1,
    "epoch_num": 1,
}


def stock_task(given, folder, transforms, **train):
    """A task with the keys of a stock config: these transforms of `Train`, and its other sections updated."""
    given["Global"] |= {**STOCK, "save_model_dir": str(folder), "d2s_train_image_shape": [3, 64, 96]}
    given["profiler_options"] = None
    given["Train"]["dataset"] |= {"transforms": transforms, **train.pop("dataset", {})}
    given["Train"] |= train
    given["Train"]["loader"] |= {"drop_last": False, "num_workers": 0, "batch_size_per_card": 4}
    return OcrTask(given)


def check_trained(task, folder, caplog):
    before = task.model.parameters()[0].numpy().copy()
    task.model.eval()
    assert task.train_inputs[0].shape[0] == 2  # drawn images take the same way
    train(task)
    assert (task.model.parameters()[0].numpy() != before).any()
    assert losses(caplog)
    assert has_plan(folder / "best_accuracy")
    exported = task.export(folder / "inference")
    assert (folder / "inference" / "inference.yml").is_file()
    assert exported.difference < 1e-4


def test_a_recogniser_with_the_keys_of_a_stock_config_trains(config, tmp_path, caplog):
    """Images of several heights from a sampler of their own, lines joined to longer ones, and augmentation."""
    caplog.set_level(logging.INFO, logger="dysens.adapters.ocr")
    transforms = [
        {"DecodeImage": {"img_mode": "BGR", "channel_first": False}},
        {"RecConAug": {"prob": 0.5, "ext_data_num": 2, "image_shape": [32, 96, 3], "max_text_length": 25}},
        {"RecAug": None},
        {"CTCLabelEncode": None},
        {"KeepKeys": {"keep_keys": ["image", "label", "length", "valid_ratio"]}},
    ]
    sampler = {
        "name": "MultiScaleSampler",
        "scales": [[96, 32], [96, 32]],
        "first_bs": 4,
        "fix_bs": False,
        "divided_factor": [8, 16],
        "is_training": True,
    }
    dataset = {"name": "MultiScaleDataSet", "ds_width": False, "ext_op_transform_idx": 1}
    given = config("rec_mv3_crnn", *TINY)
    check_trained(stock_task(given, tmp_path, transforms, dataset=dataset, sampler=sampler), tmp_path, caplog)


def test_a_detector_with_the_keys_of_a_stock_config_trains(config, tmp_path, caplog):
    """Text that is copied and pasted, flips, rotations, and maps that shrink with the epochs."""
    caplog.set_level(logging.INFO, logger="dysens.adapters.ocr")
    flips = [
        {"type": "Fliplr", "args": {"p": 0.5}},
        {"type": "Affine", "args": {"rotate": [-10, 10]}},
        {"type": "Resize", "args": {"size": [0.5, 3]}},
    ]
    given = config("det_mv3_db")
    normalize = next(each for each in given["Train"]["dataset"]["transforms"] if "NormalizeImage" in each)
    transforms = [
        {"DecodeImage": {"img_mode": "BGR", "channel_first": False}},
        {"DetLabelEncode": None},
        {"CopyPaste": None},
        {"IaaAugment": {"augmenter_args": flips}},
        {"EastRandomCropData": {"size": [96, 64], "max_tries": 50, "keep_ratio": True}},
        {"MakeBorderMap": {"shrink_ratio": 0.4, "thresh_min": 0.3, "thresh_max": 0.7, "total_epoch": 1}},
        {"MakeShrinkMap": {"shrink_ratio": 0.4, "min_text_size": 8, "total_epoch": 1}},
        normalize,
        {"ToCHWImage": None},
        {
            "KeepKeys": {
                "keep_keys": ["image", "threshold_map", "threshold_mask", "shrink_map", "shrink_mask"]
            }
        },
    ]
    check_trained(stock_task(given, tmp_path, transforms), tmp_path, caplog)
