"""The Pruner in ppdet's own hands: build_slim_model, Trainer, evaluation of the checkpoint."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import paddle
import pytest
import yaml
from ppdet.core.workspace import create, global_config
from ppdet.engine import Trainer
from ppdet.slim import build_slim_model

import dysens.adapters.det.pruner
from dysens.adapters.det import DetTask
from dysens.errors import InputError

WIDTH = 24  # of the layer that is cut
CUT = "backbone.blocks2.0.pw_conv.conv.weight"


@pytest.fixture(scope="module")
def trained(tmp_path_factory, config):
    """What is to be pruned: a config, and its weights on disk."""
    folder = tmp_path_factory.mktemp("slim")
    settings = config(
        "picodet_s_shapes",
        "epoch=1",
        f"save_dir={folder}",
        "TrainReader.batch_size=2",
        "TrainDataset.sample_num=2",
    )
    paddle.save(DetTask(settings).model.state_dict(), str(folder / "whole.pdparams"))
    return settings, folder


def slim_file(folder, **changes):
    section = {"criterion": "fpgm", "pruned_params": [CUT], "pruned_ratios": [0.5], **changes}
    content = {"pretrain_weights": str(folder / "whole.pdparams"), "slim": "Pruner", "Pruner": section}
    (folder / "slim.yml").write_text(yaml.safe_dump(content))
    return str(folder / "slim.yml")


@pytest.fixture
def told():
    """What the Pruner says through ppdet's logger."""
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger = logging.getLogger("ppdet.slim.prune")
    logger.addHandler(handler)
    yield messages
    logger.removeHandler(handler)


def test_importing_the_module_registers_the_pruner():
    assert global_config["Pruner"].pymodule is dysens.adapters.det.pruner


def test_ppdets_trainer_trains_the_pruned_model_and_the_checkpoint_is_read_back(trained, told):
    settings, folder = trained
    with settings.installed() as live:
        built = build_slim_model(live, slim_file(folder, print_params=True))
        trainer = Trainer(built)
        trainer.train(validate=False)
    assert "not prunable" in told[0]
    assert "FLOPs" in told[1]
    weight = dict(trainer.model.named_parameters())[CUT]
    assert weight.shape[0] == WIDTH // 2

    # In a fresh network, from the plan beside the checkpoint that Trainer wrote.
    again = DetTask(settings)
    again.load(folder / "slim" / "model_final")
    for name, value in trainer.model.state_dict().items():
        assert np.array_equal(again.model.state_dict()[name].numpy(), value.numpy()), name

    # As PaddleDetection's eval.py does it: prune as configured, then load.
    with settings.installed() as live:
        live["weights"] = str(folder / "slim" / "model_final")
        evaluated = build_slim_model(live, slim_file(folder), mode="eval")["model"]
    assert np.array_equal(dict(evaluated.named_parameters())[CUT].numpy(), weight.numpy())


def test_without_training_data_the_pruner_says_so(trained, tmp_path, told):
    settings, folder = trained
    with settings.installed() as live:
        live["TrainDataset"]["dataset_dir"] = str(tmp_path)
        model = build_slim_model(live, slim_file(folder))["model"]
    assert "only the eval forward is looked at" in told[0]
    assert dict(model.named_parameters())[CUT].shape[0] == WIDTH // 2


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"pruned_ratios": [0.5, 0.2]}, "names 1 parameters but 2 ratios"),
        ({"criterion": "best"}, "criterion 'best'"),
        ({"pruned_ratios": [1.5]}, "must be a number from 0"),
    ],
)
def test_a_section_that_cannot_be_is_a_sentence(trained, changes, sentence):
    settings, folder = trained
    section = yaml.safe_load(Path(slim_file(folder, **changes)).read_text())["Pruner"]
    with settings.installed() as live:
        live["Pruner"].update(section)
        with pytest.raises(InputError, match=sentence):
            create("Pruner")
