"""What a compiled copy depends on: weights, and the plain state of layers that a forward may read."""

from __future__ import annotations

import ctypes
import os
import sys
import types
from collections.abc import Mapping, Sequence, Set
from typing import Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary

import paddle

from dysens.compiled._freeze import (
    LIBRARIES,
    PADDLES_OWN,
    PLAIN,
    frozen,
    is_full,
    of_a_library,
    tensors_in,
    why_unreadable,
)
from dysens.model import has_storage

MemoryRange = tuple[int, int]  # address and size of a tensor's memory
_AT_ONCE = 1 << 24  # bytes that are compared at a time, as each comparison copies them


class WeightWatch:
    """Remembers the weights and statistics of a model on the CPU, byte for byte.

    Neither the address nor Paddle's count of writes tells: ``set_value`` and optimizers change neither. Several watches of
    one model hold its weights once between them, as long as nobody writes to them.

    Args:
        model: The live layer.
    """

    def __init__(self, model: paddle.nn.Layer) -> None:
        self._model = model
        self._places = self._where()
        self._contents = {place: _Contents.of(place) for place in self._places.values()}

    def changed(self, ignored: Set[tuple[int, str]] = frozenset()) -> bool:
        """Whether a tensor was replaced, moved or written to since.

        Args:
            ignored: Tensors that do not count, by the id of their layer and their name in it.
        """
        before, now = (
            {k: p for k, p in places.items() if k not in ignored} for places in (self._places, self._where())
        )
        return before != now or any(self._contents[place].changed() for place in set(now.values()))

    def _where(self) -> dict[tuple[int, str], MemoryRange]:
        """Where each tensor of each layer is."""
        return {
            (id(layer), name): (tensor.value().get_tensor()._ptr(), int(tensor.size) * tensor.element_size())
            for layer in self._model.sublayers(include_self=True)
            for registry in (layer._parameters, layer._buffers)
            for name, tensor in registry.items()
            if isinstance(tensor, paddle.Tensor) and has_storage(tensor)
        }


