"""Who finds the groups: dysens's own engine, PaddleSlim's, or one of your own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Union

import paddle

from dysens.engines._analysis import Analysis, Engine, proven
from dysens.engines._native import native_engine
from dysens.engines._paddleslim import paddleslim_engine
from dysens.errors import InputError, nearest
from dysens.groups import filters_by_path
from dysens.model import View, isolate, preserved

EngineChoice = Union[str, Engine]

_ENGINES: dict[str, Engine] = {
    "auto": native_engine,
    "native": native_engine,
    "paddleslim": paddleslim_engine,
}


def engine_for(choice: EngineChoice) -> Engine:
    """The engine that a user chose.

    Args:
        choice: "auto", "native", "paddleslim", or an engine of the user's own.

    Raises:
        InputError: There is no such engine.

    Example:
        >>> def wide_groups_only(model, views):
        ...     found = engine_for("native")(model, views)
        ...     return replace(found, groups=[group for group in found.groups if group.channels >= 16])
        >>> find = engine_for(wide_groups_only)
    """
    if isinstance(choice, str):
        if choice not in _ENGINES:
            hint = nearest(choice, _ENGINES) or f"; there are {', '.join(_ENGINES)}."
            raise InputError(f'There is no engine "{choice}"{hint}')
        return _ENGINES[choice]
    if not callable(choice):
        raise InputError(
            f"engine must be one of {', '.join(_ENGINES)}, or take a model and its views, not {choice!r:.80}."
        )
    return _OwnEngine(choice)


class _OwnEngine:
    """A user's engine. What it offers is proven, as everything is that is offered."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._name = getattr(engine, "__qualname__", type(engine).__qualname__)

    def __call__(self, model: paddle.nn.Layer, views: Sequence[View]) -> Analysis:
        with preserved(model):
            isolate(model)
            found = self._engine(model, views)
        if not isinstance(found, Analysis):
            raise InputError(
                f"engine {self._name} has to return a dysens.engines.Analysis, not a {type(found).__name__}."
            )
        found = proven(model, views, found)
        cut = {path for group in found.groups for path in group.filters}
        unsaid = dict.fromkeys(filters_by_path(model), f"engine {self._name} offers no group for it")
        reasons = {path: reason for path, reason in {**unsaid, **found.reasons}.items() if path not in cut}
        return replace(found, reasons=reasons)
