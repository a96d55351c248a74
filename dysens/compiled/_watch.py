"""What a compiled copy depends on: weights, and the plain state of layers that a forward may read."""

from __future__ import annotations

import ctypes
import os
import types
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

import paddle

from dysens.compiled._freeze import (
    LIBRARIES,
    PADDLES_OWN,
    PLAIN,
    frozen,
    is_full,
    of_a_library,
    why_unreadable,
)
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


# What nobody has read in a forward may hold anything.
_UNREAD = object()


class AttributeWatch:
    """Reads the plain state of a model.

    Containers and objects are looked into only where a forward was seen to read them: that takes time, and others do not count.

    Args:
        model: The live layer.

    Attributes:
        ignored: Attributes, by layer and name, that the forward writes before it reads them.
        read: Attributes, by layer and name, that some forward reads; ``"__dict__"`` stands for all of a layer.
    """

    def __init__(self, model: paddle.nn.Layer) -> None:
        self.ignored: set[tuple[int, str]] = set()
        self.read: set[tuple[int, str]] = set()
        self._model = model
        self._seen: dict[int, _Seen] = {}
        self._beside, self._asks_environment = _beside(model)

    def state(self, whole: bool = False, layers: Sequence[tuple[str, paddle.nn.Layer]] = ()) -> State:
        """What there is now, by layer path; it stays as it is when the model changes.

        Args:
            whole: Look into what nobody reads, too.
            layers: The model's layers, from whoever has just listed them: that takes as long as the rest.
        """
        found: dict[str, Any] = {}
        layers = layers or list(self._model.named_sublayers(include_self=True))
        watched = frozenset(id(layer) for _, layer in layers)
        for path, layer in layers:
            own = layer.__dict__
            seen = self._seen.get(id(layer))
            # Identity tells at the speed of C that nothing was assigned; only what can change inside is read again.
            if (
                seen is None
                or seen.names != list(own)
                or list(map(id, seen.values)) != list(map(id, own.values()))
            ):
                seen = self._seen[id(layer)] = self._look_at(layer)
            inside = {
                name: frozen(own[name], watched) if whole or self._is_read(id(layer), name) else _UNREAD
                for name in seen.containers
            }
            found[path] = _Read(id(layer), {**seen.plain, **inside})
        found.update({place: frozen(owner.get(name), watched) for place, owner, name in self._beside})
        tracer = paddle.base.framework._dygraph_tracer()
        found["auto_cast"] = str(tracer._amp_level), str(tracer._amp_dtype), paddle.get_default_dtype()
        if self._asks_environment:
            found["os.environ"] = dict(os.environ)
        return found

    def _is_read(self, layer: int, name: str) -> bool:
        return (layer, name) in self.read or (layer, "__dict__") in self.read

    def _look_at(self, layer: paddle.nn.Layer) -> _Seen:
        own = layer.__dict__
        # The forward of the model itself is what stands in for it now.
        out = PADDLES_OWN | {"forward"} if layer is self._model else PADDLES_OWN
        names = [name for name in own if name not in out and (id(layer), name) not in self.ignored]
        containers = [name for name in names if not isinstance(own[name], PLAIN)]
        plain = {name: frozen(own[name]) for name in names if isinstance(own[name], PLAIN)}
        return _Seen(layer, list(own), list(own.values()), plain, containers)

    def why_unreadable(self) -> str:
        """What a forward reads and nobody can look into, as a clause; empty if there is nothing of the kind."""
        watched = frozenset(map(id, self._model.sublayers(include_self=True)))
        for path, layer in self._model.named_sublayers(include_self=True):
            for name in self._look_at(layer).containers:
                what = why_unreadable(layer.__dict__[name], watched) if self._is_read(id(layer), name) else ""
                if what:
                    return f"its forward reads {Place(path, name, id(layer))}, which holds {what} and cannot be watched"
        return ""

    def changed(self, before: State, after: State) -> list[Place]:
        """Where two states differ, what is ignored or was not read left out."""
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
                pairs = {name: (old.values.get(name), new.values.get(name)) for name in names}
                places += [
                    Place(path, name, new.layer)
                    for name, pair in pairs.items()
                    if _UNREAD not in pair and pair[0] != pair[1] and (new.layer, name) not in self.ignored
                ]
        return places

    def held(self, layer: int, name: str) -> Any:
        """What an attribute of a layer, by its id, holds now."""
        return frozen(self._seen[layer].layer.__dict__.get(name))


_Beside = tuple[str, Mapping[str, Any], str]  # where, whose, and the name


def _beside(model: paddle.nn.Layer) -> tuple[list[_Beside], bool]:
    """Values outside of layers that their code names: of their classes, and of modules; and whether it asks the environment."""
    search = _Search()
    for layer in model.sublayers(include_self=True):
        search.classes(type(layer))
        for value in vars(layer).values():
            search.value(value)
    return search.found, search.asks_environment


class _Search:
    """Follows the names in code to what they stand for."""

    def __init__(self) -> None:
        self.found: list[_Beside] = []
        self.asks_environment = False
        self._done: set[int] = set()

    def value(self, value: Any) -> None:
        """Look at the code of a function or of an object's class."""
        if isinstance(value, types.MethodType):
            value = value.__func__
        if isinstance(value, types.FunctionType):
            self.function(value)
        else:
            self.classes(value if isinstance(value, type) else type(value))

    def classes(self, kind: type) -> None:
        """Look at what a class and its bases have, and at the code in it."""
        for base in kind.__mro__:
            if of_a_library(base) or id(base) in self._done:
                continue
            self._done.add(id(base))
            for name, value in vars(base).items():
                if not name.startswith("__") or isinstance(value, types.FunctionType):
                    self.found.append((f"{base.__name__}.{name}", vars(base), name))
                self.value(getattr(value, "fget", None) or getattr(value, "__func__", value))

    def function(self, function: types.FunctionType) -> None:
        """Look at the module-level values that a function names, and at the code of the functions among them."""
        if id(function) in self._done or of_a_library(function):
            return
        self._done.add(id(function))
        module, names = function.__globals__, _names(function.__code__)
        self.asks_environment = self.asks_environment or not names.isdisjoint(("environ", "getenv"))
        for cell in function.__closure__ or ():
            if is_full(cell):
                self.value(cell.cell_contents)
        for name in names & module.keys():
            value = module[name]
            if isinstance(value, types.ModuleType):
                if value.__name__.partition(".")[0] not in LIBRARIES:
                    self.found += [(f"{name}.{e}", vars(value), e) for e in names & vars(value).keys()]
            elif not (isinstance(value, (type, types.FunctionType)) and of_a_library(value)):
                self.found.append((f"{module.get('__name__')}.{name}", module, name))
                self.value(value)


def _names(code: types.CodeType) -> set[str]:
    """What a function names, functions inside of it included."""
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))
