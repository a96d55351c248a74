import json
import logging
import os
import tempfile

import pytest

from dysens.errors import JournalError
from dysens.results import Journal, Point
from dysens.results._records import encode

from .common import header, point


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sens.jsonl"


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_points_come_back_in_parameter_order(path):
    with Journal.open(path, header()) as journal:
        given = [point("conv2d_1.w_0", 0.2), point("conv2d_0.w_0", 0.3), point("conv2d_0.w_0", 0.1)]
        for each in given:
            journal.append(each)
        assert journal.points() == [given[2], given[1], given[0]]
    assert Journal.open(path, header()).points() == [given[2], given[1], given[0]]


def test_every_point_is_a_line_at_once(path):
    journal = Journal.open(path, header())
    journal.append(point())
    assert [line["kind"] for line in lines(path)] == ["header", "point"]


def test_folders_are_made(tmp_path):
    Journal.open(tmp_path / "a" / "b" / "sens.jsonl", header()).append(point())
    assert len(lines(tmp_path / "a" / "b" / "sens.jsonl")) == 2


def test_a_partial_point_never_passes_for_a_full_one(path):
    journal = Journal.open(path, header())
    journal.append(point(share=0.25))
    assert journal.points() == []
    assert journal.partial_points() == [point(share=0.25)]
    assert journal.claim("conv2d_0.w_0", 0.3)
    journal.append(point(loss=0.2))
    assert journal.points() == [point(loss=0.2)]
    assert journal.partial_points() == []


def test_a_later_point_counts(path):
    journal = Journal.open(path, header())
    journal.append(point(loss=0.1))
    journal.append(point(loss=0.2, ratio=0.1 + 0.2))
    assert [p.loss for p in journal.points()] == [0.2]


def test_two_journals_see_each_other(path):
    one, other = Journal.open(path, header()), Journal.open(path, header())
    one.append(point(ratio=0.1))
    other.append(point(ratio=0.2))
    assert [p.ratio for p in one.points()] == [p.ratio for p in other.points()] == [0.1, 0.2]
    assert [line["kind"] for line in lines(path)] == ["header", "point", "point"]


