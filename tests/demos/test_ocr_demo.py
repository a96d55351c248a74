"""The PaddleOCR demo from beginning to end, with next to no data."""

from __future__ import annotations

from pathlib import Path

import pytest
from demos.stories import check_table

from dysens.costs import model_files
from dysens.demos._story import PRUNED, TUNED, WHOLE, Row, table
from dysens.demos.ocr import main

CONFIGS = Path(__file__).parents[2] / "configs" / "ocr"


def test_the_whole_story(tmp_path, capsys):
    main(["--quick", "--output", str(tmp_path), "--configs", str(CONFIGS)])
    check_table(capsys.readouterr().out, lowest_score=0.5, flops_left=0.7)
    assert all(model_files(tmp_path / "det" / state / "inference") for state in (WHOLE, PRUNED, TUNED))
    assert (tmp_path / "det" / "latest.plan.json").is_file()


def test_a_latency_that_nobody_measured_is_not_zero():
    assert table([Row(WHOLE, 0.9, 100, 10, 2048)], "hmean").split()[-1] == "unknown"


def test_configs_that_are_not_there(tmp_path):
    with pytest.raises(
        SystemExit, match=r"error: The config .*nowhere/ch_PP-OCRv3_det\.yml\" cannot be read"
    ):
        main(["--quick", "--output", str(tmp_path), "--configs", "nowhere"])
