"""What plain values hold now, in a form that can be compared later: settings in whatever container people keep them in."""

from __future__ import annotations

import functools
import logging
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from enum import Enum
from typing import Any

import numpy as np
import paddle

from dysens.model import has_storage

PLAIN = (type(None), bool, int, float, complex, str, bytes, Enum, np.generic, paddle.dtype)
# What Paddle keeps in every layer: looked at elsewhere (tensors, layers, hooks, mode), or without a part in the forward.
PADDLES_OWN = frozenset(
    (
        *("_parameters", "_buffers", "_sub_layers", "_non_persistable_buffer_names_set", "_loaddict_holder"),
        *(
            "_forward_pre_hooks",
            "_forward_post_hooks",
            "_state_dict_hooks",
            "_forward_pre_hooks_with_kwargs_flag",
        ),
        *("_forward_post_hooks_with_kwargs_flag", "_forward_post_hooks_always_called", "_original_funcs"),
        *("_op_recorder", "_customized_attrs", "_helper", "_full_name", "_init_in_dynamic_mode", "_built"),
        *("_param_attr", "_bias_attr", "training", "_dysens_plans"),
    )
)
LIBRARIES = frozenset(("paddle", "numpy", "dysens", "builtins", *sys.stdlib_module_names)) - {"__main__"}
# Nothing that a forward computes depends on these.
_HARMLESS = (
    types.ModuleType,
    types.BuiltinFunctionType,
    logging.Logger,
    logging.LoggerAdapter,
    type(threading.Lock()),
    type(threading.RLock()),
)
# A configuration has fewer; a data set must not be walked at every call.
_MOST_ITEMS = 20_000
_DEEPEST = 120  # Python's own limit leaves room for this


def of_a_library(kind: type | types.FunctionType) -> bool:
    """Whether a class or function comes with Paddle, NumPy, Python or dysens: its code does not change."""
    return str(kind.__module__).partition(".")[0] in LIBRARIES


