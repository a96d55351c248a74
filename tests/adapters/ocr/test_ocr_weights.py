"""Loading weights: all of them, or a sentence that names the layer, with the network left alone."""

from __future__ import annotations

import contextlib
import pickle
import shutil

import numpy as np
import paddle
import pytest

from dysens.adapters.ocr import OcrTask, load_weights, released_model, reparameterize
from dysens.errors import InputError, UnsafePickleError
from dysens.programs import read_inference_state


def state_of(model):
    return {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}


@pytest.fixture
def tiny(config):
    """A detector that builds in a moment."""

    def build(*overrides: str) -> OcrTask:
        return OcrTask(
            config(
                "det_mv3_db",
                "Architecture.Backbone.scale=0.35",
                "Architecture.Neck.out_channels=24",
                *overrides,
            )
        )

    return build


@pytest.fixture
def checkpoint(tiny, tmp_path):
    path = tmp_path / "tiny.pdparams"
    paddle.save(tiny().model.state_dict(), str(path))
    return path


def test_checkpoint_goes_in_whole(tiny, checkpoint):
    task = tiny(f"Global.pretrained_model={checkpoint}")
    saved = paddle.load(str(checkpoint), return_numpy=True)
    assert task.weights.count == len(saved)
    assert task.weights.untouched == ()
    for name, value in state_of(task.model).items():
        np.testing.assert_array_equal(value, saved[name])


def test_half_precision_becomes_the_networks_own(tiny, checkpoint):
    saved = paddle.load(str(checkpoint), return_numpy=True)
    paddle.save({name: value.astype("float16") for name, value in saved.items()}, str(checkpoint))
    model = tiny(f"Global.pretrained_model={checkpoint}").model
    assert {str(tensor.dtype) for tensor in model.state_dict().values()} == {"paddle.float32"}


def test_another_architecture_names_the_layer_and_changes_nothing(tiny, checkpoint):
    task = tiny("Architecture.Backbone.scale=0.5")
    before = state_of(task.model)
    with pytest.raises(
        InputError, match=r'"backbone\.\S+" is \[.*\] in the file and \[.*\] in the network.*more such'
    ):
        task.load(checkpoint)
    for name, value in state_of(task.model).items():
        np.testing.assert_array_equal(value, before[name])


def test_released_weights_of_another_network_leave_its_branches_unfused(config):
    task = OcrTask(
        config("ch_PP-OCRv4_det", "Global.pretrained_model=null", "Architecture.Backbone.scale=0.5")
    )
    names = set(task.model.state_dict())
    with pytest.raises(InputError, match="another architecture"):
        task.load("ch_PP-OCRv4_det")
    assert set(task.model.state_dict()) == names


def test_wrong_dictionary_is_suspected(config):
    with pytest.raises(InputError, match=r'"head\.ctc_head\.fc\.\w+" is .*6625.*97.*character_dict_path'):
        OcrTask(config("ch_PP-OCRv3_rec", "Global.character_dict_path=ppocr/utils/en_dict.txt"))


def test_missing_and_unknown_tensors_are_named(tiny, checkpoint):
    saved = paddle.load(str(checkpoint), return_numpy=True)
    saved["neck.in2_conv.weigth"] = saved.pop("neck.in2_conv.weight")
    paddle.save(saved, str(checkpoint))
    with pytest.raises(InputError, match=r'"neck.in2_conv.weigth" is in the file'):
        tiny().load(checkpoint)
    del saved["neck.in2_conv.weigth"]
    paddle.save(saved, str(checkpoint))
    with pytest.raises(InputError, match=r'the network needs "neck.in2_conv.weight"'):
        tiny().load(checkpoint)


def test_training_only_layers_may_be_missing(tiny, checkpoint):
    saved = paddle.load(str(checkpoint), return_numpy=True)
    paddle.save(
        {name: value for name, value in saved.items() if not name.startswith("head.thresh.")}, str(checkpoint)
    )
    task = tiny()
    task.model.train()
    loaded = task.load(checkpoint)
    assert loaded.untouched
    assert all(name.startswith("head.thresh.") for name in loaded.untouched)
    assert task.model.training
    assert not any(layer._forward_pre_hooks for layer in task.model.sublayers())


