"""Touching a live model, and leaving it exactly as it was found.

Every change that dysens makes to a model (a patched forward, a masked or cut weight, another mode) happens inside
`preserved`. It remembers weights by reference: a tensor that is masked or cut gets other storage, its own is put aside
untouched. What a forward itself may write in place (running statistics, the vectors of spectral norm, counters, caches) is
copied, and written back where it has changed. So restoring is bit-exact, whatever happened in between.
"""

from __future__ import annotations

import hashlib
import sys
from argparse import Namespace
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass
from types import SimpleNamespace, TracebackType
from typing import Any, Generic, TypeVar

import numpy as np
import paddle
from paddle import nn
from paddle.base import unique_name

from dysens.model._interrupts import WATCH


def fingerprint(model: paddle.nn.Layer) -> str:
    """A hash over the structured names, shapes and values of all parameters and persistent buffers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        values = tensor.astype("float32") if tensor.dtype in (paddle.bfloat16, paddle.float16) else tensor
        digest.update(f"{name}{list(tensor.shape)}{tensor.dtype}".encode())
        digest.update(_values_of(values).reshape(-1).view("u1").data)
    return digest.hexdigest()[:16]


def tensor_path(path: str, name: str) -> str:
    """The path of a layer's tensor."""
    return f"{path}.{name}" if path else name


def tensors_by_path(model: nn.Layer) -> dict[str, paddle.Tensor]:
    """Every parameter and buffer under the path that `Slice.tensor` uses; a tied tensor appears under each of its paths."""
    found: dict[str, paddle.Tensor] = {}
    for path, layer in model.named_sublayers(include_self=True):
        for registry in (layer._parameters, layer._buffers):
            for name, tensor in registry.items():
                if isinstance(tensor, paddle.Tensor):
                    found[tensor_path(path, name)] = tensor
    return found


Value = TypeVar("Value")

# Dropout passes everything on while forwards are compared, or no two of them would agree. Layers call these functions too.
DROPOUT_FUNCTIONS = tuple(
    name
    for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
    if hasattr(nn.functional, name)  # not all are in Paddle 2.6
)

# The registries of a paddle.nn.Layer that are dictionaries: their contents must be remembered, not only the dictionary.
_REGISTRIES = (
    "_parameters",
    "_buffers",
    "_sub_layers",
    "_forward_pre_hooks",
    "_forward_post_hooks",
    "_state_dict_hooks",
    "_non_persistable_buffer_names_set",
)

# Attributes in which a forward may collect things (outputs of the last call, a memory bank).
_CONTAINERS = {list, dict, set, deque, OrderedDict}
_PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes))
# Settings have fewer and smaller ones; data that a layer refers to are left alone.
_MOST_CONTAINERS, _LARGEST_ARRAY = 2000, 1_000_000
# Bytes that are compared at a time.
_AT_ONCE = 1 << 24


def swap_storage(tensor: paddle.Tensor, new: paddle.Tensor) -> None:
    """Let ``tensor`` (the same object, the same name) hold the data and the shape of ``new``."""
    new._share_underline_tensor_to(tensor)


def storage_of(tensor: paddle.Tensor) -> paddle.Tensor:
    """A second handle on the data that ``tensor`` holds now; it keeps them when ``tensor`` is given others."""
    return tensor.detach()


def has_storage(tensor: paddle.Tensor) -> bool:
    """Whether there is memory behind the shape; the dropout state of an LSTM has none until it is trained."""
    return bool(tensor._is_initialized())


