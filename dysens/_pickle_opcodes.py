"""The first pass over a stranger's pickle: which opcodes it has, without building anything."""

from __future__ import annotations

import io
import pickletools
from typing import Any

from dysens.errors import InputError, UnsafePickleError

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
        UnsafePickleError: It has an opcode that such files don't need.
    """
    stream, stack, memo = io.BytesIO(data), list[str](), dict[int, str]()
    for count in range(1, MAX_OPCODES + 1):
        code = stream.read(1)
        if not code:
            raise InputError("it is cut short")
        opcode = _OPCODES.get(code)
        if opcode is None:
            raise InputError(f"it is damaged (byte {code!r} is no opcode)")
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
