"""Exported recognisers: what counts as the same outputs."""

from __future__ import annotations

import logging
import sys
from importlib.util import find_spec

import numpy as np
import paddle
import pytest
import yaml

from dysens.adapters import write_onnx
from dysens.adapters.ocr import OcrTask, export
from dysens.adapters.ocr._export import is_rounding
from dysens.errors import InputError, ProofError

EXACT = np.array([[0.25, 0.75]])


def answers(gap):
    return [(EXACT + gap).astype("float32")]


@pytest.mark.parametrize(
    ("got", "live", "same"),
    [
        (1e-3, 1e-3, True),
        (-3e-3, 1e-3, True),  # on the other side of the exact answer
        (5e-3, 1e-3, False),
        (1e-3, 0.0, False),  # the live network is exact, so what differs is the other one
        (np.nan, 1e-3, False),
        (1e-3, np.nan, False),
    ],
)
def test_rounding_is_told_from_a_difference(got, live, same):
    assert is_rounding(answers(got), answers(live), [EXACT]) is same


def test_probabilities_are_judged_by_their_logarithms():
    """One steep place differs by many times the network's rounding, and is rounding all the same; classes that changed places
    are none."""
    random = np.random.default_rng(0)
    logits = random.normal(0, 8, (4, 40, 300))

    def softmax(values):
        parts = np.exp(values - values.max(axis=-1, keepdims=True))
        return parts / parts.sum(axis=-1, keepdims=True)

    exact, noise = softmax(logits), random.normal(0, 2e-4, logits.shape)
    steep = np.zeros_like(logits)
    steep[0, 0, logits[0, 0].argsort()[-1]] = 4e-3
    live = softmax(logits + noise)
    assert is_rounding([softmax(logits - noise + steep)], [live], [exact])
    swapped = logits - noise
    swapped[..., [0, 1]] = swapped[..., [1, 0]]
    assert not is_rounding([softmax(swapped)], [live], [exact])
    assert not is_rounding([softmax(1.01 * logits)], [live], [exact])


def test_other_shapes_are_no_rounding():
    assert not is_rounding([EXACT[:, :1]], answers(0.1), [EXACT])
    assert not is_rounding([EXACT, EXACT], answers(0.1), [EXACT])


@pytest.fixture
def task(config):
    return OcrTask(config("ch_PP-OCRv3_rec"))


def images(task):
    return next(iter(task.evaluator.batches()))[0][:2]


def test_what_rounding_explains_is_said_and_not_refused(task, tmp_path, monkeypatch, caplog):
    """With no tolerance at all, every real network differs from its export."""
    monkeypatch.setattr(sys.modules[is_rounding.__module__], "TOLERANCE", 0.0)
    before = {name: tensor.numpy() for name, tensor in task.model.state_dict().items()}
    with caplog.at_level(logging.INFO, "dysens"):
        exported = export(task, tmp_path, images(task))
    assert 0 < exported.difference < 1e-4
    assert "as rounding in single precision does here" in caplog.text
    for name, tensor in task.model.state_dict().items():
        assert tensor.dtype == paddle.float32
        np.testing.assert_array_equal(tensor.numpy(), before[name])


def test_a_network_that_computes_something_else_when_exported_is_refused(task, tmp_path):
    def two_faced(layer, inputs, outputs):
        return outputs * 1.01 if paddle.in_dynamic_mode() else outputs

    task.model.head.register_forward_post_hook(two_faced)
    with pytest.raises(ProofError, match=r"does not give the network's outputs: they differ by 0\.\d+\."):
        export(task, tmp_path, images(task))


def test_where_rounding_cannot_be_told_that_is_said(task, tmp_path):
    def two_faced(layer, inputs, outputs):
        if outputs.dtype == paddle.float64:
            raise TypeError("single precision only")
        return outputs * 1.01 if paddle.in_dynamic_mode() else outputs

    task.model.head.register_forward_post_hook(two_faced)
    with pytest.raises(
        ProofError, match=r"differ by 0\.\d+; whether by rounding cannot be told.*single precision only"
    ):
        export(task, tmp_path, images(task))


def test_settings_hold_the_dictionary_without_carriage_returns(config, tmp_path):
    """PaddleOCR's and PaddleX's pipelines read the characters from inference.yml."""
    dictionary = tmp_path / "dict.txt"
    dictionary.write_bytes("a\r\n\u3000\r\nb\r\n".encode())
    task = OcrTask(
        config(
            "rec_mv3_crnn",
            f"Global.character_dict_path={dictionary}",
            "+Global.model_name=PP-OCRv5_mobile_rec",
        )
    )
    export(task, tmp_path / "out")
    written = yaml.safe_load((tmp_path / "out" / "inference.yml").read_text(encoding="utf-8"))
    assert written["Global"]["model_name"] == "PP-OCRv5_mobile_rec"
    assert written["PostProcess"]["character_dict"] == ["a", "\u3000", "b"]
    assert written["PreProcess"]["transform_ops"][0]["DecodeImage"]["img_mode"] == "BGR"


def test_onnx_beside_an_export(config, tmp_path):
    if (
        find_spec("paddle2onnx") is None
    ):  # found, not imported: it refuses Paddle 2 with an exception of its own
        pytest.skip("paddle2onnx is not installed")
    task = OcrTask(config("det_mv3_db"))
    exported = export(task, tmp_path)
    if paddle.__version__.startswith("2."):
        with pytest.raises(InputError, match="paddle2onnx cannot write"):
            write_onnx(exported.prefix, task.timing_inputs())
        return
    path, difference = write_onnx(exported.prefix, task.timing_inputs())
    assert path == tmp_path / "inference.onnx"
    assert difference is None or difference < 1e-3
    with pytest.raises(InputError, match="There is no exported model"):
        write_onnx(tmp_path / "nothing", task.timing_inputs())