class TestDamage:
    def test_a_torn_last_line_is_reported_and_skipped(self, path, caplog):
        Journal.open(path, header()).append(point(ratio=0.1))
        with path.open("ab") as file:
            file.write(encode(point(ratio=0.2))[:-20])
        journal = Journal.open(path, header())
        assert "line 3 is skipped" in caplog.text
        journal.append(point(ratio=0.4))
        assert [p.ratio for p in journal.points()] == [0.1, 0.4]
        assert [p.ratio for p in Journal.open(path, header()).points()] == [0.1, 0.4]

    def test_a_last_line_that_lacks_only_its_newline_counts(self, path, caplog):
        Journal.open(path, header()).append(point(ratio=0.1))
        with path.open("ab") as file:
            file.write(encode(point(ratio=0.2))[:-1])
        journal = Journal.open(path, header())
        journal.append(point(ratio=0.4))
        assert [p.ratio for p in journal.points()] == [0.1, 0.2, 0.4]
        assert not caplog.records

    def test_garbled_lines_in_the_middle_are_reported_once_with_their_number(self, path, caplog):
        Journal.open(path, header()).append(point(ratio=0.1))
        with path.open("ab") as file:
            file.write(b"\x00\x00garbled\n\n<<<<<<< HEAD\n" + encode(point(ratio=0.2)))
        journal = Journal.open(path, header())
        assert [p.ratio for p in journal.points()] == [p.ratio for p in journal.points()] == [0.1, 0.2]
        warned = [record.getMessage() for record in caplog.records]
        assert len(warned) == 2
        assert "line 3" in warned[0]
        assert "line 5" in warned[1]

    def test_an_endless_line_is_passed_over(self, path, caplog):
        Journal.open(path, header())
        with path.open("ab") as file:
            file.write(b"x" * (40 * 2**20) + b"\n" + encode(point()))
        assert Journal.open(path, header()).points() == [point()]
        assert "line 2 is skipped: it is longer" in caplog.text

    def test_a_torn_header_starts_anew(self, path):
        path.write_bytes(encode(header())[:30])
        journal = Journal.open(path, header())
        journal.append(point())
        assert Journal.open(path, header()).points() == [point()]

    def test_points_without_header_need_force(self, path, caplog):
        path.write_bytes(b"{garbled\n" + encode(point()))
        with pytest.raises(JournalError, match=r"header cannot be read"):
            Journal.open(path, header())
        assert Journal.open(path, header(), force=True).points() == [point()]
        assert "continued by force although its header cannot be read" in caplog.text
        assert Journal.open(path, header()).points() == [point()]

    @pytest.mark.parametrize(
        "content", [b"my diary\n", b"\x80\x04}.", b"a,b\n1,2\n", b'{"kind": "sensitivities"}']
    )
    @pytest.mark.parametrize("force", [False, True])
    def test_somebody_elses_file_is_left_alone(self, path, content, force):
        path.write_bytes(content)
        with pytest.raises(JournalError, match="not a journal"):
            Journal.open(path, header(), force=force)
        assert path.read_bytes() == content

    def test_a_newer_format_is_refused(self, path):
        path.write_text('{"kind": "header", "format": 99}\n')
        with pytest.raises(JournalError, match=r"line 1.*format 99.*newer dysens"):
            Journal.open(path, header())

    def test_a_removed_file_comes_back_whole(self, path, caplog):
        journal = Journal.open(path, header())
        journal.append(point(ratio=0.1))
        path.unlink()
        assert journal.claim("conv2d_0.w_0", 0.2)
        journal.append(point(ratio=0.2))
        assert "removed" in caplog.text
        assert [p.ratio for p in Journal.open(path, header()).points()] == [0.1, 0.2]

    @pytest.mark.parametrize("left", ["nothing", "half a header", "the header", "the header and one point"])
    def test_a_file_cut_short_gets_its_points_back(self, path, left, caplog):
        journal = Journal.open(path, header())
        for ratio in (0.1, 0.2, 0.3):
            journal.append(point(ratio=ratio))
        journal.append(point(ratio=0.5, share=0.25))
        lines = path.read_bytes().splitlines(keepends=True)
        kept = {"nothing": b"", "half a header": lines[0][:40], "the header": lines[0]}
        path.write_bytes(kept.get(left, b"".join(lines[:2])))
        assert [p.ratio for p in journal.points()] == [0.1, 0.2, 0.3]
        journal.append(point(ratio=0.4))
        assert "cut short" in caplog.text
        again = Journal.open(path, header())
        assert [p.ratio for p in again.points()] == [0.1, 0.2, 0.3, 0.4]
        assert [p.ratio for p in again.partial_points()] == [0.5]

    def test_another_journal_in_its_place_is_left_alone(self, path, tmp_path, monkeypatch):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "refuge"))
        (tmp_path / "refuge").mkdir()
        journal = Journal.open(path, header())
        journal.append(point(ratio=0.1))
        path.unlink()
        with Journal.open(path, header(weights="beef")) as other:
            other.append(point(ratio=0.7))
        theirs = path.read_bytes()
        journal.append(point(ratio=0.2))
        assert path.read_bytes() == theirs
        assert [p.ratio for p in journal.points()] == [0.1, 0.2]
        (refuge,) = (tmp_path / "refuge").iterdir()
        assert [p.ratio for p in Journal.open(refuge, header()).points()] == [0.2]

    def test_a_path_that_becomes_a_folder(self, path, tmp_path, monkeypatch, caplog):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "refuge"))
        (tmp_path / "refuge").mkdir()
        journal = Journal.open(path, header())
        journal.append(point(ratio=0.1))
        path.unlink()
        path.mkdir()
        assert journal.claim("conv2d_0.w_0", 0.2)
        journal.append(point(ratio=0.2))
        assert [p.ratio for p in journal.points()] == [0.1, 0.2]
        assert "refuge" in caplog.text
        path.rmdir()
        journal.append(point(ratio=0.3))
        assert [p.ratio for p in Journal.open(path, header()).points()] == [0.1, 0.2, 0.3]
        assert not list((tmp_path / "refuge").iterdir())

    def test_an_exception_says_where_the_points_are(self, path, caplog):
        def sweep():
            with Journal.open(path, header()) as journal:
                journal.append(point(ratio=0.1))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            sweep()
        assert f"(1 full points) is saved in {path}" in caplog.text


