"""How a model and its evaluator are named, and how they are brought to life."""

from __future__ import annotations

import inspect
import json
import logging
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial, update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from dysens.errors import InputError, nearest, yaml_problem
from dysens.flags import flag, parsed_setting, setting

if TYPE_CHECKING:
    import paddle

    from dysens.adapters import LayerTask, Scoring, Task
    from dysens.pipeline import Subject
    from dysens.programs import ProgramLayer
    from dysens.sweep import Built

logger = logging.getLogger(__name__)

CONFIG_ENDINGS = (".yml", ".yaml")
PROGRAM_ENDINGS = (".json", ".pdmodel", ".pdiparams")
OCR, DET, FUNCTION, INFERENCE, VISION = "ocr", "det", "function", "inference", "vision"
PROGRAM_ARGUMENTS = 4  # of PaddleSlim's eval_function: program, executor, names of the inputs, what to fetch
VISION_SHAPE = (1, 3, 224, 224)


@dataclass(frozen=True)
class ModelName:
    """What a user typed. Plain text, so that it can be handed to another process.

    Attributes:
        text: ``package.module:function``, a config file, a folder or path of an inference model, or the name of a network in
            paddle.vision.
        weights: A file to load into the model.
        settings: ``key=value``: arguments of the function, or overrides of the config.
        shapes: Shapes of the inputs; none for a config, which knows them.
        evaluator: ``package.module:function``; None for what the config or the function brings.
        submodel: Which network of an OCR distillation config.
        resume: A checkpoint of a training that was broken off.
        bare: Whether the config's weights are left out: when only an exported model is scored.
        data: A labelled set that scores an inference model: a label file of PaddleOCR, its folder, or a COCO file.
    """

    text: str
    weights: str | None = None
    settings: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    evaluator: str | None = None
    submodel: str | None = None
    resume: str | None = None
    bare: bool = False
    data: str | None = None

    @property
    def kind(self) -> str:
        """``OCR`` or ``DET`` for a config, ``INFERENCE``, ``FUNCTION``, or ``VISION``."""
        if self.text.endswith(CONFIG_ENDINGS):
            return config_kind(Path(self.text))
        if _names_inference(self.text):
            return INFERENCE
        return FUNCTION if ":" in self.text else VISION


def title_of(text: str) -> str:
    """A model as a heading: the name of a config without its folder, anything else as it was typed."""
    return Path(text).stem if text.endswith(CONFIG_ENDINGS) else text


def model_name(options: Namespace, bare: bool = False) -> ModelName:
    """The model, evaluator and labelled set that the options of a command name."""
    data = getattr(options, "data", None)
    evaluator = getattr(options, "evaluator", None)
    labelled = data is not None and is_labelled_set(data)
    if data is not None and not labelled and evaluator is None and not hasattr(options, "samples"):
        evaluator = data  # what compress calibrates on need not score; elsewhere data are there to score by
    return ModelName(
        options.model,
        weights=options.weights,
        settings=tuple(options.set),
        shapes=tuple(tuple(sides) for sides in options.input_shape or ()),
        evaluator=evaluator,
        submodel=options.submodel,
        resume=getattr(options, "resume", None),
        bare=bare,
        data=data if labelled else None,
    )


def is_labelled_set(data: str) -> bool:
    """Whether ``--data`` names a file or folder of labelled images, and not a function."""
    return Path(data).exists() or data.endswith((".txt", ".json")) or ":" not in data


def _names_inference(text: str) -> bool:
    """Whether a text means files of an inference model: they are there, or it can be nothing else."""
    if text.endswith(PROGRAM_ENDINGS) or any(Path(f"{text}{ending}").is_file() for ending in PROGRAM_ENDINGS):
        return True
    folder = Path(text)
    if folder.is_dir():
        endings = {file.suffix for file in folder.iterdir()}
        return bool(endings & set(PROGRAM_ENDINGS)) or folder.name != text
    return os.sep in text and ":" not in text


