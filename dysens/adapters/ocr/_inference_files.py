"""Reads the weights out of an inference model without running it.

Paddle 3 can no longer load these files into a dygraph layer, so they are read as what they are: a protobuf
program that names the variables, the variables themselves one after the other in the order of their names,
and a pickle that says which state-dict key each variable had.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dysens._pickle import read_plain
from dysens.errors import InputError

# The numbers of `VarType.Type` in Paddle's framework.proto. They are part of the file format.
DTYPES: dict[int, type] = {
    0: np.bool_,
    1: np.int16,
    2: np.int32,
    3: np.int64,
    4: np.float16,
    5: np.float32,
    6: np.float64,
    20: np.uint8,
    21: np.int8,
}


def read_inference_state(prefix: Path) -> dict[str, npt.NDArray[Any]]:
    """The weights of an inference model by the names of the dygraph network that it was exported from.

    Args:
        prefix: The files' common path without their endings, such as ``ch_PP-OCRv3_det_infer/inference``.

    Raises:
        InputError: A file is missing, cut off, or does not fit the others.
    """
    program, values, info = (
        prefix.with_name(prefix.name + ending) for ending in (".pdmodel", ".pdiparams", ".pdiparams.info")
    )
    for path in (program, values, info):
        if not path.is_file():
            raise InputError(
                f'The inference model "{prefix}" has no "{path.name}"; its weights can be taken over only '
                "with .pdmodel, .pdiparams and .pdiparams.info, as Paddle 2 exports them. Otherwise give the "
                "checkpoint (.pdparams)."
            )
    structured = read_plain(info, "such files")
    if not all(isinstance(about, dict) for about in structured.values()):
        raise InputError(
            f'"{info}" does not say which variable is which; it is damaged, or of another program.'
        )
    state = _read_variables(values, _variable_names(program))
    return {
        str(structured.get(name, {}).get("structured_name", name)): array for name, array in state.items()
    }


def _variable_names(path: Path) -> list[str]:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from paddle.base.proto import framework_pb2

    program = framework_pb2.ProgramDesc()
    try:
        program.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise InputError(f'"{path}" is no Paddle program: {error}.') from error
    persistable = {
        variable.name for block in program.blocks for variable in block.vars if variable.persistable
    }
    return sorted(persistable - {"feed", "fetch"})


def _read_variables(path: Path, names: list[str]) -> dict[str, npt.NDArray[Any]]:
    from google.protobuf.message import DecodeError

    data = path.read_bytes()
    state, offset = {}, 0
    try:
        for name in names:
            state[name], offset = _read_tensor(data, offset)
    except (struct.error, ValueError, KeyError, DecodeError) as error:
        raise InputError(
            f'"{path}" breaks off or does not belong to its .pdmodel: "{name}" cannot be read.'
        ) from error
    if offset != len(data):
        raise InputError(
            f'"{path}" does not belong to its .pdmodel: {len(data) - offset} bytes are left over.'
        )
    return state


def _read_tensor(data: bytes, offset: int) -> tuple[npt.NDArray[Any], int]:
    """One tensor as Paddle writes it: version, levels of detail, version, description, values."""
    from paddle.base.proto import framework_pb2

    _, levels = struct.unpack_from("<IQ", data, offset)
    offset += 12
    for _ in range(levels):
        (size,) = struct.unpack_from("<Q", data, offset)
        offset += 8 + size
    _, size = struct.unpack_from("<Ii", data, offset)
    offset += 8
    description = framework_pb2.VarType.TensorDesc()
    description.ParseFromString(data[offset : offset + size])
    offset += size
    dtype = np.dtype(DTYPES[description.data_type])
    count = math.prod(description.dims)
    if count < 0 or size < 0:
        raise ValueError("a negative size")
    array = np.frombuffer(data, dtype, count, offset).reshape(tuple(description.dims)).copy()
    return array, offset + count * dtype.itemsize
