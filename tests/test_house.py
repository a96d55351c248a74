"""The floor plan: imports go one way, rooms are entered through their front, and loading one loads no more than it needs."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "dysens"

# A room imports only from rooms before it. What is not listed (errors, progress, display, flags ...) is the ground.
ROOMS = (
    "model",
    "groups",
    "criteria",
    "costs",
    "pruning",
    "engines",
    "evaluators",
    "compiled",
    "ratios",
    "results",
    "sweep",
    "compress",
    "programs",
    "report",
    "sensitivity",
    "compat",
    "data",
    "adapters",
    "pipeline",
    "demos",
    "cli",
    "__main__",
)
GROUND = {
    "errors",
    "progress",
    "display",
    "flags",
    "atomic",
    "_lazy",
    "_pickle",
}


def room_of(module: str) -> str:
    """The top-level part of dysens that a module is in; "" for the package itself."""
    return module.split(".")[1] if "." in module else ""


def imports_of(source: str) -> set[str]:
    """The dysens modules that a source imports, wherever in it, for type checking or not."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:  # tests have helpers beside them; the package has none, see below
                continue
            whole = f"{node.module}." if node.module else ""
            # Both `from dysens import report` and `from dysens.report import _plots` name a module in the second half.
            found |= {node.module or ""} | {whole + alias.name for alias in node.names}
    return {name for name in found if name.split(".")[0] == "dysens"}


def sources() -> Iterator[tuple[Path, str]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        yield file, file.read_text(encoding="utf-8")


def room_imports() -> dict[str, set[str]]:
    """Every room and ground module with the others that it imports."""
    graph: dict[str, set[str]] = {}
    known = {file.relative_to(PACKAGE).with_suffix("").parts[0] for file, _ in sources()}
    for file, source in sources():
        room = file.relative_to(PACKAGE).with_suffix("").parts[0]
        others = {room_of(name) for name in imports_of(source)} & known
        graph.setdefault(room, set()).update(others - {room})
    graph.pop("__init__")  # the public names come from everywhere
    return graph


def private_modules(source: str) -> set[str]:
    """The private modules of rooms that a source imports."""
    return {name for name in imports_of(source) if re.match(r"dysens\.[a-z].*\._[a-z]", name)}


def test_the_package_writes_whole_names() -> None:
    for file, source in sources():
        relative = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ImportFrom) and n.level]
        assert not relative, f"{file.relative_to(REPOSITORY)} has a relative import; write the whole name."


def test_every_room_has_its_place() -> None:
    assert set(room_imports()) <= {*ROOMS, *GROUND}


def test_rooms_import_only_from_rooms_before_them() -> None:
    for room, others in room_imports().items():
        place = ROOMS.index(room) if room in ROOMS else -1
        later = [other for other in others if other in ROOMS[max(place, 0) :]]
        assert not later, f"dysens.{room} imports {later}, which come after it: {' < '.join(ROOMS)}"


def test_no_circles() -> None:
    TopologicalSorter(room_imports()).prepare()  # raises CycleError, which names them


def test_rooms_are_entered_through_their_front() -> None:
    for file, source in sources():
        own = ".".join(["dysens", *file.relative_to(PACKAGE).parent.parts])
        # A room's private modules are for the room, and for rooms inside it.
        outside = {
            name
            for name in private_modules(source)
            if not f"{own}.".startswith(f"{name.partition('._')[0]}.")
        }
        assert not outside, f"{file.relative_to(REPOSITORY)} imports {sorted(outside)}; import from the room."


def test_modules_of_rooms_are_private() -> None:
    # The adapter contract, what PaddleDetection imports to get our Pruner, and programs to be run.
    public = {"__init__", "__main__", "base", "pruner", "digits", "ocr", "det"}
    for file, _ in sources():
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        if len(parts) > 1:
            assert parts[-1].startswith("_") or parts[-1] in public, (
                f"{file.relative_to(REPOSITORY)} is public"
            )


def test_rooms_export_what_they_say() -> None:
    for folder in sorted({file.parent for file, _ in sources()} - {PACKAGE / "demos"}):
        tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
        assigned = [node.targets[0] for node in tree.body if isinstance(node, ast.Assign)]
        names = {target.id for target in assigned if isinstance(target, ast.Name)}
        assert "__all__" in names, f"{folder.relative_to(REPOSITORY)} has no __all__"


def code_of(file: Path) -> str:
    """The Python in a document or a notebook."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        return text
    if file.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        lines = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        return "\n".join(re.sub(r"^[%!].*$", "", part, flags=re.MULTILINE) for part in lines)
    return "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))


OUTSIDE = [
    file
    for pattern in ("*.md", "docs/**/*.md", "notebooks/*.ipynb", "tools/*.py", "benchmarks/**/*.py")
    for file in sorted(REPOSITORY.glob(pattern))
]


@pytest.mark.parametrize("file", OUTSIDE, ids=lambda file: str(file.relative_to(REPOSITORY)))
def test_what_people_read_and_run_imports_from_rooms(file: Path) -> None:
    assert not private_modules(code_of(file))


def test_tests_look_only_into_the_room_that_they_are_about() -> None:
    for file in sorted((REPOSITORY / "tests").rglob("*.py")):
        place = ".".join(["dysens", *file.relative_to(REPOSITORY / "tests").parent.parts])
        for name in private_modules(file.read_text(encoding="utf-8")):
            assert name.startswith(f"{place}._"), f"{file.relative_to(REPOSITORY)} imports {name}"


@pytest.mark.parametrize(
    ("statement", "unloaded"),
    [
        ("import dysens", ["paddle", "matplotlib", "pandas", "numpy"]),
        ("import dysens.sensitivity", ["matplotlib"]),
        ("import dysens.results", ["paddle", "matplotlib"]),
        ("import dysens.ratios", ["paddle", "matplotlib", "pandas"]),
        ("from dysens.report import sensitivity_curves", ["paddle", "matplotlib.pyplot"]),
        ("from dysens.report import write_report", ["paddle", "matplotlib"]),
        ("from dysens.report import SweepLog", ["paddle", "visualdl", "matplotlib.pyplot"]),
        ("from dysens.data import load_digits", ["paddle"]),
        ("import dysens.cli", ["paddle", "matplotlib", "pandas"]),
    ],
)
def test_imports_load_no_more_than_they_need(statement: str, unloaded: list[str]) -> None:
    script = f"import sys; {statement}; print([name for name in {unloaded} if name in sys.modules])"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_public_name_is_there() -> None:
    import dysens

    assert all(getattr(dysens, name) is not None for name in dysens.__all__)
    assert set(dysens.__all__) <= set(dir(dysens))


@pytest.mark.parametrize("room", ["costs", "criteria", "report", "data"])
def test_every_name_of_a_lazy_room_is_there(room: str) -> None:
    from importlib import import_module

    module = import_module(f"dysens.{room}")
    assert all(getattr(module, name) is not None for name in module.__all__)
    assert set(dir(module)) == set(module.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    import dysens

    with pytest.raises(AttributeError, match="no_such_name"):
        _ = dysens.no_such_name


@pytest.mark.parametrize("tool", sorted((REPOSITORY / "tools").glob("*.py")), ids=lambda file: file.stem)
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
