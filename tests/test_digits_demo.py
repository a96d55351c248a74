"""The demo is the first thing that anyone runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dysens import DygraphSensitivity, Sensitivities
from dysens.demos.digits import FILES, INPUT_SHAPE, DigitNet, Stage, main, results_table


@pytest.fixture(scope="module")
def folder(demo_home: Path) -> Path:
    """What a quick run leaves behind."""
    return demo_home / "output" / "demo"


def test_it_leaves_the_files_that_it_names(folder: Path) -> None:
    assert {name for name in FILES if (folder / name).stat().st_size > 0} == set(FILES)


def test_the_pictures_are_pictures(folder: Path) -> None:
    for name in ("curves.png", "heat_map.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")


def test_the_journal_can_be_read(folder: Path) -> None:
    sens = Sensitivities.load(folder / "sensitivities.jsonl")
    assert len(sens) == 5
    assert list(sens["stem.0.weight"]) == [0.25, 0.5, 0.75]
    assert sens.baseline is not None
    assert 0.1 < sens.baseline <= 1


def test_the_plan_cuts_residual_and_depthwise_layers(folder: Path) -> None:
    plan = json.loads((folder / "pruned.plan.json").read_text())
    assert plan["model"] == "DigitNet"
    assert len(plan["stages"]) == 1


def test_the_table_shows_the_cost_of_every_stage() -> None:
    table = results_table(
        [Stage("trained", 0.98, 2_000, 200), Stage("cut by the sweep", 0.5, 1_000, 100)]
    ).splitlines()
    assert table[1].split() == ["trained", "0.9800", "2,000", "200"]
    assert table[2].split() == ["cut", "by", "the", "sweep", "0.5000", "1,000", "100"]


def test_every_convolution_of_its_network_is_in_a_group() -> None:
    ds = DygraphSensitivity(DigitNet(), INPUT_SHAPE)
    assert [group.path for group in ds.groups] == [
        "stem.0.weight",
        "block1.first.0.weight",
        "down1.pointwise.0.weight",
        "block2.first.0.weight",
        "down2.pointwise.0.weight",
    ]
    assert not ds.unprunable


def test_help_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "--quick" in capsys.readouterr().out
