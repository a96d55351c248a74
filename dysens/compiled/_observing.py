"""Noticing in a live forward what a compiled copy cannot repeat.

A copy does the same operations at every call. A forward that turns a tensor into a Python value may do others the next time,
and so may one that asks for a size which depends on values, draws random numbers or keeps something between calls. Without
any of that, what a forward does follows from the sizes of its inputs and from the plain state that `_watch` watches.
"""

from __future__ import annotations

import gc
import random
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from dysens.compiled._freeze import LIBRARIES

_CONVERSIONS = {
    "__bool__": "bool",
    "__int__": "int",
    "__long__": "int",
    "__float__": "float",
    "__complex__": "complex",
    "__index__": "index",
    "__array__": "numpy",
    "__dlpack__": "dlpack",
    "item": "item",
    "numpy": "numpy",
    "tolist": "tolist",
    "__str__": "str",
    "__repr__": "repr",
    "__format__": "format",
    "value": "value",
    "get_tensor": "get_tensor",
    "data_ptr": "data_ptr",
    "_numpy": "numpy",
}
# Operations whose output has as many rows as values demand.
_SIZED_BY_VALUES = (
    "nonzero",
    "masked_select",
    "unique",
    "unique_consecutive",
    "bincount",
    "histogramdd",
    "nms",
    "matrix_nms",
    "multiclass_nms3",
    "generate_proposals",
    "distribute_fpn_proposals",
    "collect_fpn_proposals",
    "repeat_interleave_with_tensor_index",
)
# Operations that return as many tensors as there are rows.
_COUNTED_BY_SIZES = ("unbind", "unstack", "split", "split_with_num", "chunk", "tensor_split")
_SIZES = ("shape", "size")
# What a tensor says of itself besides values and sizes; the next call's tensor may say something else.
_OF_THE_OBJECT = ("name", "stop_gradient", "persistable", "is_leaf", "grad")
_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time")
_CALENDAR = ("now", "utcnow", "today", "localtime", "gmtime")
_OUTSIDE = {
    **dict.fromkeys((*_CLOCKS, *_CALENDAR), "asks for the time"),
    **dict.fromkeys(("open", "stat", "lstat", "listdir", "scandir", "access"), "looks at files"),
    **dict.fromkeys(("urandom", "getrandom"), "draws random numbers"),
}
# Modules of builtin functions with these names; others may be called the same.
_OUTER_MODULES = frozenset(("time", "posix", "nt", "io", "_io", "datetime", "None"))
# Python's own modules that look at files and clocks of their own accord.
_KEEPING_RECORDS = ("importlib", "linecache", "tokenize", "warnings", "logging", "inspect", "traceback")
_PADDLE = str(Path(paddle.__file__).parent)
# Where Paddle itself branches by a value; elsewhere its functions have a form for programs that keeps the value a tensor.
_BRANCHING = ("control_flow.py", "dy2static")


