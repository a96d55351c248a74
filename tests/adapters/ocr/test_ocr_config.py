"""PaddleOCR's YAML and its command-line overrides."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dysens.adapters.ocr import load_config, override
from dysens.errors import InputError

CONFIG = {
    "Global": {"epoch_num": 500},
    "Optimizer": {"lr": {"name": "Cosine", "learning_rate": 0.001}},
    "Eval": {
        "dataset": {"transforms": [{"DecodeImage": None}, {"DetResizeForTest": {"limit_side_len": 960}}]}
    },
}


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("Global.epoch_num=2", ["Global", "epoch_num"], 2),
        ("Global.pretrained_model=a=b", ["Global", "pretrained_model"], "a=b"),
        ("Global.checkpoints=", ["Global", "checkpoints"], None),
        ("Optimizer.lr.learning_rate=1.0e-05", ["Optimizer", "lr", "learning_rate"], 1e-5),
        ("Optimizer.lr={name: Const}", ["Optimizer", "lr"], {"name": "Const"}),
        (
            "Eval.dataset.transforms.1.DetResizeForTest.limit_side_len=640",
            ["Eval", "dataset", "transforms", 1, "DetResizeForTest", "limit_side_len"],
            640,
        ),
        ("+Optimizer.lr.warmup_epoch=2", ["Optimizer", "lr", "warmup_epoch"], 2),
        (
            "+Eval.dataset.transforms.0.DecodeImage.img_mode=RGB",
            ["Eval", "dataset", "transforms", 0, "DecodeImage", "img_mode"],
            "RGB",
        ),
        (" Global.use_gpu=false ", ["Global", "use_gpu"], False),
    ],
)
def test_override_sets_one_value(text, path, value):
    here = override(CONFIG, [text])
    for key in path:
        here = here[key]
    assert here == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Global.pretrained_modle=x", 'did you mean "pretrained_model"'),
        ("Globl.epoch_num=2", 'names "Globl".*did you mean "Global"'),
        ("Optimizer.lr.learning_rat=1", r'did you mean "learning_rate".*write \+Optimizer'),
        ("Optimizer.pretrained_model=x", r"does not have at that place \(write"),
        ("Global.epoch_num", "not of the form key=value"),
        ("Global..x=1", "not of the form"),
        ("=1", "not of the form"),
        ("Global.epoch_num.x=1", "goes below a plain value"),
        ("+Global.epoch_num.x=1", r"goes below a plain value \(500\)"),
        ("Eval.dataset.transforms.0.DecodeImage.img_mode=RGB", r"\(None\).*write \+Eval.*to add it"),
        ("Eval.dataset.transforms.7=1", "a number from 0 to 1"),
        ("Global.epoch_num=[1", "not valid YAML"),
    ],
)
def test_bad_override_is_a_sentence(text, message):
    with pytest.raises(InputError, match=message):
        override(CONFIG, [text])


@given(st.text(max_size=30))
def test_any_text_is_applied_or_refused_and_the_original_kept(text):
    before = repr(CONFIG)
    with suppress(InputError):
        override(CONFIG, [text])
    assert repr(CONFIG) == before


def test_later_overrides_win():
    assert override(CONFIG, ["Global.epoch_num=1", "Global.epoch_num=3"])["Global"]["epoch_num"] == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("Global: [", "not valid YAML"),
        ("- a list", "has no sections"),
        ("", "has no sections"),
    ],
)
def test_unusable_file(tmp_path, content, message):
    path = tmp_path / "config.yml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=message):
        load_config(path)
