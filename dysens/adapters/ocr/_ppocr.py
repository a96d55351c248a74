"""Finds PaddleOCR's training code and brings its builders in, in one place.

PaddleOCR is not a package that one installs: its code lies in a checkout, where ``ppocr`` and ``tools`` are
top-level names. The same tree is inside one wheel, which serves those who have no checkout.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from dysens.adapters._shared import install_command
from dysens.errors import InputError, MissingExtraError

HOME_VARIABLE = "PADDLEOCR_HOME"
CODE_WHEEL = "unstructured_paddleocr"
TOOLS = "tools"
OWN_PACKAGES = ("ppocr", TOOLS)  # the top-level names of PaddleOCR's tree


@dataclass(frozen=True)
class Ppocr:
    """PaddleOCR's own builders, and the folder that they come from.

    Attributes:
        home: The checkout, or the wheel's folder; relative dictionary paths are looked up here too.
        program: PaddleOCR's ``tools/program.py`` with its ``train`` and ``eval`` loops.
    """

    home: Path
    build_model: Callable[..., Any]
    build_dataloader: Callable[..., Any]
    build_post_process: Callable[..., Any]
    build_metric: Callable[..., Any]
    build_loss: Callable[..., Any]
    build_optimizer: Callable[..., Any]
    program: ModuleType


def load_ppocr(home: str | Path | None = None) -> Ppocr:
    """Imports PaddleOCR's code from a checkout, or else from the wheel that carries it.

    Looks at ``home``, then the environment variable ``PADDLEOCR_HOME``, then for an importable ``ppocr``,
    then for the wheel.

    Args:
        home: A PaddleOCR checkout.

    Raises:
        MissingExtraError: No training code was found, or a package that it imports is not installed.
        InputError: ``home`` is no checkout, or another one is already imported in this process.

    Example:
        >>> load_ppocr().home.joinpath("ppocr", "modeling").is_dir()
        True
    """
    found = _find_home(home)
    _refuse_a_second_home(found)
    return _import_from(found)


def _find_home(home: str | Path | None) -> Path:
    named = home or os.environ.get(HOME_VARIABLE)
    if named:
        folder = Path(named).expanduser().resolve()
        if not _has_training_code(folder):
            origin = "the given folder" if home else HOME_VARIABLE
            raise InputError(
                f'{origin} "{named}" is not a PaddleOCR checkout: it lacks ppocr/modeling or tools/program.py.'
            )
        return folder
    candidates = [folder.parent for folder in _package_folders("ppocr")] + _package_folders(CODE_WHEEL)
    for candidate in candidates:
        if _has_training_code(candidate):
            return candidate
    raise MissingExtraError(
        "PaddleOCR's training code (ppocr) was not found. With a PaddleOCR checkout, set "
        f"{HOME_VARIABLE} to its folder; without one, run: {install_command('ocr')}"
    )


def _package_folders(name: str) -> list[Path]:
    spec = importlib.util.find_spec(name)
    return [Path(entry).resolve() for entry in (spec.submodule_search_locations or [])] if spec else []


def _has_training_code(folder: Path) -> bool:
    return (folder / "ppocr" / "modeling").is_dir() and (folder / "tools" / "program.py").is_file()


def _refuse_a_second_home(found: Path) -> None:
    present = sys.modules.get("ppocr")
    file = getattr(present, "__file__", None)
    origin = Path(file).resolve().parent.parent if file else found
    if origin != found:
        raise InputError(
            f'The package ppocr was already imported from "{origin}" in this process, so it cannot come from "{found}"; '
            "start a new process for that."
        )


@cache
def _import_from(home: Path) -> Ppocr:
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # it would ask the network for its newest version
    if str(home) not in sys.path:
        sys.path.insert(0, str(home))
    try:
        with _root_logger_kept(), _other_tools_set_aside(home):
            _calm_ppocr_logger()
            return Ppocr(
                home=home,
                build_model=importlib.import_module("ppocr.modeling.architectures").build_model,
                build_dataloader=importlib.import_module("ppocr.data").build_dataloader,
                build_post_process=importlib.import_module("ppocr.postprocess").build_post_process,
                build_metric=importlib.import_module("ppocr.metrics").build_metric,
                build_loss=importlib.import_module("ppocr.losses").build_loss,
                build_optimizer=importlib.import_module("ppocr.optimizer").build_optimizer,
                program=_import_program(home),
            )
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] in OWN_PACKAGES:
            raise InputError(
                f'PaddleOCR\'s code in "{home}" imports "{error.name}", which is a part of it but is not there: '
                "the checkout is incomplete."
            ) from error
        raise MissingExtraError(
            f'PaddleOCR\'s code in "{home}" imports "{error.name}", which is not installed; '
            f"run: {install_command('ocr')}"
        ) from error


@contextmanager
def _other_tools_set_aside(home: Path) -> Iterator[None]:
    """ppocr imports from its own ``tools``: another package of that name, if one is loaded, waits meanwhile."""
    others = _loaded_tools()
    if str((home / TOOLS).resolve()) in {
        str(Path(p).resolve()) for p in getattr(others.get(TOOLS), "__path__", [])
    }:
        others = {}  # they are PaddleOCR's
    for name in others:
        del sys.modules[name]
    try:
        yield
    finally:
        if others:
            for name in _loaded_tools():
                del sys.modules[name]
            sys.modules.update(others)


def _loaded_tools() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == TOOLS}


@contextmanager
def _root_logger_kept() -> Iterator[None]:
    """Packages that ppocr imports configure the root logger as if they were the program."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers


class _ForDebugging(logging.Filter):
    """Lets warnings pass, and the rest only where everything is to be seen."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is shown."""
        return record.levelno > logging.INFO or logging.getLogger("dysens").isEnabledFor(logging.DEBUG)


# For functions of PaddleOCR that say which files they read and write; its training loop has one whose records are all shown.
remarks = logging.getLogger(f"{__name__}.remarks")
remarks.addFilter(_ForDebugging())


def _calm_ppocr_logger() -> None:
    """ppocr prints to standard output through a handler of its own; its records shall go the way of ours."""
    ppocr_logger: logging.Logger = importlib.import_module("ppocr.utils.logging").get_logger()
    for handler in list(ppocr_logger.handlers):
        ppocr_logger.removeHandler(handler)
    ppocr_logger.propagate = True
    ppocr_logger.setLevel(logging.ERROR)


def _import_program(home: Path) -> ModuleType:
    """``tools`` is too common a name to rely on ``sys.path``: our own folder is called so as well."""
    spec = importlib.util.spec_from_file_location("dysens_ppocr_program", home / "tools" / "program.py")
    if spec is None or spec.loader is None:
        raise InputError(f'"{home / "tools" / "program.py"}" cannot be imported.')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
