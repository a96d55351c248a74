"""Released weights in a dygraph network compute what the released inference model computes."""

from __future__ import annotations

import importlib
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import paddle
import pytest
from paddle import inference

from dysens.adapters.ocr import OcrTask, find_weights, load_config, released_model, released_names
from dysens.errors import InputError

ROOT = Path(__file__).parents[3]
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


@pytest.mark.parametrize("kind", ["det", "rec"])
def test_v5_models_by_name(kind):
    task = OcrTask(load_config(ROOT / "configs" / "ocr" / f"PP-OCRv5_mobile_{kind}.yml"))
    assert task.weights is not None
    assert task.has_weights
    assert task.weights.count == 234
    # Only what runs in training alone has no released weights: the threshold map, and the branch that guides CTC.
    assert all(name.startswith(LEFT_OUT) or ".act." in name for name in task.weights.untouched)


def test_an_export_of_another_network_is_refused():
    given = load_config(
        ROOT / "configs" / "ocr" / "PP-OCRv5_mobile_det.yml", ["Global.pretrained_model=PP-OCRv5_mobile_rec"]
    )
    with pytest.raises(InputError, match="it is an export of another network"):
        OcrTask(given)


def test_a_file_that_is_no_onnx_model(tmp_path):
    path = tmp_path / "torn.onnx"
    path.write_bytes(released_model("PP-OCRv5_mobile_det").read_bytes()[:-1000])
    given = load_config(
        ROOT / "configs" / "ocr" / "PP-OCRv5_mobile_det.yml", [f"Global.pretrained_model={path}"]
    )
    with pytest.raises(InputError, match="cannot be read as an ONNX model"):
        OcrTask(given)


def test_released_weights_with_another_dictionary(tmp_path):
    """As with one of PaddleOCR's configs for a language of its own."""
    (tmp_path / "dictionary.txt").write_text("a\nb\n")
    given = load_config(
        ROOT / "configs" / "ocr" / "PP-OCRv5_mobile_rec.yml",
        [f"Global.character_dict_path={tmp_path / 'dictionary.txt'}"],
    )
    with pytest.raises(InputError, match=r"Is Global\.character_dict_path the dictionary"):
        OcrTask(given)


def test_where_other_models_can_be_had():
    for name in ("PP-OCRv5_server_det", "PP-OCRv6_small_rec", "PP-OCRv6_tiny_det"):
        with pytest.raises(InputError, match=f"download {name}_pretrained.pdparams"):
            find_weights(name)
    with pytest.raises(InputError, match='did you mean "PP-OCRv6_tiny_det"'):
        find_weights("PP-OCRv6_tiny_dte")


@pytest.fixture
def address(tmp_path):
    """A server on this machine, for what PaddleOCR would download."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_weights_are_downloaded_by_paddleocr(address, tmp_path, monkeypatch, caplog):
    given = load_config(ROOT / "configs" / "ocr" / "det_mv3_db.yml", ["Global.pretrained_model=null"])
    whole = OcrTask(given).model.state_dict()
    backbone = {name: tensor for name, tensor in whole.items() if name.startswith("backbone.")}
    paddle.save(backbone, str(tmp_path / "backbone.pdparams"))
    network = importlib.import_module("ppocr.utils.network")
    monkeypatch.setattr(network, "MODELS_DIR", str(tmp_path / "kept"))
    given["Global"]["pretrained_model"] = f"{address}/backbone.pdparams"
    task = OcrTask(given)
    assert (tmp_path / "kept" / "backbone.pdparams").is_file()
    assert task.weights is not None
    assert task.weights.random == ("neck", "head")
    assert not task.has_weights  # of the whole network
    assert "neck and head begin with random values" in caplog.text
    with pytest.raises(InputError, match="cannot be downloaded"):
        find_weights(f"{address}/nothing.pdparams")


def test_what_an_address_may_give_instead_of_weights(address, tmp_path, monkeypatch, caplog):
    """A page of a proxy is not kept; a file that was kept is named, since another address may have one of its name."""
    network = importlib.import_module("ppocr.utils.network")
    monkeypatch.setattr(network, "MODELS_DIR", str(tmp_path / "kept"))
    (tmp_path / "page.pdparams").write_text("<html>Please log in</html>")
    with pytest.raises(InputError, match=r"gave a file that is not a \.pdparams one"):
        find_weights(f"{address}/page.pdparams")
    assert not (tmp_path / "kept" / "page.pdparams").exists()
    paddle.save({"a": paddle.ones([1])}, str(tmp_path / "page.pdparams"))
    path = find_weights(f"{address}/page.pdparams")
    assert path.parent == tmp_path / "kept"
    caplog.set_level("INFO")
    assert find_weights(f"{address}/elsewhere/page.pdparams") == path
    assert f'"{path}" was downloaded before' in caplog.text
    with pytest.raises(InputError, match=r"not of a \.pdparams file"):
        find_weights(f"{address}/PP-OCRv5_server_det_infer.tar")
