"""Ratio files: what any writer writes, the one reader reads; what cannot be read is a sentence."""

from __future__ import annotations

import json

import numpy as np
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dysens.errors import InputError
from dysens.ratios import RatioFile, ratio_file_text, ratios_of_pruner, read_ratio_file, write_ratio_file

names = st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda name: name not in ("slim", "Pruner"))
ratios = st.dictionaries(names, st.floats(0, 1, exclude_max=True), min_size=1)
paths = st.text(st.characters(categories=["L", "N", "P"]), min_size=1)


@settings(max_examples=60, deadline=None)
@given(ratios, st.sampled_from(["yaml", "json"]))
@example({"0E0": 0.5}, "yaml")
def test_what_is_written_is_read(tmp_path_factory, ratios, kind):
    path = tmp_path_factory.getbasetemp() / "ratios.txt"
    write_ratio_file(path, ratios, kind)
    read = read_ratio_file(path)
    assert read == RatioFile(pytest.approx(ratios, abs=1e-9))
    assert list(read.ratios) == list(ratios)


@settings(max_examples=60, deadline=None)
@given(ratios, st.sampled_from(["fpgm", "l1", "l2", "variance"]), st.none() | paths)
@example({"0E0": 0.5}, "fpgm", None)
def test_what_is_written_as_a_slim_config_is_read(tmp_path_factory, ratios, criterion, weights):
    path = tmp_path_factory.getbasetemp() / "slim.yml"
    write_ratio_file(path, ratios, "slim", criterion, weights)
    read = read_ratio_file(path)
    assert read == RatioFile(pytest.approx(ratios, abs=1e-9), criterion, weights)
    assert list(read.ratios) == list(ratios)


@pytest.mark.parametrize(("kind", "ending"), [("yaml", "json"), ("json", "yml"), ("slim", "json")])
def test_the_content_says_the_kind_and_not_the_name(tmp_path, kind, ending):
    path = tmp_path / f"ratios.{ending}"
    write_ratio_file(path, {"stem.weight": 0.25}, kind, "fpgm" if kind == "slim" else None)
    assert read_ratio_file(path).ratios == {"stem.weight": 0.25}


@pytest.mark.parametrize(("name", "parse"), [("ratios.json", json.loads), ("ratios.yml", yaml.safe_load)])
def test_without_a_kind_the_name_says_what_is_written(tmp_path, name, parse):
    path = tmp_path / "new" / name
    write_ratio_file(path, {"a": 0.1 + 0.2, "b": np.float32(0.5)})
    assert parse(path.read_text(encoding="utf-8")) == {"a": 0.3, "b": 0.5}


def test_what_is_all_but_one_does_not_become_one(tmp_path):
    write_ratio_file(tmp_path / "r.yml", {"a": 1 - 1e-12})
    assert read_ratio_file(tmp_path / "r.yml").ratios["a"] < 1


def test_the_file_is_what_paddledetection_reads(tmp_path):
    path = tmp_path / "prune.yml"
    chosen = {"conv2d_27.w_0": 0.1, "conv2d_28.w_0": 0.25}
    write_ratio_file(path, chosen, "slim", "l1", "model.pdparams")
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
        "  criterion: l1_norm\n"
        "  pruned_params: ['conv2d_27.w_0', 'conv2d_28.w_0',\n"
        "                  'conv2d_29.w_0']\n"
        "  pruned_ratios: [0.1,0.2,0]\n"
        "  print_params: False\n"
    )
    ratios = {"conv2d_27.w_0": 0.1, "conv2d_28.w_0": 0.2, "conv2d_29.w_0": 0}
    assert read_ratio_file(path) == RatioFile(ratios, "l1", "model.pdparams")


@pytest.mark.parametrize(
    "text",
    [
        "a: 0.001\nb: 0.5\n",
        "# by hand\n'a':   1e-3\n\"b\": 5.e-1\n",
        "{a: 1.0e-3, b: .5}",
        '{"a": 1e-3, "b": 0.5}',
        '\n {\n "a": 0.001,\n "b": 5e-1\n}\n',
        "\ufeffa: 0.001\r\nb: 0.5\r\n",
    ],
)
def test_files_written_by_hand(tmp_path, text):
    (tmp_path / "ratios").write_text(text, encoding="utf-8", newline="")
    assert read_ratio_file(tmp_path / "ratios") == RatioFile({"a": 0.001, "b": 0.5})


def test_a_program_that_ranks_in_another_way_is_refused(tmp_path):
    write_ratio_file(tmp_path / "prune.yml", {"a": 0.5}, "slim", "l1")
    read = read_ratio_file(tmp_path / "prune.yml")
    read.check_criterion("l1")
    with pytest.raises(
        InputError, match=r"prune\.yml has ratios for the criterion l1, .* give criterion l1\."
    ):
        read.check_criterion("fpgm")
    RatioFile({"a": 0.5}).check_criterion("fpgm")


