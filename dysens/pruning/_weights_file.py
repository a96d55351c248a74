"""Weights and optimizer states that ``paddle.save`` wrote, read without running anything that the file asks for."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from dysens._pickle import read_plain
from dysens.errors import InputError, UnsafePickleError, in_a_sentence

MAX_BYTES = 8 * 2**30

NAME_TABLE = "StructuredToParameterName@@"
"""Where ``paddle.save`` keeps the automatic name of each parameter, by its path in the network."""

_BIG_ARRAYS = "UnpackBigParamInfor@@"  # Paddle's spelling


def read_state(
    path: str | os.PathLike[str], trusted: bool = False, keep_name_table: bool = False
) -> dict[str, Any]:
    """What ``paddle.load(path, return_numpy=True)`` gives for a ``.pdparams``, ``.pdopt`` or ``.pdema`` file.

    Args:
        path: The file, with its ending.
        trusted: Let ``paddle.load`` unpickle the file, which runs whatever code its author put there.
        keep_name_table: Keep the entry `NAME_TABLE`, as with ``paddle.load``.

    Returns:
        Names to read-only NumPy arrays (bfloat16 as uint16, as Paddle does), numbers, strings, and dictionaries, lists
        and tuples of such.

    Raises:
        InputError: There is no such file, or it is damaged, too large, or no state dict.
        UnsafePickleError: It asks for a class or function that weights never need; it is named.
    """
    place = Path(path)
    if trusted:
        state = _loaded_by_paddle(place)
    else:
        try:
            state = read_plain(place, "weights", MAX_BYTES)
        except UnsafePickleError as error:
            raise UnsafePickleError(
                f"{error} If you trust its author, trusted=True lets Paddle run it; or save its tensors alone with paddle.save."
            ) from error
        _join_big_arrays(state, place)
    odd = next((name for name in state if not isinstance(name, str)), None)
    if odd is not None:
        raise InputError(f'"{place}" is no state dict: it has an entry {odd!r:.80}, which is no name.')
    if not keep_name_table:
        state.pop(NAME_TABLE, None)
    return state


def check_array(name: str, value: Any, tensor: paddle.Tensor) -> None:
    """Refuses what a file has for a tensor if it is no array, or one of another type of number.

    Raises:
        InputError: Then, with the name.
    """
    wanted = str(tensor.dtype).rpartition(".")[2]
    found = value.dtype.name if isinstance(value, np.ndarray) else type(value).__name__
    if found != {"bfloat16": "uint16"}.get(wanted, wanted):
        raise InputError(f"'{name}' is {wanted} in the network, and {found} in the file.")


def _loaded_by_paddle(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f'There is no file "{path}".')
    try:
        state = paddle.load(str(path), return_numpy=True, keep_name_table=True)
    except Exception as error:  # of any kind: the file may run anything
        raise InputError(f'"{path}" cannot be loaded by Paddle: {in_a_sentence(error)}.') from error
    if not isinstance(state, dict):
        raise InputError(f'"{path}" holds a {type(state).__name__}, no state dict.')
    return state


def _join_big_arrays(state: dict[str, Any], path: Path) -> None:
    """Puts together the arrays of over 1 GiB that ``paddle.save`` cuts into slices with protocols 2 and 3."""
    table = state.pop(_BIG_ARRAYS, {})
    try:
        for name, about in table.items():
            # Each slice is used up, so a file cannot ask for more memory than it has itself.
            slices = [state.pop(part) for part in about["slices"]]
            (dtype,) = {part.dtype for part in slices}
            if math.prod(about["OriginShape"]) != sum(part.size for part in slices):
                raise ValueError(f"{name} lacks a part")
            state[name] = np.concatenate(slices, dtype=dtype).reshape(about["OriginShape"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f'"{path}" is damaged: its table of large arrays does not fit ({error!s:.200}).'
        ) from error
