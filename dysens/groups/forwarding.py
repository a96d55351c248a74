"""One forward of the live layer in which layers with weights say what they are told to, and are watched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddle import nn

from dysens.eager import without_dropout
from dysens.errors import ForwardError, in_a_sentence
from dysens.groups.roles import Role
from dysens.groups.values import numbers
from dysens.inputs import View, leaves

Call = tuple[str, int]  # a layer's path, and the how-manieth call of it in one forward


@dataclass(frozen=True)
class Visit:
    """One call of a layer with a role, as it happens in a forward."""

    call: Call
    role: Role
    entry: paddle.Tensor
    further: list[np.ndarray]  # other tensors that the layer is given: offsets, initial states
    real: Callable[[], Any]  # what the layer would really return


def run(
    model: nn.Layer,
    view: View,
    roles: Iterable[Role],
    answer: Callable[[Visit], Any],
    observe: Callable[[Visit], None],
    arguments: tuple[Any, ...] | None = None,
) -> list[Any]:
    """One forward in which layers with a role give ``answer``, after ``observe`` has seen what reaches them.

    Args:
        model: The live layer, inside `dysens.live.preserved`.
        view: How it is run.
        roles: The layers.
        answer: What a layer gives.
        observe: Called first.
        arguments: Others than the view's.

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
            tensors = [t for t in leaves((given, named)) if isinstance(t, paddle.Tensor)]
            further = [numbers(t) for t in tensors[1:]]
            call = (role.path, count[role.path])
            visit = Visit(call, role, tensors[0], further, lambda: original(*given, **named))
            count[role.path] += 1
            observe(visit)
            return answer(visit)

        return forward

    paddle.seed(0)
    for layer in model.sublayers(include_self=True):
        layer.__dict__["training"] = view.training
    forwards: dict[nn.Layer, Callable[..., Any]] = {r.layer: stand_in_for(r) for r in roles}
    with paddle.no_grad(), _patched(forwards), without_dropout():
        try:
            outputs = model(*(arguments if arguments is not None else view.arguments))
        except Exception as error:
            where = f" after it has reached layer '{last}'" if last else ""
            raise ForwardError(f"the {view.name} fails{where} with {in_a_sentence(error)}") from error
    return [numbers(t) if isinstance(t, paddle.Tensor) else t for t in leaves(outputs)]


@contextmanager
def _patched(forwards: Mapping[nn.Layer, Callable[..., Any]]) -> Iterator[None]:
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
