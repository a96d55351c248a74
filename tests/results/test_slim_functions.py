import math
import pickle

import pytest

from dysens.compat import get_ratios_by_loss, load_sensitivities, merge_sensitive
from dysens.errors import InputError
from dysens.results import Journal, write_static, write_status

from .common import header, point

CURVES = {"a": {0.1: 0.01, 0.2: 0.2}, "b": {0.1: 0.5}}


def test_load_sensitivities(tmp_path):
    write_static(tmp_path / "static", CURVES)
    write_status(tmp_path / "status", CURVES)
    Journal.open(tmp_path / "sens.jsonl", header()).append(point())
    assert load_sensitivities(str(tmp_path / "static")) == CURVES
    assert load_sensitivities(tmp_path / "status") == CURVES
    assert load_sensitivities(tmp_path / "sens.jsonl") == {"conv2d_0.w_0": {0.3: 0.1}}


def test_no_file_is_no_sensitivities(tmp_path):
    assert (
        load_sensitivities(None) == load_sensitivities("") == load_sensitivities(tmp_path / "nowhere") == {}
    )


def test_the_numbers_are_those_in_the_file(tmp_path):
    odd = {"a": {0.1 + 0.2: math.inf}}
    (tmp_path / "file").write_bytes(pickle.dumps(odd))
    assert load_sensitivities(tmp_path / "file") == odd


def test_merge_sensitive(tmp_path):
    write_static(tmp_path / "static", CURVES)
    later = {"a": {0.1: 0.02}, "c": {}}
    expected = {"a": {0.1: 0.02, 0.2: 0.2}, "b": {0.1: 0.5}, "c": {}}
    assert merge_sensitive([CURVES, later]) == expected
    assert merge_sensitive([tmp_path / "static", later]) == expected
    assert CURVES["a"][0.1] == 0.01
    with pytest.raises(InputError, match="nothing to merge"):
        merge_sensitive([])


def test_get_ratios_by_loss_has_zeros_where_nothing_is_admitted():
    assert get_ratios_by_loss({**CURVES, "c": {}}, 0.01) == {"a": 0.1, "b": 0.0}
