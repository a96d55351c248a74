"""What holds for every test, and which of the two stacks runs what in `make test`."""

from __future__ import annotations

import logging
import zlib
from pathlib import Path

import pytest
from hypothesis import settings

import dysens  # noqa: F401  first of all: Paddle 2.6 must not bring its zlib before the real one is loaded

logging.getLogger("dysens").setLevel(logging.NOTSET)  # tests set the level that they want to see

# Shared machines are slow at times; no example is wrong for that. `make test` draws the same examples in every run, so that what
# passes here passes on every machine; `make test-all` and a run by hand draw anew.
settings.register_profile("dysens", deadline=None, print_blob=True)
settings.register_profile(
    "same", deadline=None, print_blob=True, derandomize=True, database=None, max_examples=50
)
settings.load_profile("dysens")

TESTS = Path(__file__).parent
STACKS = ("paddle3", "paddle26")  # as their folders in .venvs are named
BOTH, EITHER, LATER = "both", "either", "test-all"

# What one stack shows for both, in `make test`: tests that do not touch Paddle, and long stories whose steps are tested on both
# stacks elsewhere. Which stack takes what only balances the two. `make test-all` runs everything on both, and what only it runs.
# The first entry that fits counts, and a mark on a test counts before these. The tests of an EITHER are divided between stacks
# by their names, one function here, the next there: both stacks run the room, and no test runs twice.
ONCE = {
    # Files, tables, pages: no Paddle in it.
    "results/test_slim_files.py": BOTH,  # pickles; the stacks have NumPy 1 and 2, which write other ones
    "results": "paddle26",
    "ratios/test_cost_model.py": BOTH,  # counts what live networks have
    "ratios": "paddle26",
    "report": "paddle3",  # its browser is driven from this stack only
    "cli/test_files.py": "paddle26",
    "cli/test_program.py": "paddle26",
    "cli/test_mistakes.py": "paddle3",  # the table is of this stack
    "test_benchmarks.py": "paddle26",
    "test_coverage_table.py": "paddle26",
    "data/test_digits.py": "paddle26",
    "test_house.py": "paddle26",
    "test_packaging.py": "paddle26",
    "test_progress.py": "paddle26",
    "data/test_generated_images.py": "paddle26",
    "data/test_text_images.py": "paddle26",
    # Where the code of the toolboxes is imported from: a matter of Python, not of Paddle.
    "adapters/ocr/test_ocr_home.py": "paddle3",
    "adapters/det/test_det_import.py": "paddle26",
    # A detector exported, imported and scored: each step has tests of its own on both stacks.
    "adapters/det/test_det_labelled.py": LATER,
    # Documents, notebooks and demos: what they call is tested on both stacks in its own room.
    "test_documents.py": "paddle26",
    "test_docstrings.py": "paddle3",
    "test_readme.py": "paddle3",
    "test_notebooks.py": "paddle3",
    "test_digits_demo.py": "paddle3",
    # 45 and 100 s: cli/test_configs.py, pipeline and the tools (det_tools) go the same steps.
    "demos/test_ocr_demo.py": LATER,
    "demos/test_det_demo.py": LATER,
    # Rules, messages and stories above the calls into Paddle, which have tests of their own below.
    "adapters/ocr/test_ocr_task.py": BOTH,
    "adapters/det/test_det_task.py": BOTH,
    "adapters": EITHER,
    "compat/test_compat.py": EITHER,
    "compiled/test_runtimes.py": EITHER,
    "pipeline/test_compress.py": EITHER,
    "cli": EITHER,
    "sweep": EITHER,
    "compress/test_fold.py": BOTH,
    "compress": EITHER,
    "compiled/test_outer_values.py": EITHER,
    "compiled/test_prefix.py": EITHER,
    "compiled/test_lanes.py": EITHER,
    "criteria": EITHER,
    "groups/test_extremes.py": BOTH,
    "groups/test_left_as_found.py": BOTH,
    "groups/test_recurrent.py": BOTH,
    "groups": EITHER,
    "pruning/test_cut_model.py": BOTH,
    "pruning": EITHER,
    "evaluators": EITHER,
    "test_golden.py": EITHER,
    "test_random_networks.py": EITHER,
    "test_sensitivity.py": EITHER,
    # The programs: the adapters below them, and one config from sweep to checkpoint (cli), are tested on both stacks.
    "adapters/ocr/test_ocr_tools.py": "paddle3",
    "det_tools": "paddle26",
    "pipeline/test_front_ends.py": "paddle26",  # cli/test_configs.py goes the same way, down to the cut, on the other stack
}


@pytest.fixture(scope="session")
def demo_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `dysens demo --quick` was run, over what an earlier run left that was cut off; its files are in output/demo."""
    from dysens.cli import main

    home = tmp_path_factory.mktemp("demo")
    (home / "output" / "demo").mkdir(parents=True)
    (home / "output" / "demo" / "sensitivities.jsonl").write_text('{"kind": "of an earlier run')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        assert main(["demo", "--quick"]) == 0
    return home


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say what `make test` asks for."""
    parser.addoption(
        "--share",
        action="store_true",
        help="leave out what the other stack runs, by the list in tests/conftest.py and the mark `once`",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the examples before the tests are imported: a test's own settings are taken from what holds then."""
    settings.load_profile("same" if config.getoption("--share") else "dysens")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is the other stack's, if so asked."""
    if not config.getoption("--share"):
        return
    missing = [place for place in ONCE if not (TESTS / place).exists()]
    if missing:
        raise pytest.UsageError(
            f"tests/conftest.py says which stack runs {missing}, which is not there: correct ONCE."
        )
    shared = (BOTH, this_stack())
    others = [item for item in items if stack_of(item) not in shared]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if stack_of(item) in shared]


def stack_of(item: pytest.Item) -> str:
    """Which stack runs a test in `make test`."""
    marker = item.get_closest_marker("once")
    if marker is not None:
        stack = str(marker.args[0])
    else:
        place = item.path.relative_to(TESTS)
        stack = next((stack for listed, stack in ONCE.items() if place.is_relative_to(listed)), BOTH)
    if stack == EITHER:
        function = item.nodeid.partition("[")[0]
        stack = STACKS[zlib.crc32(function.encode()) % len(STACKS)]
    if stack not in (*STACKS, BOTH, LATER):
        raise pytest.UsageError(
            f"{item.nodeid} is to run on {stack}, and would run nowhere: the stacks are {STACKS}."
        )
    return stack


def this_stack() -> str:
    """The one whose Paddle this is."""
    import paddle

    return "paddle26" if paddle.__version__.startswith("2.6") else "paddle3"
