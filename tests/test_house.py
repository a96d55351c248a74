"""The order of the rooms: data flows one way, and so do imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "dysens"

# A room imports only from rooms before it. What is not listed (errors, live, inputs ...) is the ground that all stand on.
ROOMS = (
    "cost",
    "criteria",
    "groups",
    "pruning",
    "engines",
    "ratios",
    "results",
    "sweep",
    "report",
    "sensitivity",
    "adapters",
    "compat",
    "recipes",
    "demo",
    "cli",
    "__main__",
)


def room_of(module: str) -> str:
    """The top-level part of dysens that a module is in; "" for the package itself."""
    return module.split(".")[1] if "." in module else ""


def imports_of(file: Path) -> set[str]:
    """The dysens modules that a file imports, wherever in the file, for type checking or not."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import; write the whole name."
            # `from dysens import demo` names a module in the second half.
            whole = node.module == "dysens"
            found |= {f"dysens.{alias.name}" for alias in node.names} if whole else {node.module or ""}
    return {name for name in found if name.split(".")[0] == "dysens"}


def room_imports() -> dict[str, set[str]]:
    """Every room and ground module with the others that it imports."""
    graph: dict[str, set[str]] = {}
    for file in PACKAGE.rglob("*.py"):
        room = file.relative_to(PACKAGE).with_suffix("").parts[0]
        others = {room_of(name) for name in imports_of(file)} - {room, ""}
        graph.setdefault(room, set()).update(others)
    graph.pop("__init__")  # the public names come from everywhere
    return graph


def test_rooms_import_only_from_rooms_before_them() -> None:
    for room, others in room_imports().items():
        place = ROOMS.index(room) if room in ROOMS else -1
        later = [other for other in others if other in ROOMS[max(place, 0) :]]
        assert not later, f"dysens.{room} imports {later}, which come after it: {' < '.join(ROOMS)}"


def test_no_circles() -> None:
    TopologicalSorter(room_imports()).prepare()  # raises CycleError, which names them


@pytest.mark.parametrize(
    ("statement", "unloaded"),
    [
        ("import dysens", ["paddle", "matplotlib", "pandas", "numpy"]),
        ("import dysens.sensitivity", ["matplotlib"]),
        ("import dysens.report.plots", ["paddle", "matplotlib.pyplot"]),
        ("import dysens.report.html", ["paddle", "matplotlib"]),
        ("import dysens.report.visualdl", ["paddle", "visualdl", "matplotlib.pyplot"]),
        ("import dysens.ratios", ["paddle", "pandas", "dysens.results"]),
        ("import dysens.data", ["paddle"]),
        ("import dysens.cli", ["paddle", "matplotlib", "pandas"]),
    ],
)
def test_imports_load_no_more_than_they_need(statement: str, unloaded: list[str]) -> None:
    script = f"import sys; {statement}; print([name for name in {unloaded} if name in sys.modules])"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_public_name_is_there() -> None:
    import dysens

    assert all(getattr(dysens, name) is not None for name in dysens.__all__)
    assert set(dysens.__all__) <= set(dir(dysens))


def test_an_unknown_name_is_an_attribute_error() -> None:
    import dysens

    with pytest.raises(AttributeError, match="no_such_name"):
        _ = dysens.no_such_name


@pytest.mark.parametrize("tool", sorted((PACKAGE.parent / "tools").glob("*.py")), ids=lambda file: file.stem)
def test_tools_import_dysens_before_paddle(tool):
    """Paddle 2.6 brings a zlib of its own; whoever loads the real one after it crashes. See dysens/__init__.py."""
    loaded = [
        alias.name if isinstance(node, ast.Import) else node.module or ""
        for node in ast.parse(tool.read_text(encoding="utf-8")).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    ]
    rooms = [name.split(".")[0] for name in loaded]
    first = rooms.index("dysens") if "dysens" in rooms else len(rooms)
    assert "paddle" not in rooms[:first], f"{tool} imports Paddle first; import dysens first."
