"""What is read out of a config before anything is built."""

from __future__ import annotations

import pytest

from dysens.adapters.ocr._config import fill_out_channels, input_shape, network_name, takes_labels
from dysens.errors import InputError


def data(*transforms):
    return {"dataset": {"transforms": list(transforms)}}


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        (
            {"Eval": data({"DecodeImage": None}, {"RecResizeImg": {"image_shape": [3, 48, 320]}})},
            (3, 48, 320),
        ),
        ({"Eval": data({"DetResizeForTest": {"image_shape": [736, 1280]}})}, (3, 736, 1280)),
        (
            {
                "Eval": data({"DetResizeForTest": None}),
                "Train": data({"EastRandomCropData": {"size": [960, 640]}}),
            },
            (3, 640, 960),
        ),
        (
            {"Eval": data({"DetResizeForTest": None}), "Global": {"d2s_train_image_shape": [3, 640, 640]}},
            (3, 640, 640),
        ),
        (
            {
                "Train": data(
                    {"RecConAug": {"image_shape": [48, 320, 3]}},
                    {"RecResizeImg": {"image_shape": [3, 48, 320]}},
                )
            },
            (3, 48, 320),
        ),
        ({"Train": data({"SVTRRecResizeImg": {"image_shape": [3, 64, 256]}})}, (3, 64, 256)),
    ],
)
def test_input_shape_comes_from_the_config(config, shape):
    assert input_shape(config) == shape


def test_no_input_shape_anywhere():
    with pytest.raises(InputError, match="does not say which image size"):
        input_shape({"Eval": data({"DetResizeForTest": None})})


@pytest.mark.parametrize(
    ("algorithm", "head", "training", "evaluating"),
    [
        ("DB", "DBHead", False, False),
        ("SVTR_LCNet", "MultiHead", True, False),
        ("CRNN", "CTCHead", False, False),
        ("SAR", "SARHead", True, True),
    ],
)
def test_labels_go_in_as_in_ppocrs_loops(algorithm, head, training, evaluating):
    config = {"Architecture": {"algorithm": algorithm, "Head": {"name": head}}}
    assert takes_labels(config, training=True) is training
    assert takes_labels(config, training=False) is evaluating


class Decoder:
    character = ("blank", *"abcdef")


def test_out_channels_of_a_multi_head():
    config = {
        "Architecture": {"algorithm": "SVTR_LCNet", "Head": {"name": "MultiHead"}},
        "PostProcess": {"name": "CTCLabelDecode"},
        "Loss": {"loss_config_list": [{"CTCLoss": None}, {"SARLoss": None}]},
    }
    fill_out_channels(config, Decoder())
    assert config["Architecture"]["Head"]["out_channels_list"] == {
        "CTCLabelDecode": 7,
        "SARLabelDecode": 9,
        "NRTRLabelDecode": 10,
    }
    assert config["Loss"]["loss_config_list"][1]["SARLoss"] == {"ignore_index": 8}


def test_sub_model_must_exist():
    config = {
        "Architecture": {"algorithm": "Distillation", "Models": {"Teacher": {}, "Student": {}}},
        "Metric": {"key": "Student"},
    }
    assert network_name(config, None) == "Student"
    assert network_name(config, "Teacher") == "Teacher"
    with pytest.raises(InputError, match=r'no sub-model "student".*did you mean "Student".*Teacher, Student'):
        network_name(config, "student")
    with pytest.raises(InputError, match="single network"):
        network_name({"Architecture": {"algorithm": "DB"}}, "Student")