def config_kind(path: Path) -> str:
    """Whether a YAML file is a config of PaddleOCR (``OCR``) or of PaddleDetection (``DET``).

    Only the top-level keys are looked at. Nothing is built: PaddleDetection's configs have tags that stand for its classes.

    Raises:
        InputError: The file is not there, no YAML, or neither of the two.
    """
    keys = _top_keys(path)
    if {"Global", "Architecture"} & keys:
        return OCR
    if {"architecture", "_BASE_"} & keys:
        return DET
    raise InputError(
        f'"{path}" is not a config that dysens knows: PaddleOCR\'s have the sections Global and Architecture, '
        "PaddleDetection's a line such as `architecture: YOLOv3`, or _BASE_."
    )


def _top_keys(path: Path) -> set[str]:
    try:
        tree = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise InputError(f'The config "{path}" cannot be read: {error.strerror}.') from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f'The config "{path}" is not valid YAML: {yaml_problem(error)}.') from error
    if not isinstance(tree, yaml.MappingNode):
        return set()
    return {str(key.value) for key, _ in tree.value}


def task_of(name: ModelName) -> Task:
    """Build what a user named, and load its weights.

    Raises:
        InputError: There is no such thing, or it cannot be built as it was asked for.
    """
    makers = {
        OCR: _ocr_task,
        DET: _det_task,
        FUNCTION: _function_task,
        INFERENCE: _inference_task,
        VISION: _vision_task,
    }
    if name.data is not None and name.kind != INFERENCE:
        raise InputError(
            f'A labelled set, as "{name.data}", is for an inference model. A config names its own data (change them with '
            f"{setting('key=value')}); for other models give package.module:function."
        )
    return makers[name.kind](name)


def without_download(name: ModelName) -> ModelName:
    """The same for a list of groups, which depends on no weights: those that an OCR config names by an address are left out."""
    if name.kind != OCR or name.weights or name.resume:
        return name

    from dysens.adapters.ocr import load_config

    settings = load_config(name.text, name.settings).get("Global")
    if not isinstance(settings, Mapping):
        return name  # whoever builds the model says what is wrong with it
    address = str(settings.get("checkpoints") or settings.get("pretrained_model"))
    if not address.startswith(("http://", "https://")):
        return name
    logger.info("The groups depend on no weights: those at %s are not fetched.", address)
    return replace(name, bare=True)


def subject_of(
    name: ModelName, criterion: str = "fpgm", options: Namespace | None = None, task: Task | None = None
) -> Subject:
    """The task with what scores it and which filters go.

    Args:
        name: What was typed.
        criterion: By name.
        options: With ``skip_vars``, ``layers``, ``eval_only`` and ``lower_is_better``, as far as the command has them.
        task: What the name stands for, if it was built already.
    """
    from dysens.groups import FILTERS
    from dysens.pipeline import Subject

    task = task_of(name) if task is None else task
    return Subject(
        task,
        criterion,
        skip=tuple(getattr(options, "skip_vars", ())),
        layers=getattr(options, "layers", FILTERS),
        training=not getattr(options, "eval_only", False),
        scoring=_named_scoring(name, task.model),
        build=partial(model_and_evaluator, name),
        lower_is_better=getattr(options, "lower_is_better", False),
    )


def model_and_evaluator(name: ModelName) -> Built:
    """What a further process needs to take part in a sweep."""
    task = task_of(name)
    return task.model, _named_scoring(name, task.model) or task.evaluator


def _ocr_task(name: ModelName) -> Task:
    from dysens.adapters.ocr import OcrTask, load_config

    _refuse_shapes(name)
    settings = [*name.settings]
    if name.weights or name.bare:
        settings += [f"Global.pretrained_model={name.weights or 'null'}", "Global.checkpoints=null"]
    if name.resume:
        settings.append(f"Global.checkpoints={name.resume}")
    return OcrTask(load_config(name.text, settings), name.submodel)


