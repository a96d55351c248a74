"""Layers that choose their way by values: what they might run on some other input, no trial has seen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import paddle

from dysens.engines._analysis import Analysis
from dysens.model import View, preserved

_CONVERSIONS = ("__bool__", "__int__", "__float__", "__index__", "__array__", "item", "numpy", "tolist")
_PADDLE = str(Path(paddle.__file__).parent)


def without_blind_choices(
    model: paddle.nn.Layer, view: View, found: Analysis, called: Iterable[str]
) -> Analysis:
    """Leave out groups in layers that choose their way by values and have a way that was never taken.

    Args:
        model: The live layer.
        view: A forward that runs.
        found: What is offered so far.
        called: The layers with weights that ran on some input.
    """
    never = set(found.roles) - set(called)
    reasons = dict(found.reasons)
    kept = found.groups
    for chooser in sorted(_choosers(model, view)) if never and kept else ():
        hidden = next((path for path in sorted(never) if _is_choice(chooser, path, found, never)), None)
        if hidden is None:
            continue
        why = (
            f"layer '{chooser}' chooses its way by values, and layer '{hidden}' inside it ran on no input that was tried"
            if chooser
            else f"the forward chooses its way by values, and layer '{hidden}' ran on no input that was tried"
        )
        concerned = [g for g in kept if any(_inside(port.layer, chooser) for port in g.units)]
        reasons.update({path: why for group in concerned for path in group.filters})
        kept = [group for group in kept if group not in concerned]
    return replace(found, groups=kept, reasons=reasons)


def _is_choice(chooser: str, path: str, found: Analysis, never: set[str]) -> bool:
    """Whether a layer belongs to a part of the chooser of which nothing ran: that is what the other way looks like."""
    if not _inside(path, chooser):
        return False
    rest = path[len(chooser) + 1 :] if chooser else path
    part = f"{chooser}.{rest.split('.')[0]}" if chooser else rest.split(".")[0]
    return all(each in never for each in found.roles if _inside(each, part))


def _inside(path: str, layer: str) -> bool:
    return not layer or path == layer or path.startswith(f"{layer}.")


def _choosers(model: paddle.nn.Layer, view: View) -> set[str]:
    """The layers whose own code turns a tensor into a Python value."""
    paths = {id(layer): path for path, layer in model.named_sublayers(include_self=True)}
    seen: set[str] = set()

    def note() -> None:
        frame = sys._getframe(2)
        if frame.f_code.co_filename.startswith(_PADDLE):
            return  # sizes that an operator was given as a tensor
        while frame is not None:
            path = paths.get(id(frame.f_locals.get("self")))
            if path is not None:
                seen.add(path)
                return
            frame = frame.f_back  # type: ignore[assignment]

    with preserved(model), _watched(note), paddle.no_grad():
        for layer in model.sublayers(include_self=True):
            layer.__dict__["training"] = view.training
        model(*view.fresh())
    return seen


@contextmanager
def _watched(note: Callable[[], None]) -> Iterator[None]:
    """Inside, say so when a tensor becomes a Python value."""
    kind = type(paddle.zeros([1]))
    before = {name: kind.__dict__[name] for name in _CONVERSIONS if name in kind.__dict__}

    def watching(original: Any) -> Callable[..., Any]:
        def convert(*given: Any, **named: Any) -> Any:
            note()
            return original(*given, **named)

        return convert

    try:
        for name, original in before.items():
            setattr(kind, name, watching(original))
        yield
    finally:
        for name, original in before.items():
            setattr(kind, name, original)