class Notes:
    """What was noticed in one forward.

    Args:
        model: Whose forward.

    Attributes:
        reason: Why no copy can stand in, as a clause; empty if nothing speaks against it.
        written_first: Attributes, by layer and name, that were assigned before anybody read them.
        read_first: Those that were read before they were assigned, if ever.
        code: What ran, apart from libraries' code, with the names that its module has.
    """

    def __init__(self, model: paddle.nn.Layer) -> None:
        self.reason = ""
        self.written_first: set[tuple[int, str]] = set()
        self._paths = {id(layer): path for path, layer in model.named_sublayers(include_self=True)}
        self.read_first: set[tuple[int, str]] = set()
        self.code: dict[types.CodeType, dict[str, Any]] = {}
        self._thread = threading.get_ident()
        self._sized_by_values = ""

    def refuse(self, reason: str) -> None:
        """Note a reason; the first one counts."""
        if not self.reason and threading.get_ident() == self._thread:
            self.reason = f"{reason}{self._place()}"

    def converted(self, how: str, caller: str) -> None:
        """A tensor became a Python value in a file."""
        if not caller.startswith(_PADDLE) or any(part in caller for part in _BRANCHING):
            self.refuse(f"its forward turns a tensor into a Python value by {how}")
        elif how != "bool":
            self.sized("a size given by a tensor")

    def attribute(self, layer: paddle.nn.Layer, name: str, written: bool) -> None:
        """An attribute of a layer was read or assigned."""
        key = (id(layer), name)
        if key not in self.written_first and key not in self.read_first:
            (self.written_first if written else self.read_first).add(key)

    def sized(self, what: str) -> None:
        """A tensor was made whose size depends on values."""
        if threading.get_ident() == self._thread:
            self._sized_by_values = self._sized_by_values or what

    def size_read(self, caller: str) -> None:
        """Somebody asked for the size of a tensor in a file."""
        if self._sized_by_values and not caller.startswith(_PADDLE):
            self.refuse(f"its forward looks at sizes that depend on values, behind {self._sized_by_values}")

    def object_read(self, what: str, caller: str) -> None:
        """Somebody asked a tensor for what is neither values nor sizes."""
        if not caller.startswith(_PADDLE):
            self.refuse(f"its forward asks for the {what} of a tensor")

    def entered(self, frame: types.FrameType) -> None:
        """Python code begins to run."""
        if frame.f_code not in self.code and _library(frame) not in LIBRARIES:
            self.code[frame.f_code] = frame.f_globals

    def called(self, frame: types.FrameType, builtin: Any) -> None:
        """Python code calls a function that is not written in Python."""
        what = _OUTSIDE.get(builtin.__name__)
        if what is None or str(getattr(builtin, "__module__", None)) not in _OUTER_MODULES:
            return
        above: types.FrameType | None = frame
        while above is not None and _library(above) in sys.stdlib_module_names - {"__main__"}:
            if _library(above) in _KEEPING_RECORDS:
                return
            above = above.f_back
        if above is not None and _library(above) not in ("paddle", "dysens"):
            self.refuse(f"its forward {what}")

    def _place(self) -> str:
        """In which layer the forward is, as a clause."""
        frame = sys._getframe(2)
        while frame.f_back is not None:
            frame = frame.f_back
            layer = frame.f_locals.get("self")
            if isinstance(layer, paddle.nn.Layer) and id(layer) in self._paths:
                path = self._paths[id(layer)]
                return f' in layer "{path}"' if path else f" in {type(layer).__name__}"
        return ""


@contextmanager
def noticing(model: paddle.nn.Layer) -> Iterator[Notes]:
    """Inside, note what the forward of a model that runs in this thread does beyond operations on tensors."""
    notes = Notes(model)
    before = _RandomNumbers()
    try:
        with ExitStack() as patches:
            _patch_tensor(notes, patches)
            _patch_operations(notes, patches)
            _patch_counts(notes, patches)
            _replace(patches, paddle, "get_flags", _asking(paddle.get_flags, notes))
            _patch_layer(notes, patches)
            # What a garbage collection happens to run (callbacks that take the time, finalizers) is no part of the forward.
            if gc.isenabled():
                gc.disable()
                patches.callback(gc.enable)
            if sys.getprofile() is None:  # a profiler of somebody else stays
                sys.setprofile(_profile(notes))
                patches.callback(sys.setprofile, None)
            yield notes
        if _RandomNumbers() != before:
            notes.refuse("its forward draws random numbers")
    finally:
        before.restore()


class _RandomNumbers:
    """The generators of Paddle, NumPy and Python as they are now."""

    def __init__(self) -> None:
        self._paddle = paddle.get_rng_state()
        self._numpy: Any = np.random.get_state()
        self._python = random.getstate()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _RandomNumbers) and self._contents() == other._contents()

    def _contents(self) -> list[Any]:
        kind, keys, *rest = self._numpy
        # Paddle 3 prints an address among the numbers.
        words = [word for state in self._paddle for word in str(state).split() if not word.startswith("0x")]
        return [words, kind, keys.tobytes(), rest, self._python]

    def restore(self) -> None:
        """Let all of them go on from here."""
        paddle.set_rng_state(self._paddle)
        np.random.set_state(self._numpy)
        random.setstate(self._python)


def _replace(patches: ExitStack, owner: Any, name: str, value: Any) -> None:
    """Until the stack is left, an attribute of the owner is another one."""
    if name in owner.__dict__:
        patches.callback(setattr, owner, name, owner.__dict__[name])
    else:
        patches.callback(delattr, owner, name)
    setattr(owner, name, value)


def _caller() -> str:
    """The file of whoever called the function that asks."""
    return sys._getframe(2).f_code.co_filename