def _det_task(name: ModelName) -> Task:
    from dysens.adapters.det import DetTask, load_config

    _refuse_shapes(name)
    _refuse_submodel(name)
    weights = [f"weights={name.weights or 'null'}"] if name.weights or name.bare else []
    return DetTask(load_config(name.text, [*name.settings, *weights]), resume=name.resume)


def _function_task(name: ModelName) -> LayerTask:
    import paddle

    _refuse_submodel(name)
    function, arguments = _imported_here(name.text, "The model"), _arguments(name)
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        raise InputError(
            f'"{name.text}" cannot be called so: {error}. Its arguments are given as {setting("key=value")}.'
        ) from error
    made = function(**arguments)
    model, own = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(model, paddle.nn.Layer):
        raise InputError(
            f'"{name.text}" has to return the model (a paddle.nn.Layer), or the model and its evaluator, not {made!r:.80}.'
        )
    if not name.shapes:
        raise InputError(
            f'The inputs of "{name.text}" are not known: give their shape, such as {flag("input_shape")} 1,3,224,224.'
        )
    return _layer_task(name, model, own, name.shapes)


def _vision_task(name: ModelName) -> LayerTask:
    import paddle

    _refuse_submodel(name)
    networks = paddle.vision.models
    known = [word for word in networks.__all__ if word == "LeNet" or word[0].islower()]
    if name.text not in known and Path(name.text).is_dir():
        raise InputError(f'The folder "{name.text}" holds no inference model (no .json or .pdmodel program).')
    if name.text not in known:
        raise InputError(
            f'There is no network "{name.text}" in paddle.vision.models{nearest(name.text, known) or "."} A network of your '
            "own is named package.module:function, a config by its .yml file, an inference model by its folder."
        )
    if not name.shapes:
        shape = ",".join(map(str, VISION_SHAPE))
        logger.info("The input has the shape %s (%s changes it).", shape, flag("input_shape"))
    arguments = _arguments(name)
    model = getattr(networks, name.text)(**arguments)
    trained = bool(name.weights or arguments.get("pretrained"))
    return _layer_task(name, model, None, name.shapes or (VISION_SHAPE,), trained)


def _inference_task(name: ModelName) -> LayerTask:
    from dysens.adapters import ProgramTask
    from dysens.programs import load_inference

    _refuse_submodel(name)
    _refuse_resume(name)
    files = _arguments(name)
    dictionary = files.pop("character_dict_path", None)
    unknown = sorted(set(files) - {"model_filename", "params_filename"})
    if unknown:
        raise InputError(
            f'An inference model has no setting "{unknown[0]}"; it takes {setting("model_filename=...")} and '
            f"{setting('params_filename=...')}, with labelled lines of text {setting('character_dict_path=...')} too."
        )
    model = load_inference(name.text, **{key: str(value) for key, value in files.items()})
    task = ProgramTask(
        model,
        name.shapes,
        _labelled_set(name, model, dictionary),
        partial(model_and_evaluator, name),
        name.text,
    )
    if not name.shapes and any(side < 0 for feed in model.feeds for side in feed.shape[1:]):
        shapes = "; ".join(",".join(map(str, tensor.shape)) for tensor in task.example_inputs)
        logger.info(
            "FLOPs and times are of inputs with the shapes %s (%s changes them).", shapes, flag("input_shape")
        )
    if name.weights:
        task.load(name.weights)
    return task


def _labelled_set(name: ModelName, model: ProgramLayer, dictionary: str | None) -> Scoring | None:
    """What scores an inference model on the labelled set that was named, if one was."""
    if name.data is None:
        return None
    if name.data.endswith(".json"):
        from dysens.adapters.det import labelled_evaluator as labelled_boxes

        return labelled_boxes(name.data, model, name.text)
    from dysens.adapters.ocr import labelled_evaluator as labelled_text

    return labelled_text(name.data, model, name.text, dictionary)


