from __future__ import annotations

import contextlib
import io
import json
from dataclasses import replace

import numpy as np
import paddle
import pytest
from ppdet.metrics import COCOMetric, VOCMetric

from dysens.adapters.det import Detections, DetEvaluator
from dysens.errors import InputError
from dysens.evaluators import evaluate


@pytest.fixture(scope="module")
def evaluator(picodet):
    return picodet.evaluator


@pytest.fixture(scope="module")
def truth(shapes):
    """What is really in each image: rows of class, left, top, right, bottom."""
    content = json.loads((shapes / "annotations.json").read_text())
    rows = {image["id"]: [] for image in content["images"]}
    for each in content["annotations"]:
        left, top, width, height = each["bbox"]
        rows[each["image_id"]].append([each["category_id"], left, top, left + width, top + height])
    return rows


def guess(evaluator, truth, seed):
    """Outputs of a detector that is often, but not always, right; no network needed."""
    random = np.random.default_rng(seed)
    for batch in evaluator.batches():
        rows, counts = [], []
        for image in np.ravel(batch["im_id"].numpy()):
            boxes = np.array(truth[int(image)], dtype="float32")
            boxes[:, 1:] += random.normal(0, 4, (len(boxes), 4))
            wrong = random.random(len(boxes)) < 0.2
            boxes[wrong, 0] = (boxes[wrong, 0] + 1) % 3
            found = np.insert(boxes, 1, random.random(len(boxes)), axis=1)
            rows.append(found[random.random(len(found)) < 0.9])
            counts.append(len(rows[-1]))
        outputs = {
            "bbox": paddle.to_tensor(np.concatenate(rows).astype("float32")),
            "bbox_num": paddle.to_tensor(np.array(counts, dtype="int32")),
        }
        yield batch, outputs


@pytest.mark.parametrize("seed", range(3))
def test_score_is_what_cocometric_gives(evaluator, shapes, truth, seed, tmp_path):
    metric = COCOMetric(anno_file=str(shapes / "annotations.json"), output_eval=str(tmp_path))
    measured = []
    for batch, outputs in guess(evaluator, truth, seed):
        metric.update(batch, outputs)
        measured.append(evaluator.measure(outputs, batch))
    with contextlib.redirect_stdout(io.StringIO()):
        metric.accumulate()
    expected = metric.get_results()["bbox"][0]
    assert 0.1 < expected < 1
    assert evaluator.score(measured) == expected


def test_a_part_is_scored_by_itself(evaluator, truth):
    """Perfect boxes in half of the images are a perfect score of that half."""
    perfect = []
    for batch in evaluator.batches():
        images = batch["im_id"].numpy()
        rows = [[row[0], 0.9, *row[1:]] for image in images.ravel() for row in truth[int(image)]]
        counts = [len(truth[int(image)]) for image in images.ravel()]
        perfect.append(Detections(np.array(rows, dtype="float32"), np.array(counts), {"im_id": images}))
    assert len(perfect) == 2
    assert evaluator.score(perfect) == pytest.approx(1)
    assert evaluator.score(perfect[:1]) == pytest.approx(1)
    nothing = replace(perfect[1], rows=np.zeros((0, 6), "float32"), counts=np.zeros_like(perfect[1].counts))
    assert 0 < evaluator.score([perfect[0], nothing]) < 1


def test_nothing_found_scores_zero(evaluator):
    images = np.array([[0], [1]])
    nothing = Detections(np.zeros((0, 6), "float32"), np.zeros(2, "int32"), {"im_id": images})
    assert evaluator.score([nothing]) == 0


def test_a_live_network_is_scored(picodet, evaluator):
    assert 0 <= evaluate(picodet.model, evaluator) < 0.2


def test_batches_come_in_the_same_order_also_after_a_walk_that_was_broken_off(evaluator):
    ids = [batch["im_id"].numpy().ravel().tolist() for batch in evaluator.batches()]
    assert ids == [[0, 1, 2, 3], [4, 5]]
    assert next(iter(evaluator.batches()))["im_id"].numpy().ravel().tolist() == ids[0]
    assert [batch["im_id"].numpy().ravel().tolist() for batch in evaluator.batches()] == ids