class _Itself:
    """An object that can only be told from others. It is kept, so that no other one can have its address."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.value is other.value

    __hash__ = None  # type: ignore[assignment]


CONSTANT = "__never_changes__"
"""A class that says this of its objects spares everybody from looking into them: the operations of an imported program."""


def frozen(value: Any, watched: frozenset[int] = frozenset()) -> Any:
    """What a value holds now.

    Args:
        value: Anything.
        watched: The ids of layers whose attributes somebody else looks at.
    """
    kind = type(value)
    if isinstance(value, PLAIN):
        return kind, value
    if (kind is list or kind is tuple) and all(isinstance(each, PLAIN) for each in value):
        return kind, [*value], [*map(type, value)]
    if kind is types.FunctionType and _is_code_alone(value):
        return kind, value.__code__
    return _Freezer(watched).freeze(value)


def _is_code_alone(function: types.FunctionType) -> bool:
    settings = function.__defaults__ or function.__kwdefaults__ or function.__dict__
    return not settings and function.__code__.co_freevars in ((), ("__class__",))


def why_unreadable(value: Any, watched: frozenset[int] = frozenset()) -> str:
    """What in a value cannot be seen into, as a noun; empty if all of it can."""
    freezer = _Freezer(watched)
    freezer.freeze(value)
    return freezer.unreadable


def tensors_in(value: Any, watched: frozenset[int] = frozenset()) -> list[paddle.Tensor]:
    """The tensors that a value holds, wherever inside."""
    freezer = _Freezer(watched)
    freezer.freeze(value)
    return freezer.tensors


class _Freezer:
    """Reads one value."""

    def __init__(self, watched: frozenset[int]) -> None:
        self.unreadable = ""
        self.tensors: list[paddle.Tensor] = []
        self._watched = watched
        self._left = _MOST_ITEMS
        self._open: dict[int, int] = {}

    def freeze(self, value: Any) -> Any:
        """The value in a form that can be compared; what is met again inside of itself, by how far up it was."""
        self._left -= 1
        kind = type(value)
        if isinstance(value, PLAIN):
            return kind, value
        if id(value) in self._open:
            return "again", len(self._open) - self._open[id(value)]
        if self._left < 0:
            self.unreadable = self.unreadable or f"more than {_MOST_ITEMS} values"
            return _Itself(value)
        if len(self._open) > _DEEPEST:
            self.unreadable = self.unreadable or "deeply nested values"
            return _Itself(value)
        self._open[id(value)] = len(self._open)
        try:
            return kind, self._inside(value)
        finally:
            del self._open[id(value)]

    def _all(self, values: Any) -> list[Any]:
        return [self.freeze(each) for each in values]

    def _inside(self, value: Any) -> Any:
        if isinstance(value, (paddle.Tensor, np.ndarray)):
            return self._array(value)
        if isinstance(value, paddle.nn.Layer):
            return None if id(value) in self._watched else self._layer(value)
        if isinstance(value, (dict, types.MappingProxyType)):
            return [self._all(item) for item in value.items()], self._attributes(value)
        if isinstance(value, (list, tuple, deque)):
            return self._all(value), self._attributes(value)
        if isinstance(value, (set, frozenset)):
            return sorted(map(repr, value)), self._attributes(value)
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
        if isinstance(value, _HARMLESS) or vars(type(value)).get(CONSTANT):
            return _Itself(value)
        return self._function(value) or self._object(value)

    def _function(self, value: Any) -> Any:
        if isinstance(value, functools.partial):
            return self._all((value.func, value.args, value.keywords))
        if isinstance(value, types.MethodType):
            return self._all((value.__func__, value.__self__))
        if isinstance(value, types.FunctionType):
            cells = self._all(cell.cell_contents for cell in value.__closure__ or () if is_full(cell))
            return value.__code__, cells, self._all((value.__defaults__, value.__kwdefaults__, vars(value)))
        if isinstance(value, weakref.ReferenceType):
            return self._all([value()])
        if isinstance(value, ContextVar):
            return self._all([value.get(None)])
        return None

    def _object(self, value: Any) -> Any:
        kind = type(value)
        if isinstance(value, type):
            return _Itself(value) if of_a_library(value) else self._classes(value)
        if str(kind.__module__).partition(".")[0] == "paddle":
            return _Itself(value)
        known = hasattr(value, "__dict__") or not of_a_library(kind)
        attributes = self._attributes(value), None if of_a_library(kind) else self._classes(kind)
        if known and kind.__reduce__ is object.__reduce__:
            return attributes
        try:
            # Numbers, dates, iterators and generators of random numbers say what they are made from.
            _, *state = value.__reduce_ex__(4)
        except Exception:  # whatever it is that cannot be taken apart
            if not known and not attributes[0]:
                self.unreadable = self.unreadable or f"a {kind.__name__}"
                return _Itself(value)
            state = []
        return attributes, self._all(list(each) if isinstance(each, Iterator) else each for each in state)

    def _attributes(self, value: Any) -> list[Any]:
        """What an object has in attributes, those in slots included."""
        if type(value) in (dict, list, tuple, set, frozenset):
            return []
        slots = [
            name
            for kind in type(value).__mro__
            for name in _slots(kind)
            if name not in ("__dict__", "__weakref__") and hasattr(value, name)
        ]
        found = [(name, getattr(value, name)) for name in slots]
        return [(name, self.freeze(each)) for name, each in (*found, *getattr(value, "__dict__", {}).items())]

    def _classes(self, kind: type) -> list[Any]:
        """The settings that a class and its own bases have; their code is told by identity."""
        return [
            (name, _Itself(each) if callable(each) or hasattr(each, "__get__") else self.freeze(each))
            for base in kind.__mro__
            if not of_a_library(base)
            for name, each in vars(base).items()
            if not name.startswith("__")
        ]

    def _layer(self, layer: paddle.nn.Layer) -> Any:
        """A layer that is no sublayer of the model: all of it."""
        held = {name: each for name, each in vars(layer).items() if name not in PADDLES_OWN}
        tensors = {**layer._parameters, **layer._buffers, **layer._sub_layers}
        return self._all((held, tensors, layer.training))

    def _array(self, value: Any) -> Any:
        if isinstance(value, paddle.Tensor):
            self.tensors.append(value)
            if not has_storage(value):
                return _Itself(value)
            value = value.astype("float32").numpy() if value.dtype == paddle.bfloat16 else value.numpy()
        if value.dtype.hasobject:
            return value.shape, self._all(value.reshape(-1).tolist())
        return value.shape, str(value.dtype), value.tobytes()


def _slots(kind: type) -> list[str]:
    """The attributes that a class has places for, as they are called from outside."""
    listed = kind.__dict__.get("__slots__", ())
    names = (listed,) if isinstance(listed, str) else tuple(listed)
    hidden = f"_{kind.__name__.lstrip('_')}"
    return [hidden + name if name.startswith("__") and not name.endswith("__") else name for name in names]


def is_full(cell: Any) -> bool:
    """Whether a variable of an enclosing function has a value yet."""
    try:
        cell.cell_contents  # noqa: B018  asking is the only way to know
    except ValueError:
        return False
    return True
