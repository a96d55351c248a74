"""A set of files that others read takes the place of an older one as a whole: also where a process dies in the middle."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from dysens import atomic
from dysens.atomic import folder_beside, replace_folder

OLD = {"m.json": "old program", "m.pdiparams": "old weights", "m.pdmodel": "of another version"}
NEW = {"m.json": "new program", "m.pdiparams": "new weights", "m.yml": "settings"}


def written(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir() if file.is_file()}


def replace(folder: Path) -> None:
    with folder_beside(folder) as new:
        written(new, NEW)
        replace_folder(folder, new, [name for name in OLD if (folder / name).exists()], last="m.json")


def test_a_first_one(tmp_path):
    replace(tmp_path / "a" / "model")
    assert contents(tmp_path / "a" / "model") == NEW
    assert [each.name for each in (tmp_path / "a").iterdir()] == ["model"]


@pytest.mark.parametrize("others", [{}, {"notes.txt": "mine", "dict.txt": "abc"}])
def test_an_older_one_goes_and_other_files_stay(tmp_path, others):
    folder = written(tmp_path / "model", {**OLD, **others})
    os.chmod(folder, 0o750)
    replace(folder)
    assert contents(folder) == {**NEW, **others}
    assert folder.stat().st_mode & 0o777 == 0o750
    assert [each.name for each in tmp_path.iterdir()] == ["model"]


def in_a_folder_with_subfolders(folder, monkeypatch):
    (folder / "logs").mkdir()


def in_the_current_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)


def behind_a_link(folder, monkeypatch):
    os.rename(folder, folder.with_name("real"))
    folder.symlink_to(folder.with_name("real"))


def without_the_call(folder, monkeypatch):
    monkeypatch.setattr(atomic, "_EXCHANGE", 64)  # no such flag


def among_many(folder, monkeypatch):
    written(folder, {f"{number}.txt": "" for number in range(80)})


HARD = [in_a_folder_with_subfolders, in_the_current_folder, behind_a_link, without_the_call, among_many]


@pytest.mark.parametrize("make", HARD)
def test_where_folders_cannot_change_places(tmp_path, monkeypatch, make):
    folder = written(tmp_path / "model", {**OLD, "notes.txt": "mine"})
    make(folder, monkeypatch)
    before = contents(folder)
    replace(folder)
    kept = {name: text for name, text in before.items() if name not in OLD}
    assert contents(folder) == {**kept, **NEW}
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("make", [None, *HARD])
@pytest.mark.parametrize("calls", range(8))
def test_a_reader_never_sees_a_mixture(tmp_path, monkeypatch, make, calls):
    """The process is killed before one of its changes to the disk."""
    folder = written(tmp_path / "model", OLD)
    if make is not None:
        make(folder, monkeypatch)
    child = os.fork()
    if child == 0:
        left = [calls]

        def deadly(function):
            def call(*arguments, **keywords):
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return function(*arguments, **keywords)

            return call

        for name in ("replace", "rename", "link", "unlink"):
            setattr(os, name, deadly(getattr(os, name)))
        Path.unlink = deadly(Path.unlink)
        os.chdir(folder) if make is in_the_current_folder else None
        replace(folder)
        os._exit(0)
    os.waitpid(child, 0)
    seen = {name: text for name, text in contents(folder).items() if name in {**OLD, **NEW}}
    assert seen in (OLD, NEW) or (make is not None and "m.json" not in seen)
    replace(folder)  # whatever was left behind is no obstacle
    assert {name: text for name, text in contents(folder).items() if name in {**OLD, **NEW}} == NEW
    assert not list(tmp_path.glob(".*"))


def test_nothing_happens_to_the_old_one_before_the_new_one_is_whole(tmp_path):
    folder = written(tmp_path / "model", OLD)

    def full_disk() -> None:
        with folder_beside(folder) as new:
            (new / "m.json").write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        full_disk()
    assert contents(folder) == OLD
    assert not list(tmp_path.glob(".*"))


def test_what_another_process_is_writing_stays(tmp_path):
    folder = written(tmp_path / "model", OLD)
    with folder_beside(folder) as mine:
        replace(folder)
        assert mine.is_dir()
