"""A pickle machine that can build what PaddleSlim's sensitivity files hold, and nothing else.

`pickle.Unpickler` with a guarded ``find_class`` runs no foreign code either, but it still lets a file ask for
gigabytes (a memo index of two thousand million) or for hours (a dictionary key of nested shared tuples, whose
hash takes exponential time). Here every opcode that such files need is a few lines below, every other one is
refused, and the only "objects" are the four stand-ins: no class is looked up, no function is called by name.
"""

from __future__ import annotations

import codecs
import io
import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dysens.errors import InputError, UnsafePickleError

MAX_OPCODES = 5_000_000
"""A thousand groups with a hundred ratios each take two million."""

STATUS = "paddleslim.dygraph.prune.filter_pruner Status"

_RECONSTRUCTORS = {"copyreg _reconstructor", "copy_reg _reconstructor"}
_OBJECTS = {"builtins object", "__builtin__ object"}
_SCALARS = {"numpy.core.multiarray scalar", "numpy._core.multiarray scalar"}
_ARRAYS = {"numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"}
_DTYPE, _NDARRAY, _ENCODE = "numpy dtype", "numpy ndarray", "_codecs encode"
_KNOWN_GLOBALS = {STATUS, *_RECONSTRUCTORS, *_OBJECTS, *_SCALARS, *_ARRAYS, _DTYPE, _NDARRAY, _ENCODE}

_NUMBER_CODES = {"f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"}

_OPCODES = {opcode.code.encode("latin-1"): opcode for opcode in pickletools.opcodes}


@dataclass
class PickledStatus:
    """Stands for PaddleSlim's ``Status``: its attributes."""

    attributes: dict[Any, Any] = field(default_factory=dict)


@dataclass
class PickledArray:
    """Stands for a numpy array: an evaluation function may well return one with a single element."""

    values: tuple[float, ...] = ()


@dataclass
class _Dtype:
    code: str
    order: str = "="


@dataclass(frozen=True)
class _Global:
    name: str


_MARK = object()


def load_plain(data: bytes) -> Any:
    """The dictionaries, strings, numbers and stand-ins of a pickle.

    Raises:
        InputError: The data is no whole pickle; the message is a clause.
        UnsafePickleError: It asks for a class, a function or an opcode that sensitivities don't need.
    """
    machine = _Machine(io.BytesIO(data))
    try:
        return machine.run()
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, AssertionError) as error:
        if isinstance(error, (InputError, UnsafePickleError)):
            raise
        raise InputError(f"it is damaged ({error})") from error


