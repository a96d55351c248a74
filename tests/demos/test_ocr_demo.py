"""The PaddleOCR demo from beginning to end, with next to no data."""

from __future__ import annotations

from pathlib import Path

import pytest
from demos.stories import check_table

from dysens.costs import model_files
from dysens.demos.ocr import main
from dysens.report import read_card

CONFIGS = Path(__file__).parents[2] / "configs" / "ocr"


def test_the_whole_story(tmp_path, capsys):
    main(["--quick", "--output", str(tmp_path), "--configs", str(CONFIGS)])
    check_table(capsys.readouterr().out, lowest_score=0.5, flops_left=0.5)
    folder = tmp_path / "det"
    assert model_files(folder / "inference" / "inference")
    assert (folder / "latest.plan.json").is_file()
    card = read_card(folder / "card.json")
    assert len(card.samples) == 4
    assert sum(len(sample.before) for sample in card.samples) > 4
    # Another run begins anew, also where this one left its files; without compress, by a search.
    with pytest.raises(SystemExit, match="nowhere"):
        main(["--quick", "--by", "search", "--output", str(tmp_path), "--configs", "nowhere"])


def test_configs_that_are_not_there(tmp_path):
    with pytest.raises(
        SystemExit, match=r"error: The config .*nowhere/ch_PP-OCRv3_det\.yml\" cannot be read"
    ):
        main(["--quick", "--output", str(tmp_path), "--configs", "nowhere"])
