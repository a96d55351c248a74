"""One forward of the live layer with instrumented layers: some return given outputs, all are recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import nn

from dysens.errors import ForwardError, in_a_sentence
from dysens.groups._layers import Role
from dysens.model import View, fresh, leaves, map_leaves, swap_storage, without_dropout
from dysens.progress import step_done


def written(leaf: Any) -> bool:
    """Whether a tensor has been written to since."""
    return isinstance(leaf, paddle.Tensor) and leaf.inplace_version > 0


def copied(tree: Any) -> Any:
    """The same dicts, lists and tuples with copies of their tensors."""
    return map_leaves(lambda leaf: leaf.clone() if isinstance(leaf, paddle.Tensor) else leaf, tree)


def numbers(tensor: paddle.Tensor) -> np.ndarray:
    """The values of a tensor; NumPy has no bfloat16, so low precision becomes float32, which is exact."""
    if tensor.dtype in (paddle.bfloat16, paddle.float16):
        tensor = tensor.astype("float32")
    return tensor.numpy()


def first_tensor(tree: Any) -> paddle.Tensor:
    """The first tensor in dicts, lists and tuples: what a layer makes, before states and the like."""
    return next(leaf for leaf in leaves(tree) if isinstance(leaf, paddle.Tensor))


def first_numbers(tree: Any) -> np.ndarray:
    """The values of the first tensor in dicts, lists and tuples."""
    return numbers(first_tensor(tree))


def with_first(tree: Any, tensor: paddle.Tensor) -> Any:
    """The same dicts, lists and tuples with another first tensor."""
    first = first_tensor(tree)
    return map_leaves(lambda leaf: tensor if leaf is first else leaf, tree)


def bits(array: np.ndarray) -> np.ndarray:
    """The array as integers, so that comparing is exact and NaN equals itself."""
    return array.view(f"i{array.dtype.itemsize}") if array.dtype.kind == "f" else array


def differ(a: Any, b: Any) -> bool:
    """Whether two arrays differ in a bit; of other values only whether one is an array and one is not."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape != b.shape or a.dtype != b.dtype or bool((bits(a) != bits(b)).any())
    return isinstance(a, np.ndarray) != isinstance(b, np.ndarray)


def without_axis(shape: Any, axis: int) -> list[int]:
    """A shape less its channel axis."""
    sides = [int(side) for side in shape]
    del sides[axis]
    return sides


Call = tuple[str, int]  # a layer's path, and the how-manieth call of it in one forward


class Visit(NamedTuple):
    """One call of a layer with a role, as it happens in a forward."""

    call: Call
    role: Role
    inputs: paddle.Tensor
    further: list[np.ndarray]  # other tensors that the layer is given: offsets, initial states
    real: Callable[[], Any]  # what the layer would really return


def run(
    model: nn.Layer,
    view: View,
    roles: Iterable[Role],
    answer: Callable[[Visit], Any],
    observe: Callable[[Visit], None],
    arguments: tuple[Any, ...] | None = None,
    layers: Iterable[nn.Layer] | None = None,
) -> list[Any]:
    """One forward in which layers with a role give ``answer``, after ``observe`` has seen what reaches them.

    Args:
        model: The live layer, inside `dysens.model.preserved`.
        view: How it is run.
        roles: The layers.
        answer: What a layer gives.
        observe: Called first.
        arguments: Others than the view's.
        layers: All layers of the model, where the caller has them: to gather them takes as long as a small forward.

    Raises:
        ForwardError: With the layer that was reached last.
    """
    count: Counter[str] = Counter()
    last = ""

    def stand_in_for(role: Role) -> Callable[..., Any]:
        original = role.layer.forward

        def forward(*given: Any, **named: Any) -> Any:
            nonlocal last
            last = role.path
            plain = len(given) == 1 and not named and isinstance(given[0], paddle.Tensor)
            several = given if plain else leaves((given, named))
            tensors = [leaf for leaf in several if isinstance(leaf, paddle.Tensor)]
            further = [numbers(t) for t in tensors[1:]]
            call = (role.path, count[role.path])
            visit = Visit(call, role, tensors[0], further, lambda: original(*given, **named))
            count[role.path] += 1
            observe(visit)
            return answer(visit)

        return forward

    step_done()
    paddle.seed(0)
    for layer in layers if layers is not None else model.sublayers(include_self=True):
        layer.__dict__["training"] = view.training
    forwards: dict[nn.Layer, Callable[..., Any]] = {r.layer: stand_in_for(r) for r in roles}
    with paddle.no_grad(), patched(forwards), without_dropout():
        try:
            outputs = model(*fresh(arguments if arguments is not None else view.arguments))
        except Exception as error:
            where = f" after it has reached layer '{last}'" if last else ""
            raise ForwardError(f"the {view.name} fails{where} with {in_a_sentence(error)}") from error
    return [numbers(t) if isinstance(t, paddle.Tensor) else t for t in leaves(outputs)]