def _text(value: Any) -> str:
    """A string, also where Python 2 or an old protocol wrote bytes."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if not isinstance(value, str):
        raise InputError("it is damaged (a string was expected)")
    return value


class _Machine:
    """Runs the opcodes of one pickle."""

    def __init__(self, stream: io.BytesIO) -> None:
        self._stream = stream
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        for _ in range(MAX_OPCODES):
            code = self._stream.read(1)
            if not code:
                raise InputError("it is cut short")
            opcode = _OPCODES.get(code)
            if opcode is None:
                raise InputError(f"it is damaged (byte {code!r} is no opcode)")
            if opcode.name == "STOP":
                return self._result()
            self._step(opcode)
        raise InputError(f"it has more than {MAX_OPCODES} opcodes")

    def _result(self) -> Any:
        result = self._stack.pop()
        if result is _MARK:
            raise InputError("it is damaged (it ends without a value)")
        return result

    def _step(self, opcode: pickletools.OpcodeInfo) -> None:
        handler = _HANDLERS.get(opcode.name)
        if handler is None:
            raise UnsafePickleError(
                f"it uses the pickle opcode {opcode.name}, which sensitivities never need"
            )
        if (
            opcode.name == "STRING"
        ):  # the reader of pickletools takes ASCII only; Python 2 wrote raw floats this way
            argument: Any = self._quoted_bytes()
        else:
            argument = opcode.arg.reader(self._stream) if opcode.arg is not None else None
        handler(self, argument)

    def _quoted_bytes(self) -> bytes:
        line = self._stream.readline()
        if len(line) < 3 or line[:1] not in (b"'", b'"') or line[-2:] != line[:1] + b"\n":
            raise InputError("it is damaged (a string without quotes)")
        return codecs.escape_decode(line[1:-2])[0]

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _push_bytes(self, text: str) -> None:
        self._stack.append(text.encode("latin-1"))

    def _pop_to_mark(self) -> list[Any]:
        position = len(self._stack) - 1
        while self._stack[position] is not _MARK:
            position -= 1
            if position < 0:
                raise InputError("it is damaged (a mark is missing)")
        values = self._stack[position + 1 :]
        del self._stack[position:]
        return values

    def _pop_many(self, count: int) -> list[Any]:
        return [self._stack.pop() for _ in range(count)][::-1]

    def _set_items(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, dict) or len(values) % 2:
            raise InputError("it is damaged (items outside a dictionary)")
        for key, value in zip(values[::2], values[1::2]):
            if not isinstance(key, (str, bytes, int, float)):
                raise InputError("a dictionary in it has a key that is neither a name nor a number")
            target[key] = value

    def _fill_dict(self, values: list[Any]) -> None:
        self._stack.append({})
        self._set_items(values)

    def _memoize(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    def _push_global(self, name: str) -> None:
        if name not in _KNOWN_GLOBALS:
            module, _, attribute = name.partition(" ")
            raise UnsafePickleError(f"it asks for {module}.{attribute}, which sensitivities never need")
        self._stack.append(_Global(name))

    def _instance_by_name(self, name: str) -> None:
        """How Python 2 made an object of a class in text pickles: the arguments stand above the mark."""
        arguments = self._pop_to_mark()
        self._push_global(name)
        self._instance(self._stack.pop(), arguments)

    def _instance_above_mark(self) -> None:
        """How Python 2 did it in binary pickles: the class stands there too."""
        kind, *arguments = self._pop_to_mark()
        self._instance(kind, arguments)

    def _instance(self, kind: Any, arguments: Any) -> None:
        if kind != _Global(STATUS) or len(arguments):
            raise InputError("it builds an object other than PaddleSlim's Status")
        self._stack.append(PickledStatus())

    def _reduce(self) -> None:
        function, arguments = self._pop_many(2)
        if not isinstance(function, _Global) or not isinstance(arguments, tuple):
            raise InputError("it is damaged (a call of something that is no function)")
        if function.name in _RECONSTRUCTORS:
            status, base, state = arguments
            if getattr(base, "name", None) not in _OBJECTS or state is not None:
                raise InputError("it builds an object other than PaddleSlim's Status")
            self._instance(status, ())
        elif function.name in _SCALARS:
            self._stack.append(_number(*arguments))
        elif function.name == _DTYPE:
            self._stack.append(_Dtype(_text(arguments[0])))
        elif function.name == _ENCODE:
            self._stack.append(_text(arguments[0]).encode("latin-1"))
        elif function.name in _ARRAYS:
            self._stack.append(PickledArray())
        else:
            raise InputError(f"it is damaged ({function.name} is not called like this)")

    def _build(self) -> None:
        state = self._stack.pop()
        target = self._stack[-1]
        if isinstance(target, PickledStatus) and isinstance(state, dict):
            target.attributes.update((_text(name), value) for name, value in state.items())
        elif isinstance(target, _Dtype) and isinstance(state, tuple):
            target.order = _text(state[1])
        elif isinstance(target, PickledArray) and isinstance(state, tuple):
            _, _, dtype, _, raw = state
            target.values = _numbers(dtype, raw)
        else:
            raise InputError("it is damaged (state for something that has none)")


def _number(dtype: Any, raw: Any) -> float:
    (value,) = _numbers(dtype, raw)
    return value


def _numbers(dtype: Any, raw: Any) -> tuple[float, ...]:
    """Raw memory as floats; of plain number types only, so that nothing but numbers can come out."""
    if (
        not isinstance(dtype, _Dtype)
        or dtype.code not in _NUMBER_CODES
        or dtype.order not in ("<", ">", "=", "|")
    ):
        raise InputError("it holds a numpy value that is not a plain number")
    memory = raw if isinstance(raw, bytes) else _text(raw).encode("latin-1")
    return tuple(float(value) for value in np.frombuffer(memory, np.dtype(dtype.order + dtype.code)))


_Handler = Callable[[_Machine, Any], None]


def _ignore(machine: _Machine, argument: Any) -> None:
    """For opcodes that only describe the stream."""


def _constant(value: Any) -> _Handler:
    return lambda machine, _: machine._push(value)


def _tuple_of(count: int) -> _Handler:
    return lambda machine, _: machine._push(tuple(machine._pop_many(count)))


_HANDLERS: dict[str, _Handler] = {
    **dict.fromkeys(("PROTO", "FRAME"), _ignore),
    **dict.fromkeys(
        (
            *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
            *("STRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES"),
        ),
        _Machine._push,
    ),
    **dict.fromkeys(("BINSTRING", "SHORT_BINSTRING"), _Machine._push_bytes),
    "NONE": _constant(None),
    "NEWTRUE": _constant(True),
    "NEWFALSE": _constant(False),
    "MARK": _constant(_MARK),
    "EMPTY_DICT": lambda machine, _: machine._push({}),
    "EMPTY_TUPLE": _tuple_of(0),
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "TUPLE": lambda machine, _: machine._push(tuple(machine._pop_to_mark())),
    "DICT": lambda machine, _: machine._fill_dict(machine._pop_to_mark()),
    "SETITEM": lambda machine, _: machine._set_items(machine._pop_many(2)),
    "SETITEMS": lambda machine, _: machine._set_items(machine._pop_to_mark()),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Machine._memoize),
    "MEMOIZE": lambda machine, _: machine._memoize(len(machine._memo)),
    **dict.fromkeys(
        ("GET", "BINGET", "LONG_BINGET"), lambda machine, index: machine._push(machine._memo[index])
    ),
    "GLOBAL": _Machine._push_global,
    "STACK_GLOBAL": lambda machine, _: machine._push_global(" ".join(map(_text, machine._pop_many(2)))),
    "INST": _Machine._instance_by_name,
    "OBJ": lambda machine, _: machine._instance_above_mark(),
    "NEWOBJ": lambda machine, _: machine._instance(*machine._pop_many(2)),
    "REDUCE": lambda machine, _: machine._reduce(),
    "BUILD": lambda machine, _: machine._build(),
}