class TensorState:
    """What one tensor holds: its storage and, where asked, its gradient.

    Args:
        tensor: The tensor.
        gradient: Whether its gradient comes back too.
        copied: Whether the values come back even where somebody writes into the storage itself.
    """

    def __init__(self, tensor: paddle.Tensor, gradient: bool = False, copied: bool = False) -> None:
        self._tensor = tensor
        self._storage = storage_of(tensor) if has_storage(tensor) else None
        self._copy = self._storage.clone() if copied and self._storage is not None else None
        # Unlike storage, a gradient is overwritten in place by whoever sets the next one: only a copy keeps it.
        self._keeps_gradient = gradient
        self._gradient = tensor.grad.clone() if gradient and tensor.grad is not None else None

    @property
    def written(self) -> bool:
        """Whether the storage has been written to since; known only for a copied state."""
        return (
            self._storage is not None
            and self._copy is not None
            and not _same_bytes(self._storage, self._copy)
        )

    def restore(self) -> None:
        """Give the tensor what it held."""
        if self._storage is not None:
            if self.written:
                self._storage.set_value(self._copy)  # in place: others may hold the same storage
            swap_storage(self._tensor, self._storage)
        elif has_storage(self._tensor):
            self._tensor._clear_data()
        if self._gradient is not None:
            self._tensor.grad = self._gradient.clone()
        elif self._keeps_gradient and self._tensor.grad is not None:
            self._tensor.clear_gradient(False)  # Paddle overlooks the argument if it is named


