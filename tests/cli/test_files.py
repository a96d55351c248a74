"""Commands that need nothing but a file of sensitivities."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import yaml
from results.common import golden_sensitivities, header, point

from dysens import Sensitivities
from dysens.cli._files import require_written
from dysens.cli._tables import table_of
from dysens.errors import JournalError
from dysens.results import Journal, write_status

CURVES, _ = golden_sensitivities("mobilenet_v1", "fpgm")


def test_show(dysens, journal):
    done = dysens("show", journal, "--loss", "0.05")
    assert done.code == 0
    assert done.out.splitlines() == [
        "TinyNet, criterion fpgm, scored by accuracy",
        "6 points of 2 groups, baseline 0.9",
        "",
        "layer        0.25    0.5   0.75  <= 0.05",
        "stem.0      0.100  0.300  0.900        -",
        "block.conv  0.000  0.020   none    0.500",
    ]


def test_a_file_that_lacks_points_is_an_error(journal):
    """A disk that became full during a sweep must not end with "18 points are in ..."."""
    require_written(6, journal)
    with pytest.raises(JournalError, match=r"holds 6 of 8 points: .*dysens merge .*Or make room"):
        require_written(8, journal)


def test_show_sorts_by_loss(dysens, journal):
    lines = dysens("show", journal, "--sort", "loss").out.splitlines()
    assert [line.split()[0] for line in lines[-2:]] == [
        "block.conv",
        "stem.0",
    ]  # a point without a score is the worst


def test_show_as_json_has_no_infinity(dysens, journal):
    data = json.loads(dysens("show", journal, "--json", "--loss", "0.05").out)
    assert [group["path"] for group in data["groups"]] == ["stem.0.weight", "block.conv.weight"]
    assert data["groups"][1]["losses"] == {"0.25": -0.0001, "0.5": 0.02, "0.75": None}
    assert [group["ratio"] for group in data["groups"]] == [0.0, 0.5]


def test_show_tells_of_points_that_saw_part_of_the_data(dysens, journal):
    with Journal.open(journal, header()) as opened:
        opened.append(point("conv2d_0.w_0", 0.6, 0.5, share=0.25))
    assert "1 point of a search saw part of the data only" in dysens("show", journal).out


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_a_table_fits_the_terminal(width):
    names = [f"backbone.stages.{number}.blocks.conv.weight" for number in range(3)]
    ratios = [step / 20 for step in range(1, 20)]
    sens = Sensitivities([point(name, r, r / 2, path=name) for name in names for r in ratios])
    lines = table_of(sens, width, loss=0.1).splitlines()
    assert all(len(line) <= max(width, 32) for line in lines[:4])
    shown = len(lines[0].split()) - 3  # without the layer and "<= 0.1"
    assert 1 <= shown <= 19
    assert (shown < 19) == lines[-1].startswith(f"({shown} of 19 ratios")


def test_a_table_for_another_program_is_whole():
    name = "a" * 200
    sens = Sensitivities([point(name, step / 100, 0.5, path=name) for step in range(1, 100)])
    lines = table_of(sens, None).splitlines()
    assert len(lines) == 2
    assert lines[1].startswith(f"{name}  0.500")


@pytest.mark.parametrize("kind", ["curves", "heatmap"])
def test_plot(dysens, journal, kind):
    done = dysens("plot", journal, "--kind", kind)
    picture = journal.with_suffix(f".{kind}.png")
    assert (done.code, done.out.strip()) == (0, str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_plot_into_a_new_folder_as_svg(dysens, journal, tmp_path):
    assert dysens("plot", journal, "--loss", "0.1", "-o", tmp_path / "new" / "curves.svg").code == 0
    assert "<svg" in (tmp_path / "new" / "curves.svg").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", "curves.xyz"], "names no kind of picture"),
        (["-o", "curves"], "names no kind of picture"),
        (["--kind", "heatmap", "--loss", "0.1"], "--loss goes with --kind curves"),
        (["--kind", "flops"], "does not say what the network costs"),
    ],
)
def test_plots_that_cannot_be(dysens, journal, words, said):
    done = dysens("plot", journal, *words)
    assert (done.code, done.out) == (1, "")
    assert said in done.err


def test_report(dysens, journal):
    done = dysens("report", journal, "--title", "Two & more", "--language", "zh")
    page = journal.with_suffix(".html")
    assert (done.code, done.out.strip()) == (0, str(page))
    text = page.read_text(encoding="utf-8")
    assert "Two &amp; more" in text
    assert "block.conv" in text
    assert dysens("report", journal, "--language", "klingon").code == 1


def test_ratios_within_a_loss(dysens, journal, tmp_path):
    assert yaml.safe_load(dysens("ratios", journal, "--loss", "0.2").out) == {
        "stem.0.weight": 0.375,
        "block.conv.weight": 0.5,
    }
    printed = json.loads(dysens("ratios", journal, "--loss", "0.2", "--json").out)
    for name in ("r.yml", "r.json"):
        done = dysens("ratios", journal, "--loss", "0.2", "-o", tmp_path / name)
        assert (done.code, done.out) == (0, "")
        assert "ratios of 2 of 2 groups" in done.err
        assert yaml.safe_load((tmp_path / name).read_text()) == printed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Say how much to prune by one of --loss"),
        (["--loss", "0.1", "--flops", "0.5"], "not by --loss and --flops at once"),
        (["--loss", "0.1", "--align", "8"], "--align goes with"),
        (["--loss", "-1"], "No group may lose anything"),
        (["--flops", "0.5"], "does not say what the network costs"),
    ],
)
def test_ratios_that_cannot_be_chosen(dysens, journal, words, said):
    done = dysens("ratios", journal, *words)
    assert (done.code, done.out) == (1, "")
    assert said in done.err


@pytest.mark.parametrize("static", [False, True])
def test_a_paddleslim_pickle_there_and_back(dysens, tmp_path, static):
    write_status(tmp_path / "slim.pickle", CURVES)
    assert dysens("convert", "slim.pickle", "-o", "sens.jsonl").code == 0
    words = ["convert", "sens.jsonl", "-o", "back.pickle", *(["--static"] if static else [])]
    assert dysens(*words).code == 0
    back = Sensitivities.load("back.pickle")
    assert back.to_dict() == Sensitivities.load(tmp_path / "slim.pickle").to_dict()
    assert len(back.points) == sum(map(len, CURVES.values()))
    if static:
        assert isinstance(pickle.loads(Path("back.pickle").read_bytes()), dict)
    chosen = yaml.safe_load(dysens("ratios", "sens.jsonl", "--loss", "0.05").out)
    wanted = Sensitivities.load("slim.pickle").ratios_by_loss(0.05, monotone=True)
    assert chosen == pytest.approx({name: ratio for name, ratio in wanted.items() if ratio > 0}, abs=1e-6)


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", "pkl"])
def test_convert_keeps_every_point(dysens, journal, ending):
    assert dysens("convert", journal, "-o", f"other.{ending}").code == 0
    before, after = Sensitivities.load(journal), Sensitivities.load(f"other.{ending}")
    assert after.to_dict() == before.to_dict()
    assert after.baseline == (before.baseline if ending in ("jsonl", "json") else None)


def test_a_converted_journal_can_be_continued(dysens, journal):
    dysens("convert", journal, "-o", "other.jsonl")
    with Journal.open("other.jsonl", header()) as opened:
        assert len(opened.points()) == 6
        assert opened.claim("conv2d_0.w_0", 0.9)
        assert not opened.claim("conv2d_0.w_0", 0.25)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", "sens.jsonl"], "is there already"),
        (["-o", "other.txt"], "has to end in .jsonl"),
        (["-o", "other.json", "--static"], "Only pickles"),
    ],
)
def test_conversions_that_cannot_be(dysens, journal, words, said):
    before = journal.read_bytes()
    done = dysens("convert", "sens.jsonl", *words)
    assert done.code == 1
    assert said in done.err
    assert journal.read_bytes() == before


def test_overwrite(dysens, journal):
    Path("other.csv").write_text("something else")
    assert dysens("convert", journal, "-o", "other.csv", "--overwrite").code == 0
    assert len(Sensitivities.load("other.csv").points) == 6


def _part(path: Path, *points, **changes) -> Path:
    with Journal.open(path, header(**changes)) as opened:
        for each in points:
            opened.append(each)
    return path


def test_merge(dysens, tmp_path):
    _part(tmp_path / "a.jsonl", point(ratio=0.1))
    _part(tmp_path / "b.jsonl", point(ratio=0.2), point("conv2d_1.w_0", 0.2))
    done = dysens("merge", "a.jsonl", "b.jsonl", "-o", "both.jsonl")
    assert done.code == 0
    assert done.out == "3 points of 2 groups are in both.jsonl\n"
    with Journal.open("both.jsonl", header()) as opened:  # it still knows what it was measured on
        assert [(each.param, each.ratio) for each in opened.points()] == [
            ("conv2d_0.w_0", 0.1),
            ("conv2d_0.w_0", 0.2),
            ("conv2d_1.w_0", 0.2),
        ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"weights": "bad1dea"}, "the weights are not the same"),
        ({"criterion": "l1"}, "the criterion was fpgm and is l1"),
        ({"baseline": 0.5}, "the baseline was 0.9 and is 0.5"),
    ],
)
def test_what_does_not_belong_together_is_merged_only_on_demand(dysens, tmp_path, changes, said):
    _part(tmp_path / "a.jsonl", point(ratio=0.1))
    _part(tmp_path / "b.jsonl", point(ratio=0.2), **changes)
    done = dysens("merge", "a.jsonl", "b.jsonl", "-o", "both.jsonl")
    assert done.code == 1
    assert said in done.err
    assert not Path("both.jsonl").exists()
    assert dysens("merge", "a.jsonl", "b.jsonl", "-o", "both.jsonl", "--prefer", "last").code == 0
    with Journal.open("both.jsonl", header(**changes)) as opened:
        assert len(opened.points()) == 2


def test_a_contradiction_is_named(dysens, tmp_path):
    _part(tmp_path / "a.jsonl", point(loss=0.1))
    _part(tmp_path / "b.jsonl", point(loss=0.2))
    done = dysens("merge", "a.jsonl", "b.jsonl", "-o", "both.jsonl")
    assert done.code == 1
    assert "0.1 in a.jsonl and 0.2 in b.jsonl" in done.err


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x80\x04cos\nsystem\n(Vecho\ntR.", b"{}\n"])
@pytest.mark.parametrize("command", ["show", "plot", "report", "ratios", "convert", "merge"])
def test_files_that_hold_no_sensitivities(dysens, tmp_path, command, content):
    (tmp_path / "bad.jsonl").write_bytes(content)
    words = {"ratios": ["--loss", "1"], "convert": ["-o", "x.csv"], "merge": ["-o", "x.csv"]}
    done = dysens(command, "bad.jsonl", *words.get(command, []))
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: bad.jsonl")
    assert "Traceback" not in done.err


def test_a_folder_is_no_file(dysens, tmp_path):
    assert "is not a regular file" in dysens("show", tmp_path).err
