"""PaddleSlim's own sensitivity files, read and written: the dygraph ``Status`` and the static dict."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dysens._pickle import PickledObject, load_plain
from dysens.atomic import read_whole, write_whole
from dysens.errors import InputError, JournalError, UnsafePickleError
from dysens.ratios import checked_number, ratio_key
from dysens.results._points import Point, checked_text

MAX_BYTES = 16 * 2**20

STATUS = "paddleslim.dygraph.prune.filter_pruner Status"

Curves = Mapping[str, Mapping[float, float]]

_PICKLE_START = re.compile(rb"\x80[\x00-\x08]|\(|\}|c[\w.]+\r?\n[\w.]+\r?\n")

# What PaddleSlim's static sweep compares its ratios with, to the last bit.
_STATIC_RATIOS = {ratio_key(ratio): ratio for ratio in np.arange(0.1, 1, step=0.1).tolist()}


def looks_like_pickle(data: bytes) -> bool:
    """Whether the data starts as a pickle does; no other file of sensitivities starts like that."""
    return _PICKLE_START.match(data) is not None


def is_slim_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file is there that starts as a pickle does."""
    place = Path(path)
    try:
        if not place.is_file():
            return False
        with place.open("rb") as handle:
            return looks_like_pickle(handle.read(256))
    except OSError as error:
        raise JournalError(f"{place} cannot be read: {error.strerror or error}.") from error


def read_slim_file(path: str | os.PathLike[str]) -> dict[str, dict[float, float]]:
    """Name to {ratio: loss}, from either format; see `read_slim_bytes`."""
    return read_slim_bytes(read_whole(Path(path), MAX_BYTES), os.fspath(path))


def read_slim_bytes(data: bytes, source: str) -> dict[str, dict[float, float]]:
    """Name to {ratio: loss}, from either format, without running anything that the pickle asks for.

    Raises:
        UnsafePickleError: The pickle asks for a class or function that sensitivities never need; it is named.
        JournalError: It is damaged, too large, or holds something else.
    """
    if len(data) > MAX_BYTES:
        raise JournalError(
            f"{source} is larger than {MAX_BYTES} bytes, so it cannot be a file of sensitivities."
        )
    try:
        return _curves_of(load_plain(data, "sensitivities", classes=[STATUS]))
    except UnsafePickleError as error:
        raise UnsafePickleError(
            f"{source} is not a PaddleSlim sensitivity file: {error}. Nothing was run."
        ) from error
    except InputError as error:
        raise JournalError(f"{source} cannot be read as a PaddleSlim sensitivity file: {error}.") from error


def _curves_of(content: Any) -> dict[str, dict[float, float]]:
    if isinstance(content, PickledObject):
        content = content.attributes.get("sensitivies")  # PaddleSlim's spelling
    if not isinstance(content, dict):
        raise InputError("it holds no dictionary of sensitivities")
    curves: dict[str, dict[float, float]] = {}
    for name, losses in content.items():
        if not isinstance(losses, dict):
            raise InputError(f"the entry {name!r:.80} is not a dictionary of losses")
        curve = {_ratio_of(name, ratio): _loss_of(name, loss) for ratio, loss in losses.items()}
        curves.setdefault(_name_of(name), {}).update(curve)
    return curves


def _name_of(name: Any) -> str:
    if isinstance(name, bytes):
        try:
            name = name.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"the name {name!r:.80} is not UTF-8") from error
    if not isinstance(name, str) or not name:
        raise InputError(f"{name!r:.80} is not a parameter name")
    return checked_text("The parameter name", name)


def _ratio_of(name: Any, ratio: Any) -> float:
    value = checked_number(f"a ratio of {name!r:.80}", ratio)
    if not 0 <= value < 1:
        raise InputError(f"the ratio {value} of {name!r:.80} is not between 0 and 1")
    return value


def _loss_of(name: Any, loss: Any) -> float:
    if isinstance(loss, np.ndarray):
        if loss.size != 1:
            raise InputError(f"a loss of {name!r:.80} is an array of {loss.size} values")
        loss = loss.item()
    return checked_number(f"a loss of {name!r:.80}", loss)


def slim_points(curves: Curves, paths: Mapping[str, str] | None = None) -> list[Point]:
    """PaddleSlim's losses as points: without metric, with a path where ``paths`` (name to path) has it."""
    places = paths or {}
    return [
        Point(name, places.get(name, ""), ratio, None, loss)
        for name, curve in curves.items()
        for ratio, loss in curve.items()
    ]


def continue_slim_file(
    path: str | os.PathLike[str], paths: Mapping[str, str] | None = None
) -> tuple[list[Point], Path]:
    """What a sweep needs to go on where PaddleSlim stopped.

    Args:
        path: A PaddleSlim pickle that was given as ``sen_file``. It is read, never changed.
        paths: Name to layer path of the groups.

    Returns:
        The points that it holds, and the journal to go on in: the same name plus ".jsonl".
    """
    points = slim_points(read_slim_file(path), paths)
    return points, Path(f"{os.fspath(path)}.jsonl")


def write_status(path: str | os.PathLike[str], sensitivities: Curves) -> None:
    """Writes the pickle that PaddleSlim's dygraph pruners load and continue (``sen_file``)."""
    state = {"sensitivies": _plain(sensitivities), "accumulates": {}, "is_ckp": True}
    # A pickle of the state, without its frame (PROTO 2 ... STOP), between the opcodes that make a Status and
    # give it that state: PaddleSlim needn't be installed to write it.
    body = pickle.dumps(state, protocol=2)[2:-1]
    module, name = STATUS.split(" ")
    write_whole(Path(path), b"".join([b"\x80\x02c", f"{module}\n{name}\n".encode(), b")\x81", body, b"b."]))


def write_static(path: str | os.PathLike[str], sensitivities: Curves) -> None:
    """Writes the pickle that ``paddleslim.prune.load_sensitivities`` and ``sensitivity`` load."""
    exact = {
        name: {_STATIC_RATIOS.get(ratio, ratio): loss for ratio, loss in curve.items()}
        for name, curve in _plain(sensitivities).items()
    }
    write_whole(Path(path), pickle.dumps(exact, protocol=2))


def _plain(sensitivities: Curves) -> dict[str, dict[float, float]]:
    return {
        name: {ratio_key(ratio): float(loss) for ratio, loss in curve.items()}
        for name, curve in sensitivities.items()
    }