PRUNER = "slim: Pruner\nPruner: {{criterion: {}, pruned_params: {}, pruned_ratios: {}}}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", "is neither YAML nor JSON"),
        ("a: &x [*x]", "is neither YAML nor JSON"),
        ("[" * 1_000, "is neither YAML nor JSON"),
        ("a: 2001-99-99", "is neither YAML nor JSON"),
        ("a: 0.5\n---\nb: 0.5", "is neither YAML nor JSON"),
        ("a: !!python/object/apply:os.system [ls]", "is neither YAML nor JSON"),
        ('{"kind": 1}\n{"param": "a"}', "is neither YAML nor JSON"),
        ("", "holds no ratios"),
        ("{}", "holds no ratios"),
        ("0.5", "holds no ratios"),
        ("- a: 0.5", "holds no ratios"),
        ("param,ratio,loss\nconv,0.5,0.1\n", "holds no ratios"),
        ("a: 0.1\nb: 0.2\na: 0.3", "names a more than once"),
        ('{"a": 0.1, "a": 0.2}', "names a more than once"),
        ("a: 1.0", "the ratio of a must be at least 0 and under 1, not 1.0"),
        ("a: -0.1", "the ratio of a must be at least 0 and under 1, not -0.1"),
        ("a: .nan", "the ratio of a must be at least 0 and under 1, not nan"),
        ('{"a": Infinity}', "the ratio of a must be at least 0 and under 1, not inf"),
        ("a: yes", "the ratio of a must be a number, not True"),
        ("a: half", "the ratio of a must be a number, not 'half'"),
        ("a: {b: 0.5}", "the ratio of a must be a number"),
        ("a:", "the ratio of a must be a number, not None"),
        (f"a: {10**400}", "the ratio of a is too large a number"),
        (f'{{"a": {"9" * 5000}}}', "is neither YAML nor JSON"),
        ("slim: QAT\nQAT: {}", "is not a pruning config"),
        ("slim: Pruner\nPruner: 3", "is not a pruning config"),
        ("Pruner: {criterion: fpgm, pruned_params: [a], pruned_ratios: [0.5]}", "is not a pruning config"),
        ("slim: Pruner\npretrain_weights: [a]\nPruner: {}", "pretrain_weights must be a path"),
        (PRUNER.format("fpgm", "a", "[0.1]"), "must both be lists"),
        (PRUNER.format("fpgm", "[a, b]", "[0.1]"), "names 2 parameters but 1 ratios"),
        (PRUNER.format("fpgm", "[a, a]", "[0.1, 0.2]"), "names a more than once"),
        (PRUNER.format("fpgm", "[[a]]", "[0.1]"), "where the name of a parameter belongs"),
        (PRUNER.format("fpgm", "[]", "[]"), "holds no ratios"),
        (PRUNER.format("fpgm", "[a]", "[1.0]"), "the ratio of a must be at least 0 and under 1"),
        (PRUNER.format("fpgm", "[a]", "[yes]"), "the ratio of a must be a number, not True"),
        (
            "slim: Pruner\nPruner: {pruned_params: [a], pruned_ratios: [0]}",
            "Pruner.criterion must be the name",
        ),
    ],
)
def test_files_that_cannot_be_used_are_sentences(tmp_path, text, sentence):
    path = tmp_path / "ratios.yml"
    path.write_text(text)
    with pytest.raises(InputError, match=sentence) as raised:
        read_ratio_file(path)
    assert str(raised.value).startswith(str(path))
    assert str(raised.value).endswith(".")


def test_what_is_no_text_file_is_a_sentence(tmp_path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_ratio_file(tmp_path / "none.yml")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_ratio_file(tmp_path)
    (tmp_path / "weights.pdparams").write_bytes(b"\x80\x04\x95\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8 text"):
        read_ratio_file(tmp_path / "weights.pdparams")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    with pytest.raises(InputError, match="larger than"):
        read_ratio_file(tmp_path / "large")


@pytest.mark.parametrize(
    ("ratios", "options", "sentence"),
    [
        ({}, {}, "no ratios to write"),
        ({"a": 1.0}, {}, "the ratio of a must be at least 0 and under 1"),
        ({"a": "0.5"}, {}, "the ratio of a must be a number"),
        ({"a": 0.5}, {"kind": "toml"}, "no kind of ratio file 'toml'; there are yaml, json, slim"),
        ({"a": 0.5}, {"kind": "slim"}, "needs the name of its criterion"),
        ({"a": 0.5}, {"criterion": "l1"}, "Only a slim config holds a criterion"),
        ({"a": 0.5}, {"kind": "json", "pretrain_weights": "w"}, "Only a slim config holds a criterion"),
    ],
)
def test_what_cannot_be_written_is_a_sentence(tmp_path, ratios, options, sentence):
    with pytest.raises(InputError, match=sentence):
        write_ratio_file(tmp_path / "r.yml", ratios, **options)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        write_ratio_file(tmp_path / "file" / "r.yml", {"a": 0.5})


def test_a_section_may_hold_tuples():
    section = {"criterion": "fpgm", "pruned_params": ("a",), "pruned_ratios": (0.5,)}
    assert ratios_of_pruner(section, "It") == RatioFile({"a": 0.5}, "fpgm")


def test_the_text_is_what_is_written(tmp_path):
    write_ratio_file(tmp_path / "r.yml", {"a": 0.5})
    assert (tmp_path / "r.yml").read_text() == ratio_file_text({"a": 0.5}) == "a: 0.5\n"
