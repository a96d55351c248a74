"""What is installed: the wheel holds everything that runs, and its command works where the source tree is not."""

from __future__ import annotations

import ast
import email
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from results.common import header, point

import dysens
from dysens.adapters import install_command
from dysens.results import Journal

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "dysens"
FILES = (
    "setup.py",
    "pyproject.toml",
    "MANIFEST.in",
    "LICENSE",
    "README.md",
    "README_cn.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
)


def package_files() -> set[str]:
    """Everything in the package that belongs to it."""
    found = (file for file in PACKAGE.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return {file.relative_to(ROOT).as_posix() for file in found}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist, built from a copy: building leaves files behind."""
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(PACKAGE, source / "dysens", ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, source)
    target = tmp_path_factory.mktemp("dist")
    # In a process of its own, as PEP 517 has it: setuptools and what else is imported here disagree about distutils.
    for build in ("build_sdist", "build_wheel"):
        script = f"from setuptools import build_meta; build_meta.{build}({str(target)!r})"
        subprocess.run([sys.executable, "-c", script], cwd=source, check=True, stdout=subprocess.DEVNULL)
    (wheel,), (sdist,) = target.glob("*.whl"), target.glob("*.tar.gz")
    return wheel, sdist


def test_the_wheel_holds_the_whole_package(built):
    inside = set(zipfile.ZipFile(built[0]).namelist())
    assert package_files() <= inside
    others = {name for name in inside if not name.startswith("dysens/")}
    assert all(name.startswith(f"dysens-{dysens.__version__}.dist-info/") for name in others)


def test_the_sdist_can_be_built_from(built):
    with tarfile.open(built[1]) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert package_files() | set(FILES) - {"MANIFEST.in"} <= inside


def test_the_metadata(built):
    wheel = zipfile.ZipFile(built[0])
    info = f"dysens-{dysens.__version__}.dist-info"
    metadata = email.message_from_bytes(wheel.read(f"{info}/METADATA"))
    assert metadata["Name"] == "dysens"
    assert metadata["Version"] == dysens.__version__
    assert metadata["License"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.9"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().startswith("# dysens")
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    assert {"cpu", "gpu", "slim", "ocr", "det", "vdl"} <= set(metadata.get_all("Provides-Extra"))
    needed = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert not any("paddle" in line for line in needed)
    assert any(name.endswith("LICENSE") for name in wheel.namelist())
    assert "dysens = dysens.cli:main" in wheel.read(f"{info}/entry_points.txt").decode()


def messages() -> list[tuple[str, str]]:
    """Every text in a ``raise`` of the package, with where it stands."""
    found = []
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and node.exc is not None:
                texts = [part.value for part in ast.walk(node.exc) if isinstance(part, ast.Constant)]
                found += [(f"{file.name}:{node.lineno}", text) for text in texts if isinstance(text, str)]
    return found


def test_no_error_sends_to_a_file_that_a_wheel_does_not_have():
    """A file or folder of the source tree, or a module that is not there."""
    named = [
        (place, word) for place, text in messages() for word in re.findall(r"\b[a-z]+(?:/[\w.-]+)+", text)
    ]
    in_the_tree = [(place, word) for place, word in named if (ROOT / word.rstrip(".")).exists()]
    assert not in_the_tree
    modules = {name for _, text in messages() for name in re.findall(r"\bdysens(?:\.[a-z_]+)+", text)}
    assert "dysens.data.write_scenes" in modules
    for name in modules:
        module, _, attribute = name.rpartition(".")
        assert hasattr(import_module(module), attribute) or find_spec(name)


@pytest.mark.parametrize("extra", ["ocr", "det"])
def test_printed_commands_install_what_the_source_tree_does(extra):
    lines = (ROOT / f"configs/{extra}/requirements-nodeps.txt").read_text().splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    first, second = install_command(extra).split(" && ")
    assert first == f'pip install "dysens[{extra}]"'
    assert second.split() == ["pip", "install", "--no-deps", *wanted]


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel, which borrows all other packages from this one."""
    place = tmp_path_factory.mktemp("venv")
    venv.create(place, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install"]
    quietly = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*pip, *quietly, str(built[0])], env=bare_environment(), check=True, timeout=120)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin"


def bare_environment() -> dict[str, str]:
    """Without the source tree, which counts as installed where a path leads to it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, env=bare_environment(), capture_output=True, text=True, timeout=120)


def test_the_installed_command(installed, tmp_path):
    with Journal.open(tmp_path / "sens.jsonl", header()) as journal:
        journal.append(point())
    assert run(installed / "dysens", "--version", cwd=tmp_path).stdout == f"dysens {dysens.__version__}\n"
    assert "usage: dysens COMMAND" in run(installed / "dysens", "--help", cwd=tmp_path).stdout
    shown = run(installed / "dysens", "show", "sens.jsonl", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "stem.0" in shown.stdout
    reported = run(installed / "dysens", "report", "sens.jsonl", "--quiet", cwd=tmp_path)
    assert (reported.returncode, reported.stderr) == (0, "")


def test_the_installed_package_is_the_one_in_the_environment_and_has_its_data(installed, tmp_path):
    script = "import dysens, dysens.data; print(dysens.__file__); print(len(dysens.data.load_digits()[0]))"
    done = run(installed / "python", "-c", script, cwd=tmp_path)
    place, digits = done.stdout.splitlines()
    assert Path(place).is_relative_to(installed.parent)
    assert int(digits) > 1000
