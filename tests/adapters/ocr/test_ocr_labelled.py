"""Labelled images of PaddleOCR score an imported inference model without a config, as the config would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from dysens.adapters.ocr import OcrTask, labelled_evaluator, released_model
from dysens.cli import main
from dysens.errors import InputError
from dysens.evaluators import evaluate
from dysens.programs import load_inference

DET, REC = "ch_PP-OCRv3_det", "ch_PP-OCRv4_rec"


@pytest.fixture(scope="module")
def detector():
    return load_inference(released_model(DET))


@pytest.fixture(scope="module")
def recogniser():
    return load_inference(released_model(REC))


def test_a_detector_scores_as_with_its_config(config, images: Path, detector) -> None:
    task = OcrTask(config(DET, f"Global.pretrained_model={DET}"))
    ours = labelled_evaluator(images / "det_eval" / "label.txt", detector, released_model(DET))
    assert ours.indicator == "hmean"
    expected = evaluate(task.model, task.evaluator)
    assert expected > 0.3
    assert evaluate(detector, ours) == pytest.approx(expected, abs=1e-6)
    found = ours.readings(detector, 1)
    assert found[0].regions


def test_a_recogniser_scores_as_with_its_config(config, images: Path, recogniser) -> None:
    task = OcrTask(config(REC, f"Global.pretrained_model={REC}"))
    ours = labelled_evaluator(images / "rec_eval", recogniser, released_model(REC))
    expected = evaluate(task.model, task.evaluator)
    assert expected > 0.3
    assert evaluate(recogniser, ours) == pytest.approx(expected, abs=1e-6)


def test_settings_beside_the_model_are_followed(images: Path, recogniser, tmp_path: Path) -> None:
    """``inference.yml`` says size and characters; other characters give another score, other classes a sentence."""
    labels = images / "rec_eval"
    from dysens.adapters.ocr import load_ppocr

    keys = (load_ppocr().home / "ppocr/utils/ppocr_keys_v1.txt").read_text(encoding="utf-8").split("\n")[:-1]
    settings = {
        "PreProcess": {"transform_ops": [{"RecResizeImg": {"image_shape": [3, 48, 160]}}]},
        "PostProcess": {"name": "CTCLabelDecode", "character_dict": [*keys[1:], keys[0]]},
    }
    (tmp_path / "inference.yml").write_text(yaml.safe_dump(settings, allow_unicode=True), encoding="utf-8")
    shifted = labelled_evaluator(labels, recogniser, tmp_path)
    assert list(next(iter(shifted.batches()))[0].shape)[1:] == [3, 48, 160]
    assert evaluate(recogniser, shifted) == 0.0
    settings["PostProcess"]["character_dict"] = keys[:100]
    (tmp_path / "inference.yml").write_text(yaml.safe_dump(settings, allow_unicode=True), encoding="utf-8")
    with pytest.raises(InputError, match=r"6625 classes apart.*has 100 characters.*character_dict_path"):
        labelled_evaluator(labels, recogniser, tmp_path)


def test_directions(images: Path, tmp_path: Path) -> None:
    for line in (images / "rec_eval" / "label.txt").read_text(encoding="utf-8").splitlines():
        name = line.split("\t")[0]
        (tmp_path / Path(name).name).write_bytes((images / "rec_eval" / name).read_bytes())
    names = sorted(path.name for path in tmp_path.iterdir())
    (tmp_path / "directions.txt").write_text("".join(f"{name}\t0\n" for name in names), encoding="utf-8")
    source = released_model("ch_ppocr_mobile_v2.0_cls")
    model = load_inference(source)
    evaluator = labelled_evaluator(tmp_path, model, source)
    assert "ClsMetric" in evaluator.name
    assert evaluate(model, evaluator) > 0.5


@pytest.mark.once("test-all")
def test_every_command_takes_the_set(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model, data = str(released_model(DET)), ["--data", str(images / "det_eval")]
    assert main(["eval", model, *data, "--json"]) == 0
    whole = json.loads(capfd.readouterr().out)
    assert whole["indicator"] == "hmean"
    assert main(["groups", model, *data, "--json"]) == 0
    group = json.loads(capfd.readouterr().out)["groups"][-1]["path"]
    words = ["sweep", model, *data, "--ratios", "0.9", "--only", group, "--json"]
    assert main(words) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["baseline"] == pytest.approx(whole["score"], abs=1e-3)
    Path("ratios.yml").write_text(f"{group}: 0.5\n")
    assert main(["prune", model, "ratios.yml", *data, "-o", "pruned"]) == 0
    capfd.readouterr()
    assert main(["export", model, "--weights", "pruned", *data, "-o", "small", "--json"]) == 0
    exported = json.loads(capfd.readouterr().out)
    assert exported["compared_on"] == "the data"
    assert main(["eval", "small", *data, "--json"]) == 0


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "is not there"),
        ("", "is empty"),
        ("nowhere.png\tabc\n", "not that of a recogniser"),
        ('nowhere.png\t[{"transcription": "x", "points": []}]\n', "the image in line 1"),
        ('a.png\t[{"transcription": "x", "points": [[0,', "cut short or garbled"),
    ],
)
def test_sets_that_cannot_be_used(detector, tmp_path: Path, content: str | None, sentence: str) -> None:
    labels = tmp_path / "label.txt"
    if content is not None:
        labels.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=sentence):
        labelled_evaluator(labels, detector, released_model(DET))


def test_a_set_is_for_inference_models(images: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "LeNet", "--input-shape", "1,1,28,28", "--data", str(images / "det_eval")]) != 0
    assert "is for an inference model" in capfd.readouterr().err
