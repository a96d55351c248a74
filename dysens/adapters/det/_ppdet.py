"""ppdet: imported in one place, mended for Paddle 3, and its one global config held so that two models can live in one process.

`ppdet.core.workspace` keeps every registered class and every setting in a single dict, and building a model reads and
writes it. A `DetConfig` is such a dict on its own; `DetConfig.installed` puts a copy of it in ppdet's place for as long as
ppdet needs it, and then puts back what was there.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import paddle
import yaml

from dysens.adapters._shared import install_command
from dysens.errors import InputError, MissingExtraError, nearest
from dysens.flags import parsed_setting

logger = logging.getLogger(__name__)


LABELS = "gt_labels"
# In the order of the operator.
_NMS_ARGUMENTS = (
    "bboxes",
    "scores",
    "rois_num",
    "score_threshold",
    "nms_top_k",
    "keep_top_k",
    "nms_threshold",
    "normalized",
    "nms_eta",
    "background_label",
)


def mend_ppdet(assigners: ModuleType, operators: ModuleType) -> None:
    """Changes what has to be changed on Paddle 3; called once, when ppdet is imported.

    Args:
        assigners: ``ppdet.modeling.assigners``.
        operators: ``ppdet.modeling.ops``.
    """
    if int(paddle.__version__.split(".")[0]) >= 3:
        _mend_assigners(assigners)
        operators.multiclass_nms = _traceable(operators.multiclass_nms)  # type: ignore[attr-defined]


def _traceable(multiclass_nms: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(multiclass_nms)

    @functools.wraps(multiclass_nms)
    def mended(*args: Any, **kwargs: Any) -> Any:
        if paddle.in_dynamic_mode():
            return multiclass_nms(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        rows, index, counts = paddle._C_ops.multiclass_nms3(*(given[name] for name in _NMS_ARGUMENTS))
        return rows, counts, index if given["return_index"] else None

    return mended


def _mend_assigners(assigners: ModuleType) -> None:
    """Wraps the ``forward`` of every assigner class that is handed labels."""
    assigner: Any
    for _, assigner in inspect.getmembers(assigners, inspect.isclass):
        forward = assigner.__dict__.get("forward")
        if forward is not None and LABELS in inspect.signature(forward).parameters:
            assigner.forward = _with_int64_labels(forward)


def _with_int64_labels(forward: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(forward)

    @functools.wraps(forward)
    def mended(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        labels = bound.arguments[LABELS]
        if isinstance(labels, paddle.Tensor) and labels.dtype == paddle.int32:
            bound.arguments[LABELS] = labels.astype("int64")
        return forward(*bound.args, **bound.kwargs)

    return mended


def import_ppdet(module: str) -> ModuleType:
    """Imports ``ppdet.<module>``.

    Raises:
        MissingExtraError: ppdet, or something that it needs, is not installed.
    """
    _import_once()
    return import_module(f"ppdet.{module}")


@functools.cache
def _import_once() -> None:
    """ppdet prints what it cannot use (trackers, VisualDL) while it is imported; that goes to the log instead."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Importing the package registers all of its classes.
            import_module("ppdet")
            initialized = import_module("ppdet.utils.logger").logger_initialized
            mend_ppdet(import_module("ppdet.modeling.assigners"), import_module("ppdet.modeling.ops"))
    except ImportError as error:
        raise MissingExtraError(
            f"PaddleDetection cannot be imported ({error}). Install it with: {install_command('det')} (or put a "
            "PaddleDetection checkout on PYTHONPATH instead of paddledet)."
        ) from error
    if printed.getvalue():
        logger.debug("Importing ppdet printed: %s", printed.getvalue())
    # ppdet's loggers bound the stream that stood for stdout during the import.
    for name in initialized:
        for handler in logging.getLogger(name).handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is printed:
                handler.setStream(sys.stdout)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps ppdet's and pycocotools' progress lines off stdout; warnings still come through."""
    loggers = [logging.getLogger(name) for name in import_ppdet("utils.logger").logger_initialized]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(max(each.level, logging.WARNING))
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        for each, level in zip(loggers, levels):
            each.setLevel(level)


@dataclass(frozen=True)
class DetConfig:
    """One PaddleDetection config, with ``_BASE_`` and overrides resolved.

    Attributes:
        path: The YAML file that it was read from.
        values: What ppdet's global config holds while this one is installed: the settings, and for each registered
            class the arguments that it is built with.
        overrides: Settings that were given on top of the file.
    """

    path: Path
    values: dict[str, Any]
    overrides: tuple[str, ...] = ()

    def __getitem__(self, key: str) -> Any:
        if key not in self.values:
            raise InputError(f'{self.path} does not set "{key}"{nearest(key, self.values)}.')
        return self.values[key]

    def get(self, key: str, default: Any = None) -> Any:
        """The setting, or ``default`` where the config does not have it."""
        return self.values.get(key, default)

    @contextmanager
    def installed(self) -> Iterator[Any]:
        """Puts a copy of this config in the place of ppdet's global config, and yields it.

        What ppdet writes into it is gone afterwards. Classes that are registered meanwhile stay registered.
        """
        with _in_place_of_ppdets(_copied(self.values)) as live:
            for section in _registered(live).values():
                _write_out_defaults(section)
            yield live


def load_config(path: str | Path, overrides: Iterable[str] = ()) -> DetConfig:
    """Reads a PaddleDetection config: a checkout's YAML with ``_BASE_``, or a self-contained one.

    A config can build any object that ppdet's YAML tags name, so it is to be trusted as code is.

    Args:
        path: The YAML file.
        overrides: Settings as ``-o`` takes them: ``"weights=path"``, ``"EvalDataset.dataset_dir=my/data"``.

    Raises:
        InputError: The file cannot be read, or an override names something that is not there.
    """
    path, overrides = Path(path), tuple(overrides)
    if not path.is_file():
        raise InputError(f"There is no config {path}; give the path of a PaddleDetection YAML file.")
    workspace = _workspace()
    with _in_place_of_ppdets({}) as live:
        try:
            workspace.load_config(str(path))
        except FileNotFoundError as error:
            raise InputError(f"{path} builds on {error.filename}, which is not there.") from error
        except (yaml.YAMLError, AssertionError, TypeError) as error:
            raise InputError(f"{path} is not a PaddleDetection config in YAML: {error}") from error
        if not isinstance(live.get("architecture"), str):
            raise InputError(
                f"{path} names no architecture; a model config has a line such as `architecture: YOLOv3`."
            )
        for text in overrides:
            _override(live, text)
        return DetConfig(path, dict(live), overrides)


def current_config() -> DetConfig:
    """What ppdet's global config holds now, as PaddleDetection's own tools have filled it."""
    live = _workspace().global_config
    # load_config leaves the file's name here, without folder and ending.
    return DetConfig(Path(f"{live.get('filename', 'the config')}.yml"), dict(live))


def _workspace() -> ModuleType:
    return import_ppdet("core.workspace")


@contextmanager
def _in_place_of_ppdets(values: Mapping[str, Any]) -> Iterator[Any]:
    live = _workspace().global_config
    before = dict(live)
    live.clear()
    live.update(_without_settings(before))
    live.update(values)
    try:
        yield live
    finally:
        now = dict(live)
        live.clear()
        live.update({**_without_settings(now), **before})


def _registered(values: Mapping[str, Any]) -> dict[str, Any]:
    """The registered classes among ``values``: for each, a section with the arguments that it is built with."""
    schema_dict = import_ppdet("core.config.schema").SchemaDict
    return {name: section for name, section in values.items() if isinstance(section, schema_dict)}


def _without_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _section_like(section) for name, section in _registered(values).items()}


def _copied(values: Mapping[str, Any]) -> dict[str, Any]:
    copied = _without_settings(values)
    for name, value in values.items():
        if name in copied:
            copied[name].update(copy.deepcopy(dict(value)))
        else:
            copied[name] = copy.deepcopy(value)
    return copied


def _section_like(section: Any) -> Any:
    """An empty section for the same class; what describes the class is shared."""
    fresh = type(section)()
    fresh.__dict__.update(section.__dict__)
    return fresh


def _write_out_defaults(section: Any) -> None:
    """Sets the arguments whose default is a list or a dict to a copy of it.

    ppdet's classes append to such defaults in their constructors (LCPAN and CSPPAN to ``spatial_scales``), so that a second
    network in the same process would come out wrong.
    """
    for name, argument in section.schema.items():
        if name not in section and argument.has_default() and isinstance(argument.default, (list, dict, set)):
            section[name] = copy.deepcopy(argument.default)


def _override(live: dict[str, Any], text: str) -> None:
    key, value = parsed_setting(text)
    head, *rest = key.split(".")
    if rest:
        if head not in live:
            raise InputError(f'The override "{text}" names a section that is not there{nearest(head, live)}.')
        _set_inside(live, [head, *rest], value, text)
    elif hasattr(live.get(head), "__dict__"):
        raise InputError(
            f'The override "{text}" would replace a whole section; name a part of it: {head}.<argument>.'
        )
    else:
        if head not in live:
            logger.warning(
                '"%s" is not a setting of this config%s', head, nearest(head, live) or "; it is added"
            )
        live[head] = value


def _set_inside(section: Any, keys: list[str], value: Any, text: str) -> None:
    """Sets a nested value; a section is a dict, or an object that a YAML tag such as ``!COCODataSet`` has built."""
    key, *rest = keys
    if isinstance(section, dict):
        schema = getattr(section, "schema", {})
        # strict is a registered class whose constructor takes no other arguments than its schema names.
        if getattr(section, "strict", False) and key not in section and key not in schema:
            name = getattr(section, "name", "the class")
            raise InputError(f'The override "{text}": {name} takes no "{key}"{nearest(key, schema)}.')
        if rest:
            _set_inside(section.setdefault(key, {}), rest, value, text)
        else:
            section[key] = value
    elif hasattr(section, key):
        if rest:
            _set_inside(getattr(section, key), rest, value, text)
        else:
            setattr(section, key, value)
    else:
        raise InputError(
            f'The override "{text}" goes through a {type(section).__name__}, which has no "{key}".'
        )