def _same_bytes(one: paddle.Tensor, other: paddle.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    a, b = (_values_of(tensor).reshape(-1).view("u1") for tensor in (one, other))
    # Piece by piece, as each comparison makes an array of its own.
    return all(
        np.array_equal(a[start : start + _AT_ONCE], b[start : start + _AT_ONCE])
        for start in range(0, a.size, _AT_ONCE)
    )


class _InPlace:
    """A tensor as NumPy's DLPack protocol wants it; Paddle 2.6 has only the function."""

    def __init__(self, tensor: paddle.Tensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, **unused: Any) -> Any:
        return paddle.utils.dlpack.to_dlpack(self._tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the processor


def _values_of(tensor: paddle.Tensor) -> np.ndarray:
    """What a tensor holds, only to look at: without a copy where it is in reach and of a type that NumPy has.

    `Tensor.numpy` copies, and for a part of a tensor it copies all of it.
    """
    in_reach = tensor.place.is_cpu_place() and tensor.dtype in (paddle.float32, paddle.float64, paddle.int64)
    if not in_reach or not tensor.size or not tensor.is_contiguous():
        return np.asarray(tensor.numpy())
    return np.from_dlpack(_InPlace(tensor))


class LayerState:
    """The attributes and registries of one layer (or other object), by reference, and what plain containers in them hold."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self._attributes = dict(layer.__dict__)
        self._contents: dict[int, tuple[Any, Any]] = {}
        for name, value in self._attributes.items():
            if name in _REGISTRIES:
                self._contents[id(value)] = value, value.copy()
            elif type(value) not in _PLAIN:
                self._look_into(value)

    def _look_into(self, value: Any) -> None:
        """Remember what a container, an array or a bag of settings holds, and what is inside of that."""
        kind = type(value)
        if kind in _PLAIN or id(value) in self._contents or len(self._contents) > _MOST_CONTAINERS:
            return
        if kind in _CONTAINERS:
            self._contents[id(value)] = value, value.copy()
            inside: Iterable[Any] = value.values() if isinstance(value, dict) else value
        elif kind is tuple:
            inside = value
        elif kind is np.ndarray and not value.dtype.hasobject and value.size <= _LARGEST_ARRAY:
            self._contents[id(value)] = value, value.copy()
            return
        elif _is_settings(value):
            self._contents[id(value)] = value.__dict__, dict(value.__dict__)
            inside = value.__dict__.values()
        else:
            return
        for each in inside:
            if type(each) not in _PLAIN:
                self._look_into(each)

    def restore(self) -> None:
        """Put every attribute, registry entry and item of a container back."""
        own = self._layer.__dict__
        for name in [name for name in own if name not in self._attributes]:
            del own[name]
        own.update(self._attributes)
        for held, contents in self._contents.values():
            if isinstance(held, np.ndarray):
                if held.flags.writeable:
                    held[...] = contents
                continue
            held.clear()
            if isinstance(contents, (list, deque)):
                held.extend(contents)
            else:
                held.update(contents)


def _is_settings(value: Any) -> bool:
    """Whether an object is a bag of values; helpers that do something may be in use elsewhere, and are left alone."""
    bag = isinstance(value, (SimpleNamespace, Namespace)) or (
        is_dataclass(value) and not isinstance(value, type)
    )
    return bag and isinstance(getattr(value, "__dict__", None), dict)


class OptimizerState:
    """The accumulators, master weights and still unclaimed entries of an optimizer, by reference."""

    def __init__(self, optimizer: paddle.optimizer.Optimizer) -> None:
        self._optimizer = optimizer
        self._accumulators = {name: dict(slots) for name, slots in optimizer._accumulators.items()}
        self._masters = dict(optimizer._master_weights)
        self._pending = dict(optimizer._accumulators_holder)
        self._begun = set(_begun(optimizer))
        kept = [
            *self._masters.values(),
            *(t for slots in self._accumulators.values() for t in slots.values()),
        ]
        self._tensors = [TensorState(tensor) for tensor in kept]

    def restore(self) -> None:
        """Give the optimizer the state it had."""
        for name, slots in self._optimizer._accumulators.items():
            kept = self._accumulators.get(name, {})
            for parameter in slots.keys() - kept.keys():
                _give_name_back(slots[parameter].name)
            slots.clear()
            slots.update(kept)
        for own, before in (
            (self._optimizer._master_weights, self._masters),
            (self._optimizer._accumulators_holder, self._pending),
            (_begun(self._optimizer), self._begun),
        ):
            own.clear()
            own.update(before)
        for state in self._tensors:
            state.restore()


def _give_name_back(name: str) -> None:
    """Let the next accumulator have this name: optimizer states are saved and found by names that end in a count."""
    key, _, number = name.rpartition("_")
    counts = unique_name.generator.ids
    if number.isdigit() and counts.get(key) == int(number) + 1:
        counts[key] = int(number)


def _begun(optimizer: paddle.optimizer.Optimizer) -> set[str]:
    """The names of the parameters that an optimizer has made accumulators for; Paddle 2 spells it another way."""
    names = ("_already_create_accumulator", "_already_create_accumulater")
    begun: set[str] = next(getattr(optimizer, name) for name in names if hasattr(optimizer, name))
    return begun


class Surroundings:
    """What a forward pass may change around the model: modes of Paddle, the random state, functions that a probe replaces."""

    def __init__(self) -> None:
        self._dynamic = paddle.in_dynamic_mode()
        self._with_gradients = paddle.is_grad_enabled()
        self._random = paddle.get_rng_state()
        self._functions = {name: getattr(nn.functional, name) for name in DROPOUT_FUNCTIONS}

    def restore(self) -> None:
        """Bring all of it back."""
        if self._dynamic and not paddle.in_dynamic_mode():
            paddle.disable_static()
        paddle.set_grad_enabled(self._with_gradients)
        paddle.set_rng_state(self._random)
        for name, function in self._functions.items():
            setattr(nn.functional, name, function)


class ModelState:
    """A whole model (and its optimizer) as it is now; `restore` brings it back bit for bit.

    Restoring twice does no harm. Gradients are copied, so they are kept only for those who change them.
    """

    def __init__(
        self,
        model: paddle.nn.Layer,
        optimizer: paddle.optimizer.Optimizer | None = None,
        gradients: bool = False,
        also: Iterable[object] = (),
        weights_too: bool = False,
    ) -> None:
        self._objects = [LayerState(layer) for layer in (*model.sublayers(include_self=True), *also)]
        self._tensors = [
            TensorState(tensor, gradients, copied=weights_too or is_state)
            for tensor, is_state in _tensors_and_kind(model)
        ]
        self._optimizer = OptimizerState(optimizer) if optimizer is not None else None
        self._kept = False

    def keep(self) -> None:
        """Let the changes made so far stand when `preserved` is left; `restore` can still undo them later."""
        self._kept = True

    @property
    def kept(self) -> bool:
        """Whether the changes are to stand."""
        return self._kept

    def restore(self) -> None:
        """Undo everything that happened to the model since this state was taken."""
        for each in self._objects:
            each.restore()
        for tensor in self._tensors:
            tensor.restore()
        if self._optimizer is not None:
            self._optimizer.restore()


def all_tensors(model: paddle.nn.Layer) -> list[paddle.Tensor]:
    """Every parameter and buffer, once each, also where layers share it."""
    seen: dict[int, paddle.Tensor] = {}
    for layer in model.sublayers(include_self=True):
        for registry in (layer._parameters, layer._buffers):
            for tensor in registry.values():
                if isinstance(tensor, paddle.Tensor):
                    seen.setdefault(id(tensor), tensor)
    return list(seen.values())


def _tensors_and_kind(model: paddle.nn.Layer) -> Iterator[tuple[paddle.Tensor, bool]]:
    """Every tensor that a model holds, once, and whether it is state that a forward may write to.

    Running statistics are parameters to Paddle, vectors that no gradient reaches; frozen filters are not meant.
    """
    seen: set[int] = set()
    loose: list[paddle.Tensor] = []
    for layer in model.sublayers(include_self=True):
        for registry, is_state in ((layer._buffers, True), (layer._parameters, False)):
            for tensor in registry.values():
                if isinstance(tensor, paddle.Tensor) and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield tensor, is_state or (tensor.stop_gradient and tensor.ndim < 2)
        for name, value in layer.__dict__.items():
            if type(value) not in _PLAIN and name not in _REGISTRIES:
                loose += _tensors_in(value)
    yield from ((tensor, True) for tensor in {id(t): t for t in loose}.values() if id(tensor) not in seen)


def _tensors_in(value: Any, levels: int = 6) -> Iterator[paddle.Tensor]:
    """The tensors in nested containers and settings; one that is an attribute itself belongs to the layer."""
    if type(value) in _CONTAINERS or type(value) is tuple:
        inside = value.values() if isinstance(value, dict) else value
    elif _is_settings(value):
        inside = vars(value).values()
    else:
        return
    for each in inside:
        if isinstance(each, paddle.Tensor):
            yield each
        elif levels and type(each) not in _PLAIN:
            yield from _tensors_in(each, levels - 1)


def forward_state(model: paddle.nn.Layer) -> list[TensorState]:
    """What a forward may write to, as it is now: buffers, running statistics, tensors in plain containers."""
    return [TensorState(tensor, copied=True) for tensor, is_state in _tensors_and_kind(model) if is_state]


def optimizer_tensors(optimizer: paddle.optimizer.Optimizer) -> list[paddle.Tensor]:
    """The accumulators and master weights of an optimizer."""
    slots = [tensor for named in optimizer._accumulators.values() for tensor in named.values()]
    return [*slots, *optimizer._master_weights.values()]


def isolate(
    model: paddle.nn.Layer,
    optimizer: paddle.optimizer.Optimizer | None = None,
) -> None:
    """Inside `preserved`, let the model work on copies: what is written in place from now on spares the original.

    Args:
        model: The live layer.
        optimizer: Its state is copied too.
    """
    for tensor in [*all_tensors(model), *(optimizer_tensors(optimizer) if optimizer is not None else ())]:
        if has_storage(tensor):
            swap_storage(tensor, tensor.detach().clone())


class Preserved(Generic[Value]):
    """The context manager behind `preserved`. A class, because only its ``__exit__`` can be kept from being broken off."""

    def __init__(self, take: Callable[[], ModelState], enter: Callable[[ModelState], Value]) -> None:
        """Say what is to be remembered and, for the ``as`` of the ``with`` block, what is done first inside."""
        self._take = take
        self._enter = enter

    def __enter__(self) -> Value:
        self._surroundings = Surroundings()
        self._state = self._take()
        self._began = WATCH.begin()
        try:
            return self._enter(self._state)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise

    @WATCH.clean_up
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._surroundings.restore()
            if kind is not None or WATCH.waiting or not self._state.kept:
                self._state.restore()
        finally:
            WATCH.end(self._began)


def preserved(
    model: paddle.nn.Layer,
    optimizer: paddle.optimizer.Optimizer | None = None,
    gradients: bool = False,
    also: Iterable[object] = (),
    weights_too: bool = False,
) -> Preserved[ModelState]:
    """Whatever the body does to the model is undone on leaving it, also by an error or Ctrl-C.

    Only a body that calls ``state.keep()`` and ends without an error leaves its changes behind.

    Args:
        model: The live layer.
        optimizer: Its state comes back too.
        gradients: Whether gradients come back.
        also: Objects whose attributes come back.
        weights_too: Whether weights come back even if the model's forward writes into them (it clips them, say).
    """
    return Preserved(lambda: ModelState(model, optimizer, gradients, also, weights_too), lambda state: state)