@contextmanager
def patched(forwards: Mapping[nn.Layer, Callable[..., Any]]) -> Iterator[None]:
    """Give layers another forward. Straight into ``__dict__``: a probe does this hundreds of times per forward."""
    before = {layer: layer.__dict__.get("forward") for layer in forwards}
    for layer, forward in forwards.items():
        layer.__dict__["forward"] = forward
    try:
        yield
    finally:
        for layer, original in before.items():
            if original is None:
                layer.__dict__.pop("forward", None)
            else:
                layer.__dict__["forward"] = original


# Positive, so that no ReLU hides a channel, and small, so that sums of many stay below where ReLU6 and hard sigmoid go flat.
RANGE = (0.05, 0.45)
# Near one: scales that follow each other must not shrink what moves to nothing, nor offsets pile up.
OWN_RANGE = (0.4, 0.9)


class StandIn:
    """What a layer answers at one call (a depthwise convolution: its pattern), and a second draw for the first tensor."""

    def __init__(self, entry_shape: list[int], answer: Any, other: np.ndarray) -> None:
        self.entry_shape = entry_shape
        self.other = other
        self._answer = copied(answer)
        self._pristine = answer

    @cached_property
    def values(self) -> np.ndarray:
        """The numbers of the first tensor."""
        return first_numbers(self._pristine)

    @cached_property
    def largest(self) -> float:
        """The largest of them."""
        return float(self.values.max())

    def first(self, number: int, axis: int) -> StandIn:
        """The same with only the first channels."""
        answer = paddle.to_tensor(np.take(numbers(self._pristine), range(number), axis))
        return StandIn(
            self.entry_shape, answer.astype(self._pristine.dtype), np.take(self.other, range(number), axis)
        )

    def answer(self) -> Any:
        """The same tensors each time, unless they have been written to (as SAR's decoder masks its attention)."""
        if any(map(written, leaves(self._answer))):
            self._answer = copied(self._pristine)
        return self._answer


def spread(visit: Visit, pattern: paddle.Tensor) -> paddle.Tensor:
    """What stands in for a depthwise convolution: each channel's mean, in a pattern of the shape that it returns.

    Every value of a channel moves it, no other channel does, and a dead filter of a trained model hides nothing.
    """
    axis = visit.role.input_axis % visit.inputs.ndim
    spatial = [a for a in range(1, visit.inputs.ndim) if a != axis]
    if pattern.shape[axis] > visit.inputs.shape[axis]:  # in a probe of a narrower network
        pattern = paddle.slice(pattern, [axis], [0], [visit.inputs.shape[axis]])
    return visit.inputs.mean(axis=spatial, keepdim=True) * pattern


def use_plain_values(own: Iterable[paddle.Tensor]) -> None:
    """Positive values for parameters that no known layer owns: a scale that is zero would hide what it scales."""
    random = np.random.default_rng(0)
    for tensor in own:
        drawn = random.uniform(*OWN_RANGE, list(tensor.shape)).astype("float32")
        swap_storage(tensor, paddle.to_tensor(drawn).astype(tensor.dtype))
