from __future__ import annotations

import numpy as np
import pytest
from ppdet.core.workspace import global_config

from dysens.adapters.det import DetTask
from dysens.errors import InputError


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
