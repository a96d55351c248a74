"""The plan of what was cut, beside every checkpoint that ppdet's Trainer writes: without it, nobody could load one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import paddle

from dysens.adapters.det.ppdet_import import import_ppdet
from dysens.pruning.checkpoint import save_plan


@contextmanager
def plans_beside_checkpoints(model: paddle.nn.Layer) -> Iterator[None]:
    """While this lasts, each checkpoint that a Trainer writes gets the plan of ``model``."""
    callbacks = _callbacks()
    original = callbacks.save_model
    callbacks.save_model = _with_plan(original, model)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        callbacks.save_model = original  # type: ignore[attr-defined]


def keep_plans_beside_checkpoints(model: paddle.nn.Layer) -> None:
    """The same from now on, for PaddleDetection's own tools: they train one model and end."""
    callbacks = _callbacks()
    original = getattr(callbacks.save_model, "__wrapped__", callbacks.save_model)
    callbacks.save_model = _with_plan(original, model)  # type: ignore[attr-defined]


def _callbacks() -> ModuleType:
    return import_ppdet("engine.callbacks")


def _with_plan(save_model: Callable[..., None], model: paddle.nn.Layer) -> Callable[..., None]:
    def save_model_and_plan(
        state: Any, optimizer: Any, folder: str, name: str, *others: Any, **named: Any
    ) -> None:
        save_model(state, optimizer, folder, name, *others, **named)
        save_plan(model, Path(folder) / name)

    save_model_and_plan.__wrapped__ = save_model  # type: ignore[attr-defined]
    return save_model_and_plan
