"""Untrusted pickles: read as plain data and numbers, without running code, in memory proportional to the file's size.

`pickle.Unpickler` does the work, behind three guards. A first pass over the opcodes, which builds nothing, refuses
what makes the unpickler itself take all memory (a memo index of two thousand million) or all time (a dictionary key
of nested shared tuples, whose hash takes exponential time). ``find_class`` hands out stand-ins for the few names that
are allowed: no module is imported, and no function or class of NumPy ever sees the file's arguments. A last pass turns
the stand-ins into data and bounds what shared parts may grow to.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import pickletools
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dysens.errors import DysensError, InputError, UnsafePickleError

MAX_OPCODES = 5_000_000
"""A thousand groups with a hundred ratios each take two million; a thousand tensors thirty thousand."""

_OPCODES = {opcode.code.encode("latin-1"): opcode for opcode in pickletools.opcodes}
_PUTS = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
_GETS = {"GET", "BINGET", "LONG_BINGET"}
# How many values an opcode takes off the stack; None: all above the mark.
_TAKES: dict[str, int | None] = {
    **{"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "TUPLE": None, "LIST": None, "DICT": None},
    **{"APPEND": 1, "APPENDS": None, "SETITEM": 2, "SETITEMS": None, "BUILD": 1},
    **{"STACK_GLOBAL": 2, "REDUCE": 2, "NEWOBJ": 2, "INST": None, "OBJ": None},
}
# These change the value below what they take, or nothing; all others leave a value on the stack.
_SILENT = {"PROTO", "FRAME", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "BUILD"}
_ALLOWED_OPCODES = {
    *("PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "GLOBAL"),
    *("EMPTY_DICT", "EMPTY_TUPLE", "EMPTY_LIST"),
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    *(*_PUTS, *_GETS, *_TAKES),
}

ODD_KEY = "a dictionary in it has a key that is neither a name nor a number"


def check_opcodes(data: bytes, needed_by: str) -> int:
    """How many opcodes a pickle has, all of them allowed and none a trap for `pickle.Unpickler`.

    The stack here has, for each value that would be on it, the opcode that made it.

    Raises:
        InputError: The data is no whole pickle, has too many opcodes, or would take all memory or time.
        UnsafePickleError: It has an opcode that such files do not need.
    """
    stream, stack, memo = io.BytesIO(data), list[str](), dict[int, str]()
    for count in range(1, MAX_OPCODES + 1):
        code = stream.read(1)
        if not code:
            raise InputError("it is cut short")
        opcode = _OPCODES.get(code)
        if opcode is None:
            raise InputError(f"it is damaged (byte {code!r} is not an opcode)")
        name = opcode.name
        if name not in _ALLOWED_OPCODES:
            raise UnsafePickleError(f"it uses the pickle opcode {name}, which {needed_by} never need")
        if name == "STOP":
            if len(stack) != 1:
                raise InputError("it is damaged (it ends in the middle of a value)")
            return count
        if name == "STRING":  # the reader of pickletools takes ASCII only; Python 2 wrote raw floats this way
            argument: Any = stream.readline()
        else:
            argument = opcode.arg.reader(stream) if opcode.arg is not None else None
        if name in _PUTS:
            index = len(memo) if argument is None else argument
            if index > count:  # the unpickler would make room for all indices below
                raise InputError("it is damaged (a memo index that is out of range)")
            memo[index] = stack[-1]
        elif name in _GETS:
            stack.append(memo[argument])
        else:
            _follow(name, stack)
    raise InputError(f"it has more than {MAX_OPCODES} opcodes")


def _follow(name: str, stack: list[str]) -> None:
    """Takes off the stack and puts there what an opcode does."""
    wanted = _TAKES.get(name, 0)
    taken: list[str] = []
    while len(taken) != wanted and (value := stack.pop()) != "MARK":
        taken.append(value)
    if wanted is not None and len(taken) != wanted:
        raise InputError("it is damaged (a mark in the wrong place)")
    if name in ("SETITEM", "SETITEMS", "DICT") and any("TUPLE" in key for key in taken[1::2]):
        raise InputError(ODD_KEY)
    if name not in _SILENT:
        stack.append(name)


MAX_DEPTH = 32
"""Of containers in containers; a state dict has about four."""

# Parts that a pickle mentions twice are there twice afterwards. Honest files do that with a few names and tensors.
_GROWTH = 8
_FREE_PARTS, _FREE_BYTES = 100_000, 16 * 2**20

# Paddle has no more. uint16 holds its bfloat16.
_NUMBER_CODES = {"b1", "f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "c8", "c16"}


class PickledObject:
    """The attributes of an object whose class is in the allow-list of `load_plain`."""

    attributes: dict[str, Any]

    def __new__(cls) -> PickledObject:  # not __init__: unpickling goes around that
        made = super().__new__(cls)
        made.attributes = {}
        return made

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, dict):
            raise InputError("it is damaged (the state of an object is not a dictionary)")
        self.attributes = {_text(name): value for name, value in state.items()}


def read_plain(path: Path, needed_by: str, limit: int = 16 * 2**20) -> dict[Any, Any]:
    """The dictionary that `load_plain` makes of a file of at most ``limit`` bytes, with errors that are sentences.

    Raises:
        InputError: The file cannot be read, is too large or no whole pickle, grows beyond its limits, or is no
            dictionary.
        UnsafePickleError: It asks for something that such files do not need.
    """
    try:
        if not path.is_file():
            raise InputError("it is not a regular file" if path.exists() else "it does not exist")
        with path.open("rb") as handle:
            size = os.fstat(handle.fileno()).st_size
            if size > limit:
                raise InputError(f"it is larger than {limit} bytes")
            data = handle.read(size)
        content = load_plain(data, needed_by, encoding="latin-1")
        if not isinstance(content, dict):
            raise InputError(f"it holds a {type(content).__name__}, not a dictionary")
        return content
    except UnsafePickleError as error:
        raise UnsafePickleError(f'"{path}" cannot be read: {error}. Nothing was run.') from error
    except InputError as error:
        raise InputError(f'"{path}" cannot be read: {error}.') from error
    except OSError as error:
        raise InputError(f'"{path}" cannot be read: {error.strerror or error}.') from error


def load_plain(data: bytes, needed_by: str, *, encoding: str = "bytes", classes: Collection[str] = ()) -> Any:
    """The dictionaries, lists, tuples, strings, numbers and NumPy arrays of a pickle; arrays are read-only.

    Args:
        data: The whole file.
        needed_by: What such files hold, in the plural, for the sentence about what it "never need".
        encoding: What Python 2's strings become; see `pickle.loads`.
        classes: "module name" of classes whose objects become a `PickledObject`.

    Raises:
        InputError: The data is no whole pickle, or grows beyond its limits; the message is a clause.
        UnsafePickleError: It asks for a class, a function or an opcode that such files do not need; it is named.
    """
    try:
        opcodes = check_opcodes(data, needed_by)
        loader = _Loader(data, opcodes, needed_by, encoding, classes)
        return loader.finished(loader.load())
    except DysensError:
        raise
    except Exception as error:  # of any kind, as the documentation of pickle says
        raise InputError(f"it is damaged ({str(error) or type(error).__name__:.200})") from error


class _Allowed:
    """Stands for a function or class that a pickle may name. Nothing of it can be changed by a pickle's BUILD."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self._function = name, function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise InputError(f"it is damaged (it would change {self.name})")