def test_scoring_is_quiet_and_leaves_no_files(evaluator, truth, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evaluator.score([evaluator.measure(outputs, batch) for batch, outputs in guess(evaluator, truth, 0)])
    assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == []


def test_the_name_tells_data_and_metric_apart(evaluator, shapes):
    assert evaluator.name == f"COCO bbox mAP on {shapes.name}/annotations.json, 6 images"


def test_outputs_without_boxes_are_a_sentence(evaluator):
    with pytest.raises(InputError, match="bbox and bbox_num"):
        evaluator.measure({"picodet": []}, {})


@pytest.fixture
def some_empty(shapes, tmp_path):
    """The scenes, of which only the first has labels."""
    content = json.loads((shapes / "annotations.json").read_text())
    content["annotations"] = [each for each in content["annotations"] if each["image_id"] == 0]
    (tmp_path / "annotations.json").write_text(json.dumps(content))
    (tmp_path / "images").symlink_to(shapes / "images")
    return tmp_path


def test_a_part_without_objects_scores_zero(config, some_empty):
    paths = f"EvalDataset.dataset_dir={some_empty}", "EvalDataset.allow_empty=true"
    evaluator = DetEvaluator(config("picodet_s_shapes", *paths))
    rows = np.array([[0, 0.9, 1, 1, 9, 9]], dtype="float32")
    assert evaluator.score([Detections(rows, np.array([1]), {"im_id": np.array([[4]])})]) == 0


def test_data_without_any_object_are_a_sentence(config, some_empty):
    path = some_empty / "annotations.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "annotations": []}))
    paths = f"EvalDataset.dataset_dir={some_empty}", "EvalDataset.allow_empty=true"
    with pytest.raises(InputError, match="labels no object"):
        DetEvaluator(config("picodet_s_shapes", *paths))


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("metric=RBOX", "only COCO and VOC"),
        ("num_classes=4", r"labels 3 classes.*builds a network for 4.*num_classes=3"),
        ("EvalDataset.anno_path=none.json", r"EvalDataset.*none\.json, which is not there"),
        ("EvalDataset.image_dir=none", "which is not a folder"),
    ],
)
def test_data_that_do_not_fit_are_sentences(config, override, sentence):
    with pytest.raises(InputError, match=sentence):
        DetEvaluator(config("picodet_s_shapes", override))


def test_annotations_that_are_not_coco_are_a_sentence(config, tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "annotations.json").write_text('{"images": [], "annotations": [], "categories": []}')
    with pytest.raises(InputError, match="cannot be read"):
        DetEvaluator(config("picodet_s_shapes", f"EvalDataset.dataset_dir={tmp_path}"))


VOC_OBJECT = """<object><name>{name}</name><difficult>0</difficult><bndbox>
<xmin>{box[0]}</xmin><ymin>{box[1]}</ymin><xmax>{box[2]}</xmax><ymax>{box[3]}</ymax></bndbox></object>"""


@pytest.fixture
def voc(shapes, truth, config):
    """The same scenes with labels in Pascal VOC's format."""
    names = ["circle", "square", "triangle"]
    lines = []
    for image, rows in truth.items():
        objects = "".join(VOC_OBJECT.format(name=names[row[0]], box=row[1:]) for row in rows)
        size = "<size><width>128</width><height>128</height></size>"
        (shapes / f"{image}.xml").write_text(f"<annotation>{size}{objects}</annotation>")
        lines.append(f"images/{image:04d}.png {image}.xml\n")
    (shapes / "voc.txt").write_text("".join(lines))
    (shapes / "labels.txt").write_text("\n".join(names) + "\n")
    fields = "[image, gt_bbox, gt_class, difficult]"
    dataset = {
        "name": "VOCDataSet",
        "anno_path": "voc.txt",
        "image_dir": "''",
        "label_list": "labels.txt",
        "data_fields": fields,
    }
    return config(
        "picodet_s_shapes", "metric=VOC", *(f"EvalDataset.{key}={value}" for key, value in dataset.items())
    )


def test_voc_score_is_what_vocmetric_gives(voc, shapes, truth):
    evaluator = DetEvaluator(voc)
    metric = VOCMetric(label_list=str(shapes / "labels.txt"), class_num=3)
    measured = []
    for batch, outputs in guess(evaluator, truth, 1):
        metric.update(batch, outputs)
        measured.append(evaluator.measure(outputs, batch))
    metric.accumulate()
    expected = metric.get_results()["bbox"][0]
    assert 0.1 < expected < 1
    assert evaluator.score(measured) == pytest.approx(expected)
