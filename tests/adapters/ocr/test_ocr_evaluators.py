"""The evaluator gives exactly the number that PaddleOCR's own evaluation gives."""

from __future__ import annotations

import paddle
import pytest

from dysens.adapters.ocr import OcrTask, load_ppocr
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