class _Contents:
    """The bytes that a range of memory held when it was looked at, in pieces.

    Args:
        place: Where they were.
    """

    # Those that somebody still remembers: a recogniser has 74 MB of weights, and four watches look at them at a time.
    _shared: ClassVar[WeakValueDictionary[MemoryRange, _Contents]] = WeakValueDictionary()

    def __init__(self, place: MemoryRange) -> None:
        address, size = place
        starts = range(address, address + size, _AT_ONCE)
        self._pieces = [
            (start, ctypes.string_at(start, min(_AT_ONCE, address + size - start))) for start in starts
        ]

    @classmethod
    def of(cls, place: MemoryRange) -> _Contents:
        """What is there now: somebody else's, if it is still the same."""
        known = cls._shared.get(place)
        if known is None or known.changed():
            known = cls._shared[place] = cls(place)
        return known

    def changed(self) -> bool:
        """Whether something else is there now. The memory must still be somebody's."""
        return any(ctypes.string_at(start, len(piece)) != piece for start, piece in self._pieces)


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
        self._named = _names_of(model, wide=False)
        self._far: _Names | None = None

    def follow(self, code: Mapping[types.CodeType, dict[str, Any]]) -> bool:
        """Watch what code names that was seen to run, too.

        Args:
            code: The code, with the names that its module has.

        Returns:
            Whether there was anything new to watch.
        """
        before = len(self._named.found)
        for each, module in code.items():
            self._named.ran(each, module)
        return len(self._named.found) > before

    def state(
        self, whole: bool = False, layers: Sequence[tuple[str, paddle.nn.Layer]] = (), far: bool = False
    ) -> State:
        """What there is now, by layer path; it stays as it is when the model changes.

        Args:
            whole: Look into what nobody reads, too.
            far: Look at what all code names that the layers' code could call, whether it was seen to run or not.
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
        named = self._all_named() if far else self._named.found
        found.update({place: frozen(owner.get(name), watched) for place, owner, name in named})
        tracer = paddle.base.framework._dygraph_tracer()
        found["auto_cast"] = str(tracer._amp_level), str(tracer._amp_dtype), paddle.get_default_dtype()
        if self._named.environment:
            found["os.environ"] = dict(os.environ)
        return found

    def tensors(self, apart_from: Set[tuple[int, str]] = frozenset()) -> dict[str, list[paddle.Tensor]]:
        """The tensors that are kept neither as parameters nor as buffers, by where they are; some attributes may be left out."""
        layers = list(self._model.named_sublayers(include_self=True))
        watched = frozenset(id(layer) for _, layer in layers)
        found = {
            str(Place(path, name, None)): tensors_in(value, watched)
            for path, layer in layers
            for name, value in layer.__dict__.items()
            if name not in PADDLES_OWN and name != "forward" and not isinstance(value, PLAIN)
            if (id(layer), name) not in apart_from
        }
        found.update(
            {f'"{place}"': tensors_in(owner.get(name), watched) for place, owner, name in self._named.found}
        )
        return {place: tensors for place, tensors in found.items() if tensors}

    def _all_named(self) -> list[_Beside]:
        self._far = self._far or _names_of(self._model, wide=True)
        return [*self._named.found, *self._far.found]

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
            old, new = before.get(path, _UNREAD), after.get(path, _UNREAD)
            # What was not watched yet, nothing that was seen to run had named.
            if old is _UNREAD or new is _UNREAD or old == new:
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


class ModelWatch:
    """Remembers weights, modes and plain state of a model together.

    Args:
        model: The live layer.
        attributes: Reads its plain state.
        far: See `AttributeWatch.state`.
    """

    def __init__(self, model: paddle.nn.Layer, attributes: AttributeWatch, far: bool) -> None:
        self._model = model
        self._attributes = attributes
        self._far = far
        self._weights = WeightWatch(model)
        self._state = attributes.state(whole=True, far=far)
        self._training = self._modes()

    def changed(self) -> bool:
        """Whether anything is different now."""
        return (
            self._training != self._modes()
            or bool(self._attributes.changed(self._state, self._attributes.state(whole=True, far=self._far)))
            or self._weights.changed()
        )

    def _modes(self) -> list[bool]:
        return [layer.training for layer in self._model.sublayers(include_self=True)]


_Beside = tuple[str, Mapping[str, Any], str]  # where, whose, and the name


def _names_of(model: paddle.nn.Layer, wide: bool) -> _Names:
    found = _Names(wide)
    for layer in model.sublayers(include_self=True):
        found.classes(type(layer))
        for value in vars(layer).values():
            found.value(value)
    return found


class _Names:
    """Follows the names in code to values outside of layers: of their classes, and of modules.

    Args:
        wide: Whether functions that are taken from a module are followed, too.

    Attributes:
        found: Those values.
        environment: Whether some code asks for the environment.
    """

    def __init__(self, wide: bool) -> None:
        self.found: list[_Beside] = []
        self.environment = False
        self._wide = wide
        self._done: dict[int, Any] = {}  # kept, so that nothing else can have its address
        self._places: set[tuple[int, str]] = set()

    def value(self, value: Any) -> None:
        """Look at the code of a function or of an object's class."""
        if isinstance(value, types.MethodType):
            value = value.__func__
        if isinstance(value, types.FunctionType):
            self._function(value)
        else:
            self.classes(value if isinstance(value, type) else type(value))

    def classes(self, kind: type) -> None:
        """Look at what a class and its bases have, and at the code in it."""
        for base in kind.__mro__:
            if of_a_library(base) or not self._first_time(base):
                continue
            for name, value in vars(base).items():
                if not name.startswith("__") or isinstance(value, types.FunctionType):
                    self.found.append((f"{base.__name__}.{name}", vars(base), name))
                self.value(getattr(value, "fget", None) or getattr(value, "__func__", value))

    def ran(self, code: types.CodeType, module: dict[str, Any]) -> None:
        """Look at what code names that was seen to run. What it calls was seen, too, and need not be followed."""
        if self._first_time(code):
            self._named_by(code, module, follow=False)

    def _function(self, function: types.FunctionType) -> None:
        if of_a_library(function) or not self._first_time(function):
            return
        for cell in function.__closure__ or ():
            if is_full(cell):
                self.value(cell.cell_contents)
        self._named_by(function.__code__, function.__globals__, follow=True)

    def _named_by(self, code: types.CodeType, module: dict[str, Any], follow: bool) -> None:
        names = _names(code)
        self.environment = self.environment or not names.isdisjoint(("environ", "getenv"))
        self._module(module, names, follow, ())
        if not follow or self._wide:
            for name in names & sys.modules.keys() - module.keys():
                self._loaded(sys.modules[name], names, follow, ())

    def _module(self, module: dict[str, Any], names: set[str], follow: bool, above: tuple[int, ...]) -> None:
        title, above = module.get("__name__"), (*above, id(module))
        for name in names & module.keys():
            value = module[name]
            if isinstance(value, types.ModuleType):
                self._loaded(value, names, follow and self._wide, above)
            elif not (isinstance(value, (type, types.FunctionType)) and of_a_library(value)):
                if (id(module), name) not in self._places:
                    self._places.add((id(module), name))
                    self.found.append((f"{title}.{name}", module, name))
                if follow:
                    self.value(value)

    def _loaded(
        self, module: types.ModuleType, names: set[str], follow: bool, above: tuple[int, ...]
    ) -> None:
        """Look at what code takes from a module that it imported; modules may import each other."""
        if module.__name__.partition(".")[0] not in LIBRARIES and id(vars(module)) not in above:
            self._module(vars(module), names, follow, above)

    def _first_time(self, what: Any) -> bool:
        known = id(what) in self._done
        self._done[id(what)] = what
        return not known


def _names(code: types.CodeType) -> set[str]:
    """What a function names, also by strings as for `getattr`; functions inside of it included."""
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    texts = {constant for constant in code.co_consts if isinstance(constant, str) and constant.isidentifier()}
    return texts.union(code.co_names, *map(_names, inner))