def _layer_task(
    name: ModelName,
    model: paddle.nn.Layer,
    own: Any,
    shapes: tuple[tuple[int, ...], ...],
    has_weights: bool = True,
) -> LayerTask:
    from dysens.adapters import LayerTask

    _refuse_resume(name)
    if name.bare:  # an exported model is scored, and nobody but the task does that
        own = _named_scoring(name, model) or own
    inputs = [list(sides) for sides in shapes]
    task = LayerTask(
        model,
        inputs[0] if len(inputs) == 1 else inputs,
        own,
        partial(model_and_evaluator, name),
        name.text,
        has_weights,
    )
    if name.weights:
        task.load(name.weights)
    model.eval()
    return task


def _named_scoring(name: ModelName, model: paddle.nn.Layer) -> Scoring | None:
    """What ``--evaluator`` names, if it names anything."""
    from dysens.evaluators import Evaluator

    if name.evaluator is None:
        return None
    function = _imported_here(name.evaluator, "The evaluator")
    needed = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if len(needed) == PROGRAM_ARGUMENTS and name.kind == INFERENCE:
        from dysens.programs import ProgramLayer, served_callback

        assert isinstance(model, ProgramLayer)
        return served_callback(function, model)
    if len(needed) > 1:
        raise InputError(
            f'The evaluator "{name.evaluator}" needs {len(needed)} arguments; it gets the model, or nothing at all. (For an '
            "inference model it may also take a program, an Executor, the names of the inputs and the list to fetch.)"
        )
    if needed:
        # Its name goes into the journal.
        return update_wrapper(partial(function, model), function)
    made = function()
    if not isinstance(made, Evaluator) and not callable(made):
        raise InputError(
            f'The evaluator "{name.evaluator}" has no parameter, so it has to return an Evaluator, not {made!r:.80}. With one '
            "parameter it gets the model, and returns the score."
        )
    scoring: Scoring = made
    return scoring


def named_data(name: str) -> Any:
    """What ``--data`` names: a function without parameters that returns inputs of the model, or an Evaluator.

    Raises:
        InputError: There is no such function, or it returns nothing that can be read.
    """
    from dysens.evaluators import Evaluator

    function = _imported_here(name, "The data")
    made = function()
    if isinstance(made, Evaluator) or (
        isinstance(made, Iterable) and not isinstance(made, (str, bytes, Mapping))
    ):
        return made
    raise InputError(
        f'The data "{name}" have to be inputs of the model, one after the other, a loader, or an Evaluator, not {made!r:.80}.'
    )


def in_folder(name: ModelName, folder: Path) -> ModelName:
    """The same model with its checkpoints below a folder, unless the user said where they go."""
    keys = {OCR: "Global.save_model_dir", DET: "save_dir"}
    if name.kind not in keys:
        return name
    place = f"{keys[name.kind]}={json.dumps(str(folder))}"  # a JSON string is one in YAML
    return replace(name, settings=(place, *name.settings))


def _imported_here(name: str, what: str) -> Callable[..., Any]:
    """A function by its name; modules in the current folder are found, as `python -m` finds them."""
    from dysens.sweep import imported

    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    return imported(name, what)


def _arguments(name: ModelName) -> dict[str, Any]:
    return dict(map(parsed_setting, name.settings))


def _refuse_shapes(name: ModelName) -> None:
    if name.shapes:
        raise InputError(
            f"{flag('input_shape')} goes with a function or a paddle.vision name; a config says it itself."
        )


def _refuse_resume(name: ModelName) -> None:
    if name.resume is not None:
        raise InputError(
            f"{flag('resume')} goes with a config of PaddleOCR or PaddleDetection: they can train."
        )


def _refuse_submodel(name: ModelName) -> None:
    if name.submodel is not None:
        raise InputError(f"{flag('submodel')} goes with a distillation config of PaddleOCR only.")
