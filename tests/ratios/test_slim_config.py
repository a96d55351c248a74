from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dysens.adapters.det import SlimConfig, read_slim_config, write_slim_config
from dysens.errors import InputError

names = st.from_regex(r"[a-z0-9_.]+\.w_0", fullmatch=True)
ratios = st.dictionaries(names, st.floats(0, 1, exclude_max=True))
paths = st.text(st.characters(categories=["L", "N", "P"]), min_size=1)
configs = st.builds(SlimConfig, st.sampled_from(["fpgm", "l1", "l2"]), ratios, st.none() | paths)


@settings(max_examples=40, deadline=None)
@given(configs)
def test_what_is_written_is_read(tmp_path_factory, config):
    path = tmp_path_factory.getbasetemp() / "slim.yml"
    write_slim_config(path, config)
    read = read_slim_config(path)
    assert read == config
    assert list(read.ratios) == list(config.ratios)


def test_the_file_is_what_paddledetection_reads(tmp_path):
    path = tmp_path / "prune.yml"
    write_slim_config(path, SlimConfig("l1", {"conv2d_27.w_0": 0.1, "conv2d_28.w_0": 0.25}, "model.pdparams"))
    assert yaml.safe_load(path.read_text()) == {
        "pretrain_weights": "model.pdparams",
        "slim": "Pruner",
        "Pruner": {
            "criterion": "l1_norm",
            "pruned_params": ["conv2d_27.w_0", "conv2d_28.w_0"],
            "pruned_ratios": [0.1, 0.25],
            "print_params": False,
        },
    }


def test_a_file_in_paddledetections_style_is_read(tmp_path):
    path = tmp_path / "prune.yml"
    path.write_text(
        "# Weights of a detector\n"
        "pretrain_weights: model.pdparams\n"
        "slim: Pruner\n\n"
        "Pruner:\n"
        "  criterion: fpgm\n"
        "  pruned_params: ['conv2d_27.w_0', 'conv2d_28.w_0',\n"
        "                  'conv2d_29.w_0']\n"
        "  pruned_ratios: [0.1,0.2,0]\n"
        "  print_params: False\n"
    )
    ratios = {"conv2d_27.w_0": 0.1, "conv2d_28.w_0": 0.2, "conv2d_29.w_0": 0}
    assert read_slim_config(path) == SlimConfig("fpgm", ratios, "model.pdparams")


PRUNER = "slim: Pruner\nPruner: {{criterion: {}, pruned_params: {}, pruned_ratios: {}}}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("slim: [", "is not YAML"),
        ("slim: QAT\nQAT: {}", "is not a pruning config"),
        ("[]", "is not a pruning config"),
        ("slim: Pruner\nPruner: 3", "is not a pruning config"),
        (PRUNER.format("fpgm", "a", "[0.1]"), "must both be lists"),
        (PRUNER.format("fpgm", "[a, b]", "[0.1]"), "names 2 parameters but 1 ratios"),
        (PRUNER.format("fpgm", "[a, a]", "[0.1, 0.2]"), "names a more than once"),
        (PRUNER.format("fpgm", "[a]", "[1.0]"), "The ratio of a is 1.0"),
        (PRUNER.format("fpgm", "[a]", "[-0.1]"), "The ratio of a is -0.1"),
        (PRUNER.format("fpgm", "[a]", "[yes]"), "The ratio of a is True"),
        (PRUNER.format("fpgn", "[a]", "[0.1]"), "criterion 'fpgn'; did you mean \"fpgm\""),
        ("slim: Pruner\nPruner: {pruned_params: [], pruned_ratios: []}", "criterion 'None'"),
    ],
)
def test_files_that_cannot_be_used_are_sentences(tmp_path, text, sentence):
    path = tmp_path / "prune.yml"
    path.write_text(text)
    with pytest.raises(InputError, match=sentence):
        read_slim_config(path)


def test_a_missing_file_is_a_sentence(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_slim_config(tmp_path / "none.yml")