def _patch_tensor(notes: Notes, patches: ExitStack) -> None:
    kind = paddle.Tensor
    for name, how in _CONVERSIONS.items():
        if name in kind.__dict__:
            _replace(patches, kind, name, _conversion(kind.__dict__[name], how, notes))
    for name in _SIZES:
        _replace(patches, kind, name, _size(kind.__dict__[name], notes))
    for name in _OF_THE_OBJECT:
        _replace(patches, kind, name, _of_the_object(kind.__dict__[name], name, notes))
    original, length = kind.__dict__["__getitem__"], kind.__dict__["__len__"]

    def getitem(tensor: Any, index: Any) -> Any:
        if any(_depends_on_values(part) for part in (index if isinstance(index, tuple) else (index,))):
            notes.sized("an index that is a tensor")
        return original(tensor, index)

    def size(tensor: Any) -> Any:
        notes.size_read(_caller())
        return length(tensor)

    def rows(tensor: Any) -> Iterator[Any]:
        notes.size_read(_caller())
        return (original(tensor, index) for index in range(length(tensor)))

    _replace(patches, kind, "__getitem__", getitem)
    _replace(patches, kind, "__iter__", rows)
    _replace(patches, kind, "__len__", size)


def _conversion(original: Callable[..., Any], how: str, notes: Notes) -> Callable[..., Any]:
    def convert(tensor: Any, *arguments: Any, **keywords: Any) -> Any:
        notes.converted(how, _caller())
        return original(tensor, *arguments, **keywords)

    return convert


def _size(original: Any, notes: Notes) -> property:
    def read(tensor: Any) -> Any:
        notes.size_read(_caller())
        return original.__get__(tensor)

    return property(read, original.__set__ if hasattr(original, "__set__") else None)


def _of_the_object(original: Any, name: str, notes: Notes) -> property:
    def read(tensor: Any) -> Any:
        notes.object_read(name, _caller())
        return original.__get__(tensor)

    return property(read, original.__set__ if hasattr(original, "__set__") else None)


def _profile(notes: Notes) -> Callable[[types.FrameType, str, Any], None]:
    def seen(frame: types.FrameType, event: str, argument: Any) -> None:
        if event == "call":
            notes.entered(frame)
        elif event == "c_call":
            notes.called(frame, argument)

    return seen


def _library(frame: types.FrameType) -> str:
    """The outermost package of the module that code belongs to."""
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _depends_on_values(index: Any) -> bool:
    """Whether part of an index makes the size of the result depend on values."""
    if isinstance(index, slice):
        return any(isinstance(bound, paddle.Tensor) for bound in (index.start, index.stop, index.step))
    return isinstance(index, paddle.Tensor) and index.dtype == paddle.bool


def _patch_operations(notes: Notes, patches: ExitStack) -> None:
    # Some functions of Paddle 3 are the operations themselves, so that each is known under several names.
    for owner in (paddle._C_ops, paddle, paddle.Tensor, paddle.vision.ops):
        for name in _SIZED_BY_VALUES:
            original = owner.__dict__.get(name)
            if callable(original):
                _replace(patches, owner, name, _sizing(original, name, notes))


def _patch_counts(notes: Notes, patches: ExitStack) -> None:
    for owner in (paddle._C_ops, paddle, paddle.Tensor):
        for name in _COUNTED_BY_SIZES:
            original = owner.__dict__.get(name)
            if callable(original):
                _replace(patches, owner, name, _counting(original, notes))


def _asking(original: Callable[..., Any], notes: Notes) -> Callable[..., Any]:
    def ask(*arguments: Any, **keywords: Any) -> Any:
        if not _caller().startswith(_PADDLE):
            notes.refuse("its forward asks for Paddle's flags")
        return original(*arguments, **keywords)

    return ask


def _counting(original: Callable[..., Any], notes: Notes) -> Callable[..., Any]:
    def operation(*arguments: Any, **keywords: Any) -> Any:
        notes.size_read("")
        return original(*arguments, **keywords)

    return operation


def _patch_layer(notes: Notes, patches: ExitStack) -> None:
    assign = paddle.nn.Layer.__setattr__

    def setattr_(layer: paddle.nn.Layer, name: str, value: Any) -> None:
        notes.attribute(layer, name, written=True)
        assign(layer, name, value)

    def getattribute(layer: paddle.nn.Layer, name: str) -> Any:
        notes.attribute(layer, name, written=False)
        return object.__getattribute__(layer, name)

    _replace(patches, paddle.nn.Layer, "__setattr__", setattr_)
    _replace(patches, paddle.nn.Layer, "__getattribute__", getattribute)


def _sizing(original: Callable[..., Any], name: str, notes: Notes) -> Callable[..., Any]:
    def operation(*arguments: Any, **keywords: Any) -> Any:
        notes.sized(name)
        return original(*arguments, **keywords)

    return operation
