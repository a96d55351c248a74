from __future__ import annotations

import numpy as np
import paddle
import pytest
from ppdet.core.workspace import global_config

from dysens.adapters.det import DetTask, resumed_trainer
from dysens.errors import InputError
from dysens.sensitivity import DygraphSensitivity


@pytest.fixture
def task(config, tmp_path):
    return DetTask(
        config(
            "picodet_s_shapes",
            "epoch=1",
            f"save_dir={tmp_path}",
            "TrainReader.batch_size=2",
            "TrainDataset.sample_num=2",
        )
    )


def test_trainer_trains_the_live_model_and_saves_what_load_reads(task, tmp_path):
    weight = task.model.backbone.conv1.conv.weight
    before = weight.numpy().copy()
    with task.trainer() as trainer:
        assert trainer.model is task.model
        trainer.train(validate=False)
    assert not np.array_equal(weight.numpy(), before)

    trained = weight.numpy().copy()
    weight.set_value(before)
    task.load(tmp_path / "picodet_s_shapes" / "model_final")
    assert np.array_equal(weight.numpy(), trained)


@pytest.mark.parametrize("frozen", [True, False])
def test_batch_norms_keep_their_statistics_where_the_config_says_so(config, tmp_path, frozen):
    overrides = ("epoch=1", f"save_dir={tmp_path}", "TrainReader.batch_size=2", "TrainDataset.sample_num=2")
    task = DetTask(config("picodet_s_shapes", *overrides, f"freeze_norm={str(frozen).lower()}"))
    statistics = {name: value.numpy() for name, value in task.model.state_dict().items() if "_mean" in name}
    weight = task.model.backbone.conv1.conv.weight.numpy()
    task.train()
    after = task.model.state_dict()
    assert statistics
    assert all(np.array_equal(after[name].numpy(), value) for name, value in statistics.items()) is frozen
    assert not np.array_equal(task.model.backbone.conv1.conv.weight.numpy(), weight)


def test_a_training_from_weights_measures_what_batch_norms_should_do(config, tmp_path, caplog):
    overrides = ("epoch=1", f"save_dir={tmp_path}", "TrainReader.batch_size=2", "TrainDataset.sample_num=2")
    built = DetTask(config("picodet_s_shapes", *overrides))
    paddle.save(built.model.state_dict(), str(tmp_path / "weights.pdparams"))
    task = DetTask(config("picodet_s_shapes", *overrides, f"weights={tmp_path / 'weights.pdparams'}"))
    with caplog.at_level("INFO", "dysens"):
        task.train()
    assert "the loss on training images is" in caplog.text
    assert "freeze_norm=" in caplog.text


def test_a_training_that_was_broken_off_goes_on_where_it_was(config, tmp_path):
    """Three epochs in one go, and the last two once more from the first checkpoint, in a network with other automatic names."""
    overrides = (
        "epoch=3",
        f"save_dir={tmp_path}",
        "snapshot_epoch=1",
        "TrainReader.sample_transforms=[Decode: {}]",
        "TrainReader.batch_size=2",
        "TrainReader.shuffle=false",
        "TrainDataset.sample_num=2",
        "use_ema=true",
    )
    task = DetTask(config("picodet_s_shapes", *overrides))
    ds = DygraphSensitivity(task.model, task.example_inputs)
    ds.prune_vars({ds.groups[3].path: 0.5})
    with task.trainer() as trainer:
        trainer.train(validate=False)
    folder = tmp_path / "picodet_s_shapes"
    expected = paddle.load(str(folder / "model_final.pdema"))  # what was averaged
    average = paddle.load(str(folder / "0.pdparams"))

    again = DetTask(config("picodet_s_shapes", *overrides))
    assert again.model.parameters()[0].name != task.model.parameters()[0].name
    with resumed_trainer(again, folder / "0") as trainer:
        assert trainer.ema.step == 1
        assert all(
            np.array_equal(trainer.ema.state_dict[name].numpy(), average[name].numpy()) for name in average
        )
        trainer.train(validate=False)
    found = paddle.load(str(folder / "model_final.pdema"))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.allclose(found[name].numpy(), value.numpy(), atol=1e-5), name


@pytest.mark.parametrize(
    ("checkpoint", "sentence"),
    [("none", "none.pdparams is not there"), ("model_final", r"after epoch 1 of 1.*override epoch=")],
)
def test_nothing_to_go_on_from_is_a_sentence(task, tmp_path, checkpoint, sentence):
    with task.trainer() as trainer:
        trainer.train(validate=False)
    folder = tmp_path / "picodet_s_shapes"
    with pytest.raises(InputError, match=sentence), resumed_trainer(task, folder / checkpoint):
        pass


def test_trainer_leaves_ppdets_config_as_it_was(task):
    before = dict(global_config)
    with pytest.raises(RuntimeError, match="stop"), task.trainer("eval"):
        raise RuntimeError("stop")
    assert dict(global_config) == before
    assert task.config.get("model") is None


def test_trainer_of_an_unknown_mode_is_a_sentence(task):
    with pytest.raises(InputError, match='not for "test"'), task.trainer("test"):
        pass


def test_trainer_without_data_is_a_sentence(config, tmp_path):
    task = DetTask(config("picodet_s_shapes", f"TrainDataset.dataset_dir={tmp_path}"))
    with pytest.raises(InputError, match="TrainDataset"), task.trainer():
        pass
