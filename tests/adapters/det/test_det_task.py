from __future__ import annotations

import numpy as np
import paddle
import pytest

from dysens.adapters.det import DetTask
from dysens.errors import InputError

NETWORKS = ["yolov3_mobilenet_v1_shapes", "ppyoloe_crn_s_shapes", "picodet_s_shapes"]


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_run_in_both_modes(config, name):
    task = DetTask(config(name))
    task.model.eval()
    outputs = task.model(task.example_inputs)
    assert outputs["bbox"].shape[1] == 6
    assert int(outputs["bbox_num"].sum()) == outputs["bbox"].shape[0]

    task.model.train()
    loss = task.model(task.train_inputs)["loss"]
    loss.backward()
    assert np.isfinite(float(loss))
    assert any(parameter.grad is not None for parameter in task.model.parameters())


def test_layout_network_runs_in_training_mode(layout):
    task = DetTask(layout.config, input_size=(160, 128))
    task.model.train()
    inputs = task.train_inputs
    assert list(inputs["image"].shape) == [2, 3, 160, 128]
    assert np.isfinite(float(task.model(inputs)["loss"]))


def test_example_inputs_have_the_configured_size(picodet):
    assert picodet.input_size == (192, 192)
    inputs = picodet.example_inputs
    assert list(inputs["image"].shape) == [1, 3, 192, 192]
    assert inputs["im_shape"].numpy().tolist() == [[192.0, 192.0]]
    assert np.array_equal(inputs["image"].numpy(), picodet.example_inputs["image"].numpy())


def test_example_inputs_follow_an_export_shape_with_a_batch_side(config):
    task = DetTask(config("picodet_s_shapes", "TestReader.inputs_def.image_shape=[1, 3, 96, 64]"))
    assert task.input_size == (96, 64)


def test_without_an_export_shape_the_size_of_the_evaluation_counts(config):
    assert DetTask(config("picodet_s_shapes", "TestReader.inputs_def=null")).input_size == (192, 192)


def test_the_size_of_the_evaluation_is_padded_as_its_batches_are(config):
    overrides = "TestReader.inputs_def=null", "EvalReader.batch_transforms=[PadBatch: {pad_to_stride: 128}]"
    assert DetTask(config("picodet_s_shapes", *overrides)).input_size == (256, 256)


def test_an_unknown_size_is_a_sentence(config):
    unknown = config("picodet_s_shapes", "TestReader.inputs_def.image_shape=[3, -1, -1]")
    with pytest.raises(InputError, match="does not say how large its images are"):
        DetTask(unknown)
    assert DetTask(unknown, input_size=(64, 64)).input_size == (64, 64)


def test_train_inputs_are_the_same_at_every_call_and_leave_the_generators_alone(picodet):
    np.random.seed(7)
    expected = np.random.rand()
    np.random.seed(7)
    first, second = picodet.train_inputs, picodet.train_inputs
    assert np.random.rand() == expected
    assert np.array_equal(first["image"].numpy(), second["image"].numpy())
    assert first["gt_bbox"].shape[0] == 2


def test_train_inputs_leave_the_reader_as_it_was(picodet):
    before = repr(dict(picodet.config["TrainReader"]))
    DetTask(picodet.config, input_size=(256, 224)).train_inputs  # noqa: B018
    assert repr(dict(picodet.config["TrainReader"])) == before


def test_missing_training_data_is_a_sentence(config, tmp_path):
    task = DetTask(config("picodet_s_shapes", f"TrainDataset.dataset_dir={tmp_path}"))
    with pytest.raises(InputError, match=r"TrainDataset.*which is not there.*TrainDataset\.dataset_dir=path"):
        task.train_inputs  # noqa: B018


def test_one_training_image_is_enough(config):
    inputs = DetTask(config("picodet_s_shapes", "TrainDataset.sample_num=1")).train_inputs
    assert inputs["image"].shape[0] == 1


def test_a_device_that_is_not_there_is_a_sentence(config):
    if paddle.is_compiled_with_cuda():
        pytest.skip("this Paddle has CUDA")
    with pytest.raises(InputError, match="use_gpu=false"):
        DetTask(config("picodet_s_shapes", "use_gpu=true"))


def test_an_architecture_that_ppdet_does_not_have_is_a_sentence(config):
    with pytest.raises(InputError, match="cannot be built by ppdet"):
        DetTask(config("picodet_s_shapes", "architecture=PicoDot"))
