"""Released weights in a dygraph network compute what the released inference model computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import paddle
import pytest
from paddle import inference

from dysens.adapters.ocr import OcrTask, find_weights, released_model, released_names
from dysens.errors import InputError

NAMES = ["ch_PP-OCRv3_det", "ch_PP-OCRv4_det", "ch_PP-OCRv3_rec", "ch_PP-OCRv4_rec"]
SHAPES = {"det": (1, 3, 96, 128), "rec": (2, 3, 48, 160)}
# Layers whose weights an inference model does not carry: they run in training only, or (dw_conv.act) never.
LEFT_OUT = ("head.thresh.", "head.sar_head.", "head.gtc_head.", "head.before_gtc.")


def run_inference_model(folder: Path, image: np.ndarray) -> np.ndarray:
    config = inference.Config(str(folder / "inference.pdmodel"), str(folder / "inference.pdiparams"))
    config.disable_gpu()
    config.disable_glog_info()
    config.switch_ir_optim(False)
    predictor = inference.create_predictor(config)
    predictor.get_input_handle(predictor.get_input_names()[0]).copy_from_cpu(image)
    predictor.run()
    return predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()


@pytest.mark.parametrize("name", NAMES)
def test_dygraph_equals_inference_model_bit_for_bit(name, config):
    task = OcrTask(config(name))
    image = np.random.RandomState(3).uniform(-1, 1, SHAPES[name[-3:]]).astype("float32")
    task.model.eval()
    with paddle.no_grad():
        outputs = task.model(paddle.to_tensor(image))
    dygraph = (outputs["maps"] if isinstance(outputs, dict) else outputs).numpy()
    np.testing.assert_array_equal(dygraph, run_inference_model(released_model(name), image))
    assert all(name.startswith(LEFT_OUT) or ".dw_conv.act." in name for name in task.weights.untouched)
    assert (task.weights.reparameterized > 0) == ("v4" in name)


def test_all_four_are_there():
    assert set(NAMES) <= set(released_names())


def test_unknown_release_suggests_the_nearest():
    with pytest.raises(InputError, match='did you mean "ch_PP-OCRv3_det"'):
        released_model("PP-OCRv3_det")


def test_find_weights_takes_every_form(tmp_path):
    folder = released_model("ch_PP-OCRv3_det")
    prefix = folder / "inference"
    assert find_weights("ch_PP-OCRv3_det") == prefix
    assert (
        find_weights(folder) == find_weights(prefix) == find_weights(folder / "inference.pdiparams") == prefix
    )
    checkpoint = tmp_path / "best_accuracy.pdparams"
    checkpoint.touch()
    assert find_weights(checkpoint) == find_weights(tmp_path / "best_accuracy") == checkpoint


@pytest.mark.parametrize("source", ["ch_PP-OCRv3_dett", "no/such/file.pdparams", "/no/such/folder"])
def test_missing_weights_are_a_sentence(source):
    with pytest.raises(InputError, match="No weights at"):
        find_weights(source)
