"""The Pruner in ppdet's own hands: build_slim_model, Trainer, evaluation of the checkpoint."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
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
from dysens.adapters.det.__main__ import main as run_with_pruner
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


@pytest.mark.once("paddle3")
def test_a_tool_of_a_checkout_is_run_with_the_pruner(tmp_path):
    """As PaddleDetection's tools do, the script has a __future__ import and expects its own arguments."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "train.py").write_text(
        "from __future__ import annotations\nimport sys\nfrom ppdet.core.workspace import global_config\n"
        "print(global_config['Pruner'].pymodule.__name__, sys.argv[1:])\n"
    )
    found = subprocess.run(
        [sys.executable, "-m", "dysens.adapters.det", "tools/train.py", "-c", "a.yml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.splitlines()[-1] == "dysens.adapters.det.pruner ['-c', 'a.yml']"


def test_a_tool_that_is_not_there_is_a_sentence(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["dysens.adapters.det", "nowhere/train.py"])
    with pytest.raises(SystemExit, match=r"error: There is no script nowhere/train\.py"):
        run_with_pruner()


@pytest.mark.once("paddle3")  # test_det_trainer.py trains pruned detectors on both stacks
def test_ppdets_trainer_trains_the_pruned_model_and_the_checkpoint_is_read_back(trained, tmp_path, told):
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

    # As PaddleDetection's eval.py does it: prune as configured, then load. Where it runs there need be no data to train on.
    told.clear()
    with settings.installed() as live:
        live["TrainDataset"]["dataset_dir"] = str(tmp_path)
        live["weights"] = str(folder / "slim" / "model_final")
        evaluated = build_slim_model(live, slim_file(folder), mode="eval")["model"]
    assert np.array_equal(dict(evaluated.named_parameters())[CUT].numpy(), weight.numpy())
    assert "Only the eval forward is looked at" in told[0]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"pruned_ratios": [0.5, 0.2]}, "names 1 parameters but 2 ratios"),
        ({"criterion": "best"}, 'no criterion "best"'),
        ({"pruned_ratios": [1.5]}, "must be at least 0 and under 1"),
    ],
)
def test_a_section_that_cannot_be_is_a_sentence(trained, changes, sentence):
    settings, folder = trained
    section = yaml.safe_load(Path(slim_file(folder, **changes)).read_text())["Pruner"]
    with settings.installed() as live:
        live["Pruner"].update(section)
        with pytest.raises(InputError, match=sentence):
            create("Pruner")