def test_a_file_that_is_no_state_dict(tiny, tmp_path):
    path = tmp_path / "numbers.pdparams"
    paddle.save({"epoch": 3}, str(path))
    with pytest.raises(InputError, match="is not a state dict"):
        tiny().load(path)


@pytest.fixture
def inference_copy(tmp_path):
    return shutil.copytree(released_model("ch_PP-OCRv3_det"), tmp_path / "infer") / "inference"


def test_inference_state_has_state_dict_names(inference_copy):
    state = read_inference_state(inference_copy)
    assert len(state) == 288
    assert state["backbone.conv.conv.weight"].shape == (8, 3, 3, 3)
    assert all(value.dtype == np.float32 for value in state.values())


@pytest.mark.parametrize("ending", [".pdmodel", ".pdiparams.info"])
def test_incomplete_inference_model(inference_copy, ending):
    inference_copy.with_name(f"inference{ending}").unlink()
    with pytest.raises(InputError, match=rf'has no "inference{ending}"'):
        read_inference_state(inference_copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [(lambda data: data[:-10], "is cut short"), (lambda data: data + b"12", "left over")],
)
def test_damaged_inference_weights(inference_copy, change, message):
    path = inference_copy.with_name("inference.pdiparams")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=message):
        read_inference_state(inference_copy)


@pytest.mark.parametrize("content", [[1], {"conv2d_0.w_0": 7}, "text"])
def test_info_file_of_something_else(inference_copy, content):
    inference_copy.with_name("inference.pdiparams.info").write_bytes(pickle.dumps(content))
    with pytest.raises(InputError, match=r"inference\.pdiparams\.info"):
        read_inference_state(inference_copy)


def test_inference_weights_with_damaged_descriptions(inference_copy):
    path = inference_copy.with_name("inference.pdiparams")
    whole = path.read_bytes()
    for place in range(40):  # of the first tensor: versions, sizes, type and shape
        path.write_bytes(whole[:place] + b"\xff" + whole[place + 1 :])
        with contextlib.suppress(InputError):
            assert len(read_inference_state(inference_copy)) == 288


def test_weights_file_cannot_run_code(tiny, checkpoint, tmp_path):
    class Harmful:
        def __reduce__(self):
            return (open, (str(tmp_path / "written"), "w"))

    checkpoint.write_bytes(pickle.dumps({"backbone.conv.weight": Harmful()}))
    with pytest.raises(UnsafePickleError, match=r"asks for \w+\.open"):
        tiny().load(checkpoint)
    assert not (tmp_path / "written").exists()


def test_info_file_cannot_run_code(inference_copy, tmp_path):
    class Harmful:
        def __reduce__(self):
            return (open, (str(tmp_path / "written"), "w"))

    inference_copy.with_name("inference.pdiparams.info").write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(UnsafePickleError, match="asks for"):
        read_inference_state(inference_copy)
    assert not (tmp_path / "written").exists()


def test_reparameterized_network_computes_the_same(config):
    model = OcrTask(config("ch_PP-OCRv4_det", "Global.pretrained_model=null")).model
    model.eval()
    image = paddle.to_tensor(np.random.RandomState(0).uniform(-1, 1, (1, 3, 64, 64)).astype("float32"))
    with paddle.no_grad():
        before = model(image)["maps"].numpy()
        assert reparameterize(model) == 28
        np.testing.assert_allclose(model(image)["maps"].numpy(), before, atol=1e-4)
    assert reparameterize(model) == 0
    assert not any(".conv_kxk." in name for name in model.state_dict())


@pytest.mark.skipif(paddle.__version__ >= "3", reason="Paddle 3 exports programs in another format")
def test_exported_lstm_comes_back(config, tmp_path):
    """An LSTM lists each weight under two names, an export has one of them."""
    first, second = (OcrTask(config("rec_mv3_crnn")) for _ in range(2))
    first.model.eval()
    spec = [paddle.static.InputSpec([None, 3, 32, 160], "float32")]
    paddle.jit.save(first.model, str(tmp_path / "inference"), input_spec=spec)
    assert load_weights(second.model, tmp_path, second.example_inputs).untouched == ()
    trained = state_of(first.model)
    for name, value in state_of(second.model).items():
        np.testing.assert_array_equal(value, trained[name])
