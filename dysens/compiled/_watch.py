"""What a compiled copy depends on: weights, and the plain state of layers that a forward may read."""

from __future__ import annotations

import ctypes
import functools
import sys
import types
from collections.abc import Iterator, Mapping, Set
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import paddle

from dysens.model import has_storage

MemoryRange = tuple[int, int]  # address and size of a tensor's memory


class WeightWatch:
    """Remembers the weights and statistics of a model on the CPU, byte for byte.

    Neither the address nor Paddle's count of writes tells: ``set_value`` and optimizers change neither.

    Args:
        model: The live layer.
    """

    def __init__(self, model: paddle.nn.Layer) -> None:
        self._model = model
        self._places = self._where()
        self._contents = {place: _contents(place) for place in self._places.values()}

    def changed(self, ignored: Set[tuple[int, str]] = frozenset()) -> bool:
        """Whether a tensor was replaced, moved or written to since.

        Args:
            ignored: Tensors that do not count, by the id of their layer and their name in it.
        """
        before, now = (
            {k: p for k, p in places.items() if k not in ignored} for places in (self._places, self._where())
        )
        return before != now or any(_contents(place) != self._contents[place] for place in set(now.values()))

    def _where(self) -> dict[tuple[int, str], MemoryRange]:
        """Where each tensor of each layer is."""
        return {
            (id(layer), name): (tensor.value().get_tensor()._ptr(), int(tensor.size) * tensor.element_size())
            for layer in self._model.sublayers(include_self=True)
            for registry in (layer._parameters, layer._buffers)
            for name, tensor in registry.items()
            if isinstance(tensor, paddle.Tensor) and has_storage(tensor)
        }


def _contents(place: MemoryRange) -> bytes:
    return ctypes.string_at(*place)


# What Paddle keeps in every layer: looked at elsewhere (tensors, layers, hooks, mode), or without a part in the forward.
_PADDLES_OWN = frozenset(
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
        *("_param_attr", "_bias_attr", "training", "forward", "_dysens_plans"),
    )
)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, Enum, np.generic, paddle.dtype)
# Objects in attributes of objects: a configuration has few levels, and a data set must not be walked.
_MOST_LEVELS = 4
_MOST_ITEMS = 2000
_LIBRARIES = frozenset(("paddle", "numpy", "dysens", "builtins", *sys.stdlib_module_names)) - {"__main__"}

State = Mapping[str, Any]


class Place(NamedTuple):
    """Where a plain value is.

    Attributes:
        path: The path of its layer, or what else has it.
        name: The name of the attribute.
        layer: The id of the layer; None if it is no attribute of a layer.
    """

    path: str
    name: str
    layer: int | None

    def __str__(self) -> str:
        return f'"{".".join(part for part in (self.path, self.name) if part)}"'


class _Read(NamedTuple):
    """What a layer holds."""

    layer: int
    values: dict[str, Any]


class _Seen(NamedTuple):
    """The attributes of a layer, as they were read last."""

    layer: paddle.nn.Layer
    names: list[str]
    values: list[Any]
    plain: dict[str, Any]
    containers: list[str]


class AttributeWatch:
    """Reads the plain state of a model.

    Args:
        model: The live layer.

    Attributes:
        ignored: Attributes, by layer and name, that the forward writes before it reads them.
    """

    def __init__(self, model: paddle.nn.Layer) -> None:
        self.ignored: set[tuple[int, str]] = set()
        self._model = model
        self._seen: dict[int, _Seen] = {}
        self._beside = list(_beside(model))

    def state(self) -> State:
        """What there is now, by layer path; it stays as it is when the model changes."""
        found: dict[str, Any] = {}
        for path, layer in self._model.named_sublayers(include_self=True):
            own = layer.__dict__
            seen = self._seen.get(id(layer))
            # Identity tells at the speed of C that nothing was assigned; only what can change inside is read again.
            if (
                seen is None
                or seen.names != list(own)
                or list(map(id, seen.values)) != list(map(id, own.values()))
            ):
                seen = self._seen[id(layer)] = self._read(layer)
            inside = {name: _frozen(own[name]) for name in seen.containers}
            found[path] = _Read(id(layer), {**seen.plain, **inside})
        found.update({place: _frozen(owner.get(name)) for place, owner, name in self._beside})
        tracer = paddle.base.framework._dygraph_tracer()
        found["auto_cast"] = str(tracer._amp_level), str(tracer._amp_dtype), paddle.get_default_dtype()
        return found

    def _read(self, layer: paddle.nn.Layer) -> _Seen:
        own = layer.__dict__
        names = [name for name in own if name not in _PADDLES_OWN and (id(layer), name) not in self.ignored]
        containers = [name for name in names if not isinstance(own[name], _PLAIN)]
        plain = {name: _frozen(own[name]) for name in names if isinstance(own[name], _PLAIN)}
        return _Seen(layer, list(own), list(own.values()), plain, containers)

    def changed(self, before: State, after: State) -> list[Place]:
        """Where two states differ, what is ignored left out."""
        places = []
        for path in {**before, **after}:
            old, new = before.get(path), after.get(path)
            if old == new:
                continue
            if not isinstance(old, _Read) or not isinstance(new, _Read):
                places.append(Place(path, "", None))
            elif old.layer != new.layer:
                places.append(Place(path, "its class", None))
            else:
                names = {**old.values, **new.values}
                differing = [name for name in names if old.values.get(name) != new.values.get(name)]
                places += [
                    Place(path, name, new.layer)
                    for name in differing
                    if (new.layer, name) not in self.ignored
                ]
        return places

    def held(self, layer: int, name: str) -> Any:
        """What an attribute of a layer, by its id, holds now."""
        return _frozen(self._seen[layer].layer.__dict__.get(name))