class _Dtype:
    def __init__(self, code: Any, *_: Any) -> None:
        self.code, self.order = _text(code), "="

    def __setstate__(self, state: Any) -> None:
        self.order = _text(state[1])

    def numpy(self) -> np.dtype[Any]:
        if self.code not in _NUMBER_CODES or self.order not in ("<", ">", "=", "|"):
            raise InputError(
                f"it holds a NumPy value of the type {self.code!r:.80}, which is not a plain number"
            )
        return np.dtype(self.order + self.code)


class _Array:
    """An array that is being built: NumPy's own ``__setstate__`` would trust the file's sizes and types."""

    def __init__(self, numbers: Callable[[Any, Any], npt.NDArray[Any]]) -> None:
        self._numbers = numbers
        self.values: npt.NDArray[Any] | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        values = self._numbers(dtype, raw)
        whole = isinstance(shape, tuple) and all(type(size) is int and 0 <= size < 2**63 for size in shape)
        if not whole or len(shape) > 64 or math.prod(shape) != values.size:
            raise InputError(
                f"it is damaged (an array has {values.size} values and the shape of another size)"
            )
        self.values = values.reshape(shape, order="F" if fortran else "C")


class _Loader(pickle.Unpickler):
    """Unpickles one file whose opcodes have been checked."""

    def __init__(
        self, data: bytes, opcodes: int, needed_by: str, encoding: str, classes: Collection[str]
    ) -> None:
        super().__init__(io.BytesIO(data), encoding=encoding)
        self._needed_by = needed_by
        self._parts_left = _FREE_PARTS + _GROWTH * opcodes
        self._bytes_left = _FREE_BYTES + _GROWTH * len(data)
        functions: dict[str, Callable[..., Any]] = {
            "numpy dtype": _Dtype,
            "numpy ndarray": _never_called,
            "_codecs encode": self._encoded,
            "collections OrderedDict": lambda: {},
            **{f"numpy.{core}.multiarray scalar": self._scalar for core in ("core", "_core")},
            **{f"numpy.{core}.multiarray _reconstruct": self._array for core in ("core", "_core")},
            **{f"{module} tuple": _tensor for module in ("builtins", "__builtin__")},
            **{f"{module} bytes": lambda: b"" for module in ("builtins", "__builtin__")},
            **{f"{module} object": _never_called for module in ("builtins", "__builtin__") if classes},
            **{f"{module} _reconstructor": _object for module in ("copyreg", "copy_reg") if classes},
        }
        self._known: dict[str, Any] = {name: _Allowed(name, function) for name, function in functions.items()}
        self._known.update(dict.fromkeys(classes, PickledObject))

    def find_class(self, module: str, name: str) -> Any:
        if f"{module} {name}" not in self._known:
            raise UnsafePickleError(
                f"it asks for {module:.200}.{name:.200}, which {self._needed_by} never need"
            )
        return self._known[f"{module} {name}"]

    def _spend(self, size: int) -> None:
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise InputError("its arrays would take many times the size of the file")

    def _encoded(self, text: Any, *_: Any) -> bytes:
        """How protocols 0 to 2 write bytes."""
        self._spend(len(text))
        return _text(text).encode("latin-1")

    def _array(self, *_: Any) -> _Array:
        return _Array(self._numbers)

    def _scalar(self, dtype: Any, raw: Any) -> Any:
        return self._numbers(dtype, raw).item()  # refuses all but one

    def _numbers(self, dtype: Any, raw: Any) -> npt.NDArray[Any]:
        """Raw memory as numbers, in the byte order of this machine."""
        if not isinstance(dtype, _Dtype):
            raise InputError("it is damaged (a NumPy value without its type)")
        kind = dtype.numpy()
        memory = raw if isinstance(raw, bytes) else self._encoded(raw)
        values = np.frombuffer(memory, kind) if memory else np.empty(0, kind)
        if not kind.isnative:
            self._spend(values.nbytes)
            values = values.astype(kind.newbyteorder("="))
        return values

    def finished(self, value: Any, depth: int = 0) -> Any:
        """The last pass: the value with data in place of stand-ins, within the limits."""
        self._parts_left -= 1
        if self._parts_left < 0:
            raise InputError("it repeats its parts too often")
        if depth > MAX_DEPTH:
            raise InputError(f"it is nested deeper than {MAX_DEPTH} levels")
        if value is None or isinstance(value, (str, bytes, int, float, complex)):
            return value
        if isinstance(value, dict):
            if not all(isinstance(key, (str, bytes, int, float)) for key in value):
                raise InputError(ODD_KEY)
            return {key: self.finished(part, depth + 1) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self.finished(part, depth + 1) for part in value)
        if isinstance(value, _Array) and value.values is not None:
            self._spend(value.values.nbytes)
            return value.values
        if isinstance(value, PickledObject):
            value.attributes = self.finished(value.attributes, depth + 1)
            return value
        raise InputError("it is damaged (it holds something that is not a value)")


def _text(value: Any) -> str:
    """A string, also where Python 2 or an old protocol wrote bytes."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if not isinstance(value, str):
        raise InputError("it is damaged (a string was expected)")
    return value


def _never_called(*_: Any) -> None:
    raise InputError("it is damaged (it calls a class that is only named in such files)")


def _object(kind: Any, base: Any, state: Any) -> PickledObject:
    if kind is not PickledObject or not isinstance(base, _Allowed) or state is not None:
        raise InputError("it builds an object of another class")
    return PickledObject()


def _tensor(pair: Any) -> _Array:
    """Paddle writes a tensor inside other containers as a call of ``tuple`` with its name and its array."""
    if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[1], _Array):
        raise InputError("it is damaged (a tensor is not a name and an array)")
    return pair[1]
