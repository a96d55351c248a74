"""The files of an inference model: where they are, what they have to look like, and the weights, read as bytes.

Paddle's own readers are C++ that trusts what it reads, so everything that can be said about a file is said here first. No
code of a file is run: the program is protobuf or JSON, the weights are numbers, and the pickle with the names of the original
network is read by a reader that knows only plain data.
"""

from __future__ import annotations

import json
import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dysens._pickle import read_plain
from dysens.errors import InputError
from dysens.programs._graph import rewritten

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
PROGRAMS = (".json", ".pdmodel")
WEIGHTS = ".pdiparams"
_STEMS = ("inference", "model", "__model__")
_OLD_WEIGHTS = ("__params__", "params")


@dataclass(frozen=True)
class InferenceFiles:
    """An inference model on disk.

    Attributes:
        program: ``.json`` as Paddle 3 writes it, or ``.pdmodel`` as Paddle 2 does.
        weights: All parameters in one file.
    """

    program: Path
    weights: Path

    @property
    def is_pir(self) -> bool:
        """Whether the program is one of Paddle 3."""
        return self.program.suffix == ".json"


def find_inference(
    path: str | os.PathLike[str],
    model_filename: str | None = None,
    params_filename: str | None = None,
    prefer_pir: bool = True,
) -> InferenceFiles:
    """The files that a prefix or a folder means.

    Args:
        path: The files' common path without endings, one of the files, or the folder that they are in.
        model_filename: The program's name in the folder, where it is not the only one.
        params_filename: The same for the weights.
        prefer_pir: Whether ``.json`` is taken where both kinds are there.

    Raises:
        InputError: There is nothing of the kind, or more than one.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"The path of an inference model has to be text or a Path, not {path!r:.80}.")
    place = Path(path).expanduser()
    endings = PROGRAMS if prefer_pir else PROGRAMS[::-1]
    if model_filename is not None:
        folder = place if place.is_dir() else place.parent
        program = folder / model_filename
    elif place.is_dir():
        folder, program = place, _only_program(place, endings)
    else:
        folder = place.parent
        stem = str(place)
        for ending in (*PROGRAMS, WEIGHTS):
            stem = stem.removesuffix(ending)
        named = [Path(f"{stem}{ending}") for ending in endings]
        if place.suffix in PROGRAMS:
            named.insert(0, place)
        program = next((file for file in (*named, place) if file.is_file()), place)
    if not program.is_file():
        raise InputError(
            f'There is no inference model at "{program if model_filename else place}": a program ends in .json (Paddle 3) or '
            ".pdmodel (Paddle 2); give the folder, or the path without endings."
        )
    weights = folder / params_filename if params_filename is not None else _weights_beside(program)
    if not weights.is_file():
        raise InputError(
            f'The program "{program}" has no weights: there is no file "{weights.name}" beside it. Models with one file a '
            "parameter have to be exported again into one."
        )
    return InferenceFiles(program, weights)


def _only_program(folder: Path, endings: tuple[str, ...]) -> Path:
    found = [f for f in sorted(folder.iterdir()) if f.is_file() and (f.suffix == ".pdmodel" or _says_pir(f))]
    for stem in _STEMS:
        named = [folder / f"{stem}{ending}" for ending in (*endings, "")]
        program = next(
            (file for file in named if file in found or (file.name == "__model__" and file.is_file())), None
        )
        if program is not None:
            return program
    stems = {file.stem for file in found}
    if len(stems) > 1:
        raise InputError(
            f'The folder "{folder}" holds several programs ({", ".join(file.name for file in found)}); say which one by its '
            "path without ending, or by model_filename."
        )
    if not found:
        # What has weights beside it was meant to be a program: what is wrong with it is said where it is read.
        broken = [f for f in sorted(folder.glob("*.json")) if f.with_suffix(WEIGHTS).is_file()]
        if len(broken) == 1:
            return broken[0]
        raise InputError(
            f'The folder "{folder}" holds no inference model: there is no program (.json of Paddle 3, or .pdmodel) in it.'
        )
    return next(file for ending in endings for file in found if file.suffix == ending)


def _says_pir(path: Path) -> bool:
    if path.suffix != ".json":
        return False
    with path.open("rb") as handle:
        return b'"pir"' in handle.read(200)


def _weights_beside(program: Path) -> Path:
    usual = program.with_suffix(WEIGHTS)
    others = [program.with_name(name) for name in _OLD_WEIGHTS]
    return next((file for file in (usual, *others) if file.is_file()), usual)


def check_program(files: InferenceFiles) -> None:
    """Look at a program before Paddle does.

    Raises:
        InputError: The file is not a program that can be read.
    """
    data = _bytes_of(files.program)
    if files.is_pir:
        _check_json(files.program, data)
    else:
        parameter_names(files.program)


def _bytes_of(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f'"{path}" cannot be read: {error.strerror or error}.') from error
    if not data:
        raise InputError(f'"{path}" is empty.')
    return data


def parameter_names(path: Path) -> list[str]:
    """The names of the parameters of a ``.pdmodel``, in the order in which the weights' file has them.

    Raises:
        InputError: It is no program.
    """
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from paddle.base.proto import framework_pb2

    program = framework_pb2.ProgramDesc()
    try:
        program.ParseFromString(_bytes_of(path))
    except DecodeError as error:
        raise InputError(f'"{path}" is not a Paddle program, or is cut off or damaged ({error}).') from error
    if not program.blocks or not any(block.ops for block in program.blocks):
        raise InputError(f'"{path}" is not a Paddle program: there is no operation in it.')
    block = program.blocks[0]
    declared = {variable.name for variable in block.vars}
    used = {name for op in block.ops for slot in (*op.inputs, *op.outputs) for name in slot.arguments}
    if used - declared - {"@EMPTY@"}:
        raise InputError(f'"{path}" is damaged: it does not say what "{min(used - declared)}" is.')
    persistable = {
        variable.name for block in program.blocks for variable in block.vars if variable.persistable
    }
    return sorted(persistable - {"feed", "fetch"})


def _check_json(path: Path, data: bytes) -> None:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f'"{path}" is not a Paddle program: it is not valid JSON ({error}).') from error
    try:
        if content["base_code"]["magic"] != "pir":
            raise KeyError("magic")
        (region,) = content["program"]["regions"]
        (block,) = region["blocks"]
        if not all(isinstance(op["#"], str) for op in block["ops"]) or not block["ops"]:
            raise ValueError("no operations")
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InputError(
            f'"{path}" is JSON, but not a program of Paddle 3 ({type(error).__name__}: {error}); give the program\'s own file.'
        ) from error
    for place, op in enumerate(block["ops"]):
        dialect, dot, _ = op["#"].partition(".")
        if (
            dot and not dialect.isdigit()
        ):  # those of networks are abbreviated to a number; Paddle reads no others
            why = rewritten(op["#"]) or "Paddle does not read operations of this kind"
            raise InputError(
                f'"{path}" cannot be imported because of "{op["#"]}" (operation {place}): {why}.'
            )


def read_weights(path: Path, names: list[str]) -> dict[str, npt.NDArray[Any]]:
    """Every parameter by name; the file holds them one after the other, without names.

    Args:
        path: The file.
        names: In the file's order.

    Raises:
        InputError: It is cut off, or of another program.
    """
    from google.protobuf.message import DecodeError

    data = _bytes_of(path) if names else path.read_bytes()
    state, offset = {}, 0
    for name in names:
        try:
            state[name], offset = _read_tensor(data, offset)
        except (struct.error, ValueError, DecodeError, OverflowError) as error:
            raise InputError(
                f'"{path}" is cut short or does not belong to its program: "{name}" cannot be read.'
            ) from error
    if offset != len(data):
        raise InputError(
            f'"{path}" does not belong to its program: {len(data) - offset} bytes are left over.'
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
    if description.data_type not in DTYPES:
        kind = framework_pb2.VarType.Type.Name(description.data_type)
        raise InputError(f"Weights of the type {kind} cannot be imported; export the model in float32.")
    dtype = np.dtype(DTYPES[description.data_type])
    count = math.prod(description.dims)
    if count < 0 or size < 0:
        raise ValueError("a negative size")
    array = np.frombuffer(data, dtype, count, offset).reshape(tuple(description.dims)).copy()
    return array, offset + count * dtype.itemsize


def read_inference_state(prefix: Path) -> dict[str, npt.NDArray[Any]]:
    """The weights of an inference model by the names of the dygraph network that it was exported from.

    Args:
        prefix: The files' common path without their endings, such as ``ch_PP-OCRv3_det_infer/inference``.

    Raises:
        InputError: A file is missing, cut off, or does not fit the others.
    """
    program, values, info = (
        prefix.with_name(prefix.name + ending) for ending in (".pdmodel", WEIGHTS, f"{WEIGHTS}.info")
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
    state = read_weights(values, parameter_names(program))
    return {
        str(structured.get(name, {}).get("structured_name", name)): array for name, array in state.items()
    }