class TestHeader:
    @pytest.mark.parametrize(
        ("changes", "named"),
        [
            ({"weights": "beef"}, "weights .*c0ffee.*beef"),
            ({"criterion": "l1"}, "criterion was fpgm and is l1"),
            ({"evaluator": "hmean"}, "evaluator was accuracy and is hmean"),
            ({"baseline": 0.85}, "baseline was 0.9 and is 0.85"),
            ({"higher_is_better": False}, "higher scores were better"),
        ],
    )
    def test_another_sweep_is_refused_with_what_differs(self, path, changes, named):
        Journal.open(path, header()).append(point())
        before = path.read_bytes()
        with pytest.raises(JournalError, match=named):
            Journal.open(path, header(**changes))
        assert path.read_bytes() == before

    def test_force_overrides_says_so_and_supersedes_the_header(self, path, caplog):
        Journal.open(path, header()).append(point())
        journal = Journal.open(path, header(criterion="l1"), force=True)
        assert "continued by force although the criterion was fpgm and is l1 now" in caplog.text
        assert journal.points() == [point()]
        assert [line["kind"] for line in lines(path)] == ["header", "point", "header"]
        caplog.clear()
        Journal.open(path, header(criterion="l1"))
        assert not caplog.records

    def test_the_baseline_of_the_file_stays(self, path):
        Journal.open(path, header(baseline=0.9))
        assert Journal.open(path, header(baseline=0.9 + 1e-8)).header.baseline == 0.9

    def test_shifted_names_are_matched_by_path(self, path):
        Journal.open(path, header()).append(point("conv2d_0.w_0", 0.3))
        shifted = header(paths={"conv2d_40.w_0": "stem.0.weight", "conv2d_0.w_0": "block.conv.weight"})
        journal = Journal.open(path, shifted)
        assert [(p.param, p.path) for p in journal.points()] == [("conv2d_40.w_0", "stem.0.weight")]
        assert not journal.claim("conv2d_40.w_0", 0.3)
        assert journal.claim("conv2d_0.w_0", 0.3)

    def test_points_of_a_slim_file_get_their_path(self, path):
        journal = Journal.open(path, header())
        journal.append(Point("conv2d_0.w_0", "", 0.3, None, 0.1))
        assert journal.points()[0].path == "stem.0.weight"
        assert not journal.claim("conv2d_0.w_0", 0.3)


def test_reading_is_incremental(path, monkeypatch):
    """Only what was appended is decoded again."""
    import dysens.results._records as reader

    journal = Journal.open(path, header())
    for number in range(50):
        journal.append(point(ratio=number / 100))
    decoded = []
    original = reader.decode
    monkeypatch.setattr(reader, "decode", lambda line: decoded.append(line) or original(line))
    journal.append(point(ratio=0.9))
    assert len(journal.points()) == 51
    assert len(decoded) == 1


@pytest.mark.parametrize("where", ["/proc/sens.jsonl", "/proc/nowhere/sens.jsonl"])
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder that nobody can write")
def test_a_read_only_folder_is_said_before_the_sweep(where):
    with pytest.raises(JournalError, match=r"cannot be written: .*Nothing was started"):
        Journal.open(where, header())


def test_a_folder_is_no_journal(tmp_path):
    with pytest.raises(JournalError, match="cannot be written"):
        Journal.open(tmp_path, header())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are a POSIX thing")
def test_a_pipe_is_no_journal_and_does_not_hang(path):
    os.mkfifo(path)
    with pytest.raises(JournalError, match="not a regular file"):
        Journal.open(path, header())


def test_quiet_by_default(path, capsys, caplog):
    with caplog.at_level(logging.DEBUG, logger="dysens"), Journal.open(path, header()) as journal:
        journal.claim("conv2d_0.w_0", 0.3)
        journal.append(point())
        journal.points()
    assert not caplog.records
    assert capsys.readouterr() == ("", "")
