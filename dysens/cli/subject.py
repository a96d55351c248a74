"""A model that was named on the command line, brought to life: with its inputs, and with what scores it."""

from __future__ import annotations

import inspect
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, update_wrapper
from typing import Any, Union

import paddle

from dysens.cli.naming import ModelName
from dysens.errors import DysensError, InputError, nearest
from dysens.pruning.checkpoint import load_checkpoint
from dysens.recipes.recipe import Task
from dysens.settings import parsed_setting
from dysens.sweep.evaluators import Evaluator
from dysens.sweep.worker import Built, imported

log = logging.getLogger("dysens.cli")

Scoring = Union[Evaluator, Callable[[], Any]]

VISION_SHAPE = (1, 3, 224, 224)


@dataclass(frozen=True)
class Subject:
    """What commands work on.

    Attributes:
        model: The network to measure and prune.
        network: What is saved: the whole that ``model`` is a part of, usually the same.
        inputs: What its forward takes, as `DygraphSensitivity` wants it.
        scoring: Gives what scores the model, or None. A function, since a config's evaluator reads its data first.
        train_inputs: As ``inputs``, for the training forward; None if that is not looked at.
        trained: Whether its weights come from anywhere but chance.
    """

    model: paddle.nn.Layer
    network: paddle.nn.Layer
    inputs: Any
    scoring: Callable[[], Scoring | None]
    train_inputs: Any = None
    trained: bool = True


def subject_of(name: ModelName) -> Subject:
    """Build what a user named, and load its weights.

    Raises:
        InputError: There is no such thing, or it cannot be built as it was asked for.
    """
    makers = {"ocr": _of_ocr, "det": _of_det, "function": _of_function, "vision": _of_vision}
    return makers[name.kind](name)


def measurable(name: ModelName) -> tuple[Subject, Scoring]:
    """Build what a user named, with what scores it, for a sweep or a search."""
    subject = subject_of(name)
    if not subject.trained:
        raise InputError(
            f'"{name.text}" has random weights, and losses relative to those tell nothing: give --weights FILE.'
        )
    scoring = subject.scoring()
    if scoring is None:
        raise InputError(
            f'nothing is named that scores "{name.text}": give --evaluator package.module:function. A function with one '
            "parameter gets the model and returns its score; one without returns an Evaluator."
        )
    return subject, scoring


def model_and_evaluator(name: ModelName) -> Built:
    """What a further process needs to take part in a sweep."""
    subject, scoring = measurable(name)
    return subject.model, scoring


def _of_ocr(name: ModelName) -> Subject:
    from dysens.adapters.ocr import OcrTask, load_config

    _refuse_shapes(name)
    weights = [f"Global.pretrained_model={name.weights}", "Global.checkpoints=null"] if name.weights else []
    task = OcrTask(load_config(name.text, [*name.settings, *weights]), name.submodel)
    return _of_task(name, task, task.network, trained=task.weights is not None)


def _of_det(name: ModelName) -> Subject:
    from dysens.adapters.det import DetTask, load_config

    _refuse_shapes(name)
    _refuse_submodel(name)
    weights = [f"weights={name.weights}"] if name.weights else []
    config = load_config(name.text, [*name.settings, *weights])
    task = DetTask(config)
    return _of_task(name, task, task.model, trained=bool(config.get("weights")))


def _of_task(name: ModelName, task: Task, network: paddle.nn.Layer, trained: bool) -> Subject:
    return Subject(
        task.model,
        network,
        task.example_inputs,
        lambda: _named_scoring(name, task.model) or task.evaluator,
        _train_inputs(task) if name.with_training else None,
        trained,
    )


def _train_inputs(task: Task) -> Any:
    try:
        return task.train_inputs
    except DysensError as error:
        raise InputError(
            f"{error} (Groups are proven for the training forward too, and that needs training data: --eval-only leaves it out.)"
        ) from error


def _of_function(name: ModelName) -> Subject:
    _refuse_submodel(name)
    function, arguments = _imported_here(name.text, "the model"), _arguments(name)
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        raise InputError(
            f'"{name.text}" cannot be called so: {error}. Its arguments are given as --set key=value.'
        ) from error
    made = function(**arguments)
    model, own = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(model, paddle.nn.Layer):
        raise InputError(
            f'"{name.text}" has to return the model (a paddle.nn.Layer), or the model and its evaluator, not {made!r:.80}.'
        )
    if not name.shapes:
        raise InputError(
            f'the inputs of "{name.text}" are not known: give their shape, such as --input-shape 1,3,224,224.'
        )
    return _plain(name, model, own, name.shapes)


def _of_vision(name: ModelName) -> Subject:
    _refuse_submodel(name)
    networks = paddle.vision.models
    known = [word for word in networks.__all__ if word == "LeNet" or word[0].islower()]
    if name.text not in known:
        raise InputError(
            f'there is no network "{name.text}" in paddle.vision.models{nearest(name.text, known) or "."} A network of your '
            "own is named package.module:function, a config by its .yml file."
        )
    if not name.shapes:
        log.info("input shape %s (--input-shape changes it)", ",".join(map(str, VISION_SHAPE)))
    arguments = _arguments(name)
    model = getattr(networks, name.text)(**arguments)
    trained = bool(name.weights or arguments.get("pretrained"))
    return _plain(name, model, None, name.shapes or (VISION_SHAPE,), trained)


def _plain(
    name: ModelName,
    model: paddle.nn.Layer,
    own: Any,
    shapes: tuple[tuple[int, ...], ...],
    trained: bool = True,
) -> Subject:
    if name.weights:
        load_checkpoint(model, name.weights)
    model.eval()
    inputs = [list(sides) for sides in shapes]
    return Subject(
        model,
        model,
        inputs[0] if len(inputs) == 1 else inputs,
        lambda: _named_scoring(name, model) or own,
        trained=trained,
    )


def _named_scoring(name: ModelName, model: paddle.nn.Layer) -> Scoring | None:
    """What ``--evaluator`` names, if it names anything."""
    if name.evaluator is None:
        return None
    function = _imported_here(name.evaluator, "the evaluator")
    needed = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if len(needed) > 1:
        raise InputError(
            f'the evaluator "{name.evaluator}" needs {len(needed)} arguments; it gets the model, or nothing at all.'
        )
    if needed:
        # Its name goes into the journal.
        return update_wrapper(partial(function, model), function)
    made = function()
    if not isinstance(made, Evaluator) and not callable(made):
        raise InputError(
            f'the evaluator "{name.evaluator}" has no parameter, so it has to return an Evaluator, not {made!r:.80}. With one '
            "parameter it gets the model, and returns the score."
        )
    return made


def _imported_here(name: str, what: str) -> Callable[..., Any]:
    """A function by its name; modules in the current folder are found, as `python -m` finds them."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    return imported(name, what)


def _arguments(name: ModelName) -> dict[str, Any]:
    return dict(map(parsed_setting, name.settings))


def _refuse_shapes(name: ModelName) -> None:
    if name.shapes:
        raise InputError(
            "--input-shape goes with a function or a paddle.vision name; a config says it itself."
        )


def _refuse_submodel(name: ModelName) -> None:
    if name.submodel is not None:
        raise InputError("--submodel goes with a distillation config of PaddleOCR only.")
