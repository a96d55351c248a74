"""The evaluator gives exactly the number that PaddleOCR's own evaluation gives."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from dysens.adapters.ocr import OcrTask, load_ppocr
from dysens.adapters.ocr._evaluators import ByNeighbours
from dysens.errors import InputError


def evaluated(task, model=None):
    evaluator = task.evaluator
    model = model or task.model
    model.eval()
    with paddle.no_grad():
        return [evaluator.measure(model(*evaluator.arguments(batch)), batch) for batch in evaluator.batches()]


def ppocr_score(task):
    """What PaddleOCR's eval loop says of the whole network."""
    metrics = load_ppocr().program.eval(
        task.network,
        task.eval_dataloader(),
        task.post_process,
        task.new_network_metric(),
        task.config["Architecture"]["model_type"],
        extra_input=task.config["Architecture"]["algorithm"] == "SVTR_LCNet",
    )
    return metrics[task.indicator]


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("ch_PP-OCRv3_det", []),
        ("ch_PP-OCRv3_det", ["Metric.main_indicator=precision"]),
        ("ch_PP-OCRv4_rec", ["Eval.loader.batch_size_per_card=5"]),
        ("ch_PP-OCRv3_rec", ["Metric.main_indicator=norm_edit_dis", "Metric.ignore_space=false"]),
    ],
)
def test_score_is_ppocrs_own(name, overrides, config):
    task = OcrTask(config(name, *overrides))
    score = task.evaluator.score(evaluated(task))
    assert score == ppocr_score(task)
    assert score > 0.7  # so the images are fit to measure a released model by


def test_measurements_add_up_and_leave_nothing_behind(config):
    task = OcrTask(config("ch_PP-OCRv3_det"))
    measurements = evaluated(task)
    total = type(measurements[0])(*(sum(column) for column in zip(*measurements)))
    assert total.matched <= min(total.labelled, total.detected)
    assert task.evaluator.score([total]) == task.evaluator.score(measurements)
    assert evaluated(task) == measurements
    assert "hmean" in task.evaluator.name
    assert "6 images" in task.evaluator.name


def test_no_measurements_score_zero(config):
    assert OcrTask(config("det_mv3_db")).evaluator.score([]) == 0.0
    assert OcrTask(config("rec_mv3_crnn")).evaluator.score([]) == 0.0


def test_metric_that_is_no_sum_is_refused(config):
    with pytest.raises(InputError, match=r'"E2EMetric" cannot be scored batch by batch'):
        _ = OcrTask(
            config(
                "det_mv3_db",
                "Metric.name=E2EMetric",
                "+Metric.gt_mat_dir=none",
                "+Metric.character_dict_path=none",
            )
        ).evaluator


def drawn_boxes(random, count, side):
    """Quadrilaterals that touch, overlap and hold each other; some have no area, some cross themselves."""
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
    boxes = random.uniform(0, side, (count, 1, 2)) + corners * random.uniform(5, 40, (count, 1, 2))
    boxes += random.uniform(-3, 3, boxes.shape) * (random.random((count, 1, 1)) < 0.5)
    boxes = np.where(random.random((count, 1, 1)) < 0.5, boxes.round(), boxes)  # touching ones are exact then
    boxes[random.random(count) < 0.1] = 0.0
    crossed = random.random(count) < 0.1
    boxes[crossed] = boxes[crossed][:, [0, 2, 1, 3]]
    return boxes.astype("float32")


@pytest.mark.parametrize("seed", range(12))
def test_boxes_are_counted_as_ppocr_counts_them(seed):
    counter = load_ppocr().build_metric({"name": "DetMetric"}).evaluator
    random = np.random.default_rng(seed)
    side = random.choice([60, 300, 1500])
    labelled = drawn_boxes(random, random.integers(0, 30), side)
    found = [box for box in labelled if random.random() < 0.7]
    found = np.array(
        [*(box + random.normal(0, 3, box.shape) for box in found), *drawn_boxes(random, 8, side)]
    )
    gt = [{"points": box, "text": "", "ignore": random.random() < 0.2} for box in labelled]
    pred = [{"points": box, "text": ""} for box in random.permutation(found)]
    counts = ByNeighbours(counter).evaluate_image(gt, pred)
    assert counts == {key: counter.evaluate_image(gt, pred)[key] for key in counts}
    assert counts["detCare"] > 0
    assert ByNeighbours(counter).evaluate_image(gt, []) == {**counts, "detCare": 0, "detMatched": 0}


def test_a_page_full_of_lines_is_judged_line_by_line(config):
    class Counting:
        pairs = 0

        def evaluate_image(self, gt, pred):
            self.pairs += len(gt) * len(pred)
            return evaluator.evaluate_image(gt, pred)

    evaluator = OcrTask(config("ch_PP-OCRv3_det")).new_metric().evaluator
    counting = Counting()
    corners = np.array([[0, 0], [90, 0], [90, 6], [0, 6]])
    lines = [{"points": corners + np.array([0, 10 * row]), "text": "", "ignore": False} for row in range(80)]
    counts = ByNeighbours(counting).evaluate_image(lines, lines)
    assert counts == {"gtCare": 80, "detCare": 80, "detMatched": 80}
    assert counting.pairs == 80
