"""Errors name the option of the program that runs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from dysens.cli import main
from dysens.errors import InputError
from dysens.flags import DYSENS, PYTHON, Spelling, flag, setting, spelled
from dysens.ratios import Target

ROOT = Path(__file__).parents[2]


def test_python_dysens_and_tools_spell_an_option_each():
    assert flag("target_loss") == "target_loss"
    with spelled(DYSENS):
        assert flag("target_loss") == "--target-loss"
        assert setting("a.b=1") == "--set a.b=1"
        with spelled(Spelling("--", "_", "-o ", {"only": "--pruned_params"})):
            assert (flag("target_loss"), flag("only")) == ("--target_loss", "--pruned_params")
            assert setting("a.b=1") == "-o a.b=1"
        assert flag("only") == "--only"
    assert flag("only") == PYTHON.flag("only") == "only"


def test_it_is_undone_by_an_error():
    with pytest.raises(InputError, match="of --loss"), spelled(DYSENS):
        Target().check()
    with pytest.raises(InputError, match="of loss"):
        Target().check()


def test_a_config_s_mistake_in_both_programs(tmp_path, capfd):
    config = ROOT / "configs" / "ocr" / "ch_PP-OCRv3_det.yml"
    gone = "Eval.dataset.label_file_list=[gone.txt]"
    assert main(["eval", str(config), "--set", gone]) == 1
    assert "--set Eval.dataset.label_file_list=" in capfd.readouterr().err
    spec = importlib.util.spec_from_file_location("tool", ROOT / "tools" / "ocr_eval.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    with pytest.raises(SystemExit, match=r"-o Eval\.dataset\.label_file_list="):
        tool.main(["-c", str(config), "-o", gone])
