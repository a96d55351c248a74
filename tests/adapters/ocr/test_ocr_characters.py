"""A recogniser that reads fewer characters: the same logits for those, and nothing else in its files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import paddle
import pytest

from dysens.adapters.ocr import OcrTask, cut_characters, load_config, preset_characters, wanted_characters
from dysens.cli import main
from dysens.errors import InputError
from dysens.pruning import save_pruned, stages_of
from dysens.sensitivity import DygraphSensitivity

CONFIGS = Path(__file__).parents[3] / "configs" / "ocr"
NARROW = (
    "Architecture.Backbone.scale=0.35",
    "Global.pretrained_model=null",
    "Global.character_dict_path=ppocr/utils/en_dict.txt",
)


def logits(task, image):
    """What the CTC head says before the softmax."""
    seen = []
    hook = task.model.head.ctc_head.fc.register_forward_post_hook(
        lambda _l, _i, out: seen.append(out.numpy())
    )
    task.model.eval()
    with paddle.no_grad():
        task.model(image)
    hook.remove()
    return seen[-1]


@pytest.fixture
def narrow(config):
    """PP-OCRv4's and v3's recognisers with random weights: the branches that guide CTC are NRTR's and SAR's."""

    def build(name, *overrides):
        return OcrTask(config(name, *(() if "v3" in name else NARROW), *overrides))

    return build


IMAGE = paddle.to_tensor(np.random.RandomState(1).uniform(-1, 1, (2, 3, 48, 160)).astype("float32"))


@pytest.mark.parametrize("name", ["ch_PP-OCRv4_rec", "ch_PP-OCRv3_rec"])
def test_logits_of_kept_characters_stay(narrow, tmp_path, name):
    task = narrow(name)
    with open(task.config["Global"]["character_dict_path"], encoding="utf-8") as file:
        known = [line.rstrip("\n") for line in file]
    kept = [0, *(1 + place for place, each in enumerate(known) if each in "0123456789"), len(known) + 1]
    before, weight = logits(task, IMAGE), task.model.head.ctc_head.fc.weight.numpy()
    cut = cut_characters(task, set("0123456789"), tmp_path)
    np.testing.assert_array_equal(task.model.head.ctc_head.fc.weight.numpy(), weight[:, kept])
    # A library may add in another order where a matrix is narrower.
    rounding = 1e-6 * np.abs(before).max()
    np.testing.assert_allclose(logits(task, IMAGE), before[..., kept], rtol=0, atol=rounding)
    assert cut.after == 10
    assert cut.difference <= rounding
    assert (tmp_path / "dictionary.txt").read_text().split() == [
        each for each in known if each in "0123456789"
    ]
    # PaddleOCR builds the smaller network from the config by itself, and it is the same one.
    built = OcrTask(load_config(tmp_path / "config.yml"))
    assert built.post_process.character == task.post_process.character  # the live task decodes with it, too
    assert built.post_process.character == ["blank", *(known[place - 1] for place in kept[1:-1]), " "]
    np.testing.assert_allclose(logits(built, IMAGE), before[..., kept], rtol=0, atol=10 * rounding)
    # The branches that only training runs lose the same classes, and train.
    built.model.train()
    outputs = built.model(*built.train_inputs)
    guide = outputs["sar" if "v3" in name else "gtc"]
    assert guide.shape[-1] == (len(known) + 1 + 2 if "v3" in name else len(known) + 1 + 5) - (len(known) - 10)


@pytest.mark.once("paddle3")  # the other order, below, on the other stack
def test_channels_are_cut_after_the_dictionary(narrow, config, tmp_path):
    """One checkpoint, one plan, read by the config before and by the one after."""
    task = narrow("ch_PP-OCRv4_rec")
    cut_characters(task, preset_characters("digits"), tmp_path / "first")
    smaller = OcrTask(load_config(tmp_path / "first" / "config.yml"))
    ds = DygraphSensitivity(smaller.model, smaller.example_inputs)
    ds.prune_vars({ds.groups[-1].path: 0.5})
    save_pruned(smaller.network, tmp_path / "both")
    expected = logits(smaller, IMAGE)
    for source in (tmp_path / "first" / "config.yml", None):
        given = load_config(source) if source else config("ch_PP-OCRv4_rec", *NARROW)
        given["Global"]["pretrained_model"] = str(tmp_path / "both")
        loaded = OcrTask(given)
        np.testing.assert_array_equal(logits(loaded, IMAGE), expected)
        assert len(stages_of(loaded.network)) == 2


@pytest.mark.once("paddle26")
def test_the_dictionary_is_cut_after_channels(narrow, tmp_path):
    other = narrow("ch_PP-OCRv4_rec")
    ds = DygraphSensitivity(other.model, other.example_inputs)
    ds.prune_vars({ds.groups[-1].path: 0.5})
    cut = cut_characters(other, preset_characters("digits"), tmp_path / "second")
    assert not cut.native
    assert "dysens, which reads the plan" in str(cut)
    again = OcrTask(load_config(tmp_path / "second" / "config.yml"))
    np.testing.assert_array_equal(logits(again, IMAGE), logits(other, IMAGE))
    assert len(stages_of(again.network)) == 2


def test_what_the_evaluation_set_lacks_is_said(narrow, tmp_path, images):
    labels = tmp_path / "label.txt"
    names = [line.split("\t")[0] for line in (images / "rec_eval" / "label.txt").read_text().splitlines()]
    labels.write_text("".join(f"{name}\t{text}\n" for name, text in zip(names, ["12 3", "4a", "ab", "7"])))
    task = narrow("ch_PP-OCRv4_rec", f"Eval.dataset.label_file_list=[{labels}]")
    cut = cut_characters(task, {*"0123456789", "\u2603"}, tmp_path / "out")
    assert (dict(cut.lacking), cut.lines, cut.unreadable) == ({"a": 2, "b": 1}, 4, 2)
    assert cut.unknown == ("\u2603",)
    assert "2 of 4 lines of the evaluation set need 2 characters that are not kept: a b" in str(cut)


def test_sources_of_characters(tmp_path):
    dictionary, text = tmp_path / "dict.txt", tmp_path / "text.txt"
    dictionary.write_bytes("a\r\n\u3000\r\n".encode())
    text.write_text("\ufeffxy\nz x\n", encoding="utf-8")
    assert wanted_characters(dictionary) == {"a", "\u3000"}
    assert wanted_characters(dictionary, text) == {"a", "\u3000", "x", "y", "z", " "}
    assert len(preset_characters("ascii")) == 94
    assert {"\u4e00", "\u5ea7", "\u3002", "A"} <= preset_characters("chinese")
    for arguments, said in (
        ({}, "which characters to keep"),
        ({"preset": "asci"}, 'did you mean "ascii"'),
        ({"keep": tmp_path / "gone.txt"}, "cannot be read"),
    ):
        with pytest.raises(InputError, match=said):
            wanted_characters(**arguments)
    text.write_bytes("x\n中\n".encode("gbk"))
    with pytest.raises(InputError, match=r'Line 2 of the file ".*text\.txt" is not UTF-8'):
        wanted_characters(text=text)
    text.write_text("")
    with pytest.raises(InputError, match="has no characters"):
        wanted_characters(text=text)


def test_networks_without_a_dictionary_and_unknown_characters(narrow, config, tmp_path):
    with pytest.raises(InputError, match="Only the dictionary of a recogniser"):
        cut_characters(OcrTask(config("det_mv3_db")), {"a"}, tmp_path)
    with pytest.raises(InputError, match="has none of the characters"):
        cut_characters(narrow("ch_PP-OCRv4_rec"), {"\u2603"}, tmp_path)


def test_the_command(tmp_path, capsys):
    words = [
        "characters",
        str(CONFIGS / "rec_mv3_crnn.yml"),
        "--preset",
        "digits",
        "-o",
        str(tmp_path / "out"),
    ]
    code = main([*words, "--json"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert json.loads(printed.out)["characters_after"] == 10
    assert main(["characters", "resnet18", "--preset", "digits"]) == 1
    assert "is not a PaddleOCR config" in capsys.readouterr().err
