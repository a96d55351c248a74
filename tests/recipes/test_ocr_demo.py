"""The PaddleOCR demo from beginning to end, with next to no data."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dysens.latency import model_files
from dysens.recipes.ocr_demo import EXPORTED, PRUNED, TUNED, WHOLE, Row, main, table

CONFIGS = Path(__file__).parents[2] / "configs" / "ocr"


def test_the_whole_story(tmp_path, capsys):
    main(["--quick", "--output", str(tmp_path), "--configs", str(CONFIGS)])
    printed = capsys.readouterr().out
    found = {
        state: [float(number.replace(",", "")) for number in numbers.split()]
        for state, numbers in re.findall(r"^(\S+)\s+([\d., ]+)$", printed, re.MULTILINE)
    }
    assert list(found) == [WHOLE, PRUNED, TUNED, EXPORTED]
    score, flops, params, size, milliseconds = zip(*found.values())
    assert score[0] > 0.5
    assert score[3] == pytest.approx(score[2], abs=0.02)  # the same network, live and served
    assert flops[1] <= 0.7 * flops[0]
    assert flops[1:] == (flops[1],) * 3
    assert params[1] < params[0]
    assert size[1] < size[0]
    assert min(milliseconds) > 0
    assert all(model_files(tmp_path / "det" / state / "inference") for state in (WHOLE, PRUNED, TUNED))
    assert (tmp_path / "det" / "latest.plan.json").is_file()


def test_a_latency_that_nobody_measured_is_not_zero():
    assert table([Row(WHOLE, 0.9, 100, 10, 2048)], "hmean").split()[-1] == "unknown"


def test_configs_that_are_not_there(tmp_path):
    with pytest.raises(
        SystemExit, match=r"error: the config .*nowhere/ch_PP-OCRv3_det\.yml\" cannot be read"
    ):
        main(["--quick", "--output", str(tmp_path), "--configs", "nowhere"])
