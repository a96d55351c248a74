"""A COCO set scores an imported detector without a config, as the config would."""

from __future__ import annotations

import json
import shutil

import pytest
from layout_size import HALF_SIZE

from dysens.adapters.det import DetTask, labelled_evaluator, load_config
from dysens.cli import main
from dysens.errors import InputError
from dysens.evaluators import evaluate
from dysens.programs import load_inference


@pytest.fixture(scope="module")
def exported(layout, tmp_path_factory):
    """The page-layout detector as an inference model, for images of half the size."""
    folder = tmp_path_factory.mktemp("exported")
    pages = layout.config["EvalDataset"]["dataset_dir"]
    roles = ("EvalDataset", "TestDataset")
    task = DetTask(
        load_config(layout.config.path, [*(f"{role}.dataset_dir={pages}" for role in roles), *HALF_SIZE])
    )
    task.export(folder)
    return task, folder, pages


def test_an_imported_detector_scores_as_with_its_config(exported, tmp_path):
    task, folder, pages = exported
    model = load_inference(folder)
    ours = labelled_evaluator(f"{pages}/annotations.json", model, folder)
    assert ours.indicator == "mAP"
    expected = evaluate(task.model, task.evaluator)
    assert expected > 0.2
    assert evaluate(model, ours) == pytest.approx(expected, abs=1e-3)
    assert evaluate(model, ours) == pytest.approx(expected, abs=1e-3), "it can be read more than once"


def test_the_command_line_takes_it(exported, tmp_path, monkeypatch, capfd):
    task, folder, pages = exported
    monkeypatch.chdir(tmp_path)
    assert main(["eval", str(folder), "--data", f"{pages}/annotations.json", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["indicator"] == "mAP"
    assert found["score"] == pytest.approx(evaluate(task.model, task.evaluator), abs=1e-3)


def test_what_cannot_be_used(exported, tmp_path):
    _, folder, pages = exported
    model = load_inference(folder)
    with pytest.raises(InputError, match=r"cannot be read"):
        labelled_evaluator(tmp_path / "none.json", model, folder)
    (tmp_path / "other.json").write_text("[1]")
    with pytest.raises(InputError, match=r"no COCO file"):
        labelled_evaluator(tmp_path / "other.json", model, folder)
    shutil.copy(f"{pages}/annotations.json", tmp_path / "alone.json")
    with pytest.raises(InputError, match=r"neither beside it"):
        labelled_evaluator(tmp_path / "alone.json", model, folder)
    with pytest.raises(InputError, match=r"infer_cfg.yml.* is not there"):
        labelled_evaluator(f"{pages}/annotations.json", model, tmp_path)