def _frozen(value: Any) -> Any:
    """What a value holds now, in a form that can be compared; other objects stand for themselves."""
    kind = type(value)
    if isinstance(value, _PLAIN):
        return kind, value
    if (kind is list or kind is tuple) and all(isinstance(each, _PLAIN) for each in value):
        return kind, [*value], [*map(type, value)]
    return _Freezer().freeze(value, _MOST_LEVELS)


class _Freezer:
    """Reads one value, and gives up on what is too large for a setting."""

    def __init__(self) -> None:
        self._left = _MOST_ITEMS
        self._open: set[int] = set()

    def freeze(self, value: Any, levels: int) -> Any:
        """The value, down to so many levels."""
        self._left -= 1
        if isinstance(value, _PLAIN):
            return type(value), value
        if isinstance(value, (paddle.Tensor, np.ndarray)):
            return _bytes(value)
        if id(value) in self._open or levels == 0 or self._left < 0:
            return id(value)
        self._open.add(id(value))
        try:
            return id(value), type(value), self._inside(value, levels - 1)
        finally:
            self._open.discard(id(value))

    def _inside(self, value: Any, levels: int) -> Any:
        if isinstance(value, (paddle.nn.Layer, type, types.ModuleType)):
            return None
        if isinstance(value, dict):
            return [(self.freeze(key, levels), self.freeze(each, levels)) for key, each in value.items()]
        if isinstance(value, (list, tuple)):
            return [self.freeze(each, levels) for each in value]
        if isinstance(value, (set, frozenset)):
            return sorted(repr(each) for each in value)
        if isinstance(value, functools.partial):
            return [self.freeze(each, levels) for each in (value.func, value.args, value.keywords)]
        if isinstance(value, types.MethodType):
            return self.freeze(value.__func__, levels)
        if isinstance(value, types.FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or () if _is_full(cell)]
            return [self.freeze(each, levels) for each in (*cells, *(value.__defaults__ or ()))]
        if type(value).__module__.partition(".")[0] in _LIBRARIES:
            return None
        return self._inside(vars(value), levels) if hasattr(value, "__dict__") else None


def _bytes(value: Any) -> Any:
    if isinstance(value, paddle.Tensor):
        if not has_storage(value):
            return id(value)
        value = value.astype("float32").numpy() if value.dtype == paddle.bfloat16 else value.numpy()
    return value.shape, str(value.dtype), value.tobytes() if value.dtype != object else id(value)


def _is_full(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  asking is the only way to know
    except ValueError:
        return False
    return True


def _beside(model: paddle.nn.Layer) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Plain values outside of layers that their code names: of their classes, and of modules. Where, whose, and the name."""
    done: set[int] = set()
    kinds = {kind: None for layer in model.sublayers(include_self=True) for kind in type(layer).__mro__}
    for kind in kinds:
        if kind.__module__.partition(".")[0] in _LIBRARIES:
            continue
        for name, value in vars(kind).items():
            if isinstance(value, types.FunctionType):
                yield from _named(value, done)
            elif not name.startswith("__"):
                yield f"{kind.__name__}.{name}", vars(kind), name


def _named(function: types.FunctionType, done: set[int]) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """The module-level values that a function names, and those of the functions that it names."""
    if id(function) in done:
        return
    done.add(id(function))
    module, names = function.__globals__, _names(function.__code__)
    for name in names & module.keys():
        value = module[name]
        kind = value if isinstance(value, type) else type(value)
        if isinstance(value, types.FunctionType):
            if (value.__module__ or "").partition(".")[0] not in _LIBRARIES:
                yield from _named(value, done)
        elif isinstance(value, types.ModuleType):
            if value.__name__.partition(".")[0] not in _LIBRARIES:
                yield from ((f"{name}.{each}", vars(value), each) for each in names & vars(value).keys())
        elif isinstance(value, _PLAIN) or kind.__module__.partition(".")[0] not in _LIBRARIES - {"builtins"}:
            yield f"{module.get('__name__')}.{name}", module, name


def _names(code: types.CodeType) -> set[str]:
    """What a function names, functions inside of it included."""
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))
