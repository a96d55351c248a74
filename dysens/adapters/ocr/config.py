"""PaddleOCR's YAML configs, with the overrides that its tools take on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from dysens.errors import InputError, nearest
from dysens.settings import parsed_setting

# What PaddleOCR reads from `Global` though its YAML files may leave it out.
OPTIONAL_GLOBAL_KEYS = frozenset(
    {
        "algorithm",
        "cal_metric_during_train",
        "calc_epoch_interval",
        "character_dict_path",
        "checkpoints",
        "d2s_train_image_shape",
        "eval_batch_epoch",
        "infer_img",
        "infer_mode",
        "max_text_length",
        "pretrained_model",
        "print_mem_info",
        "save_inference_dir",
        "seed",
        "use_gpu",
        "use_space_char",
    }
)


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Reads a PaddleOCR config and applies ``Key.sub=value`` overrides.

    Args:
        path: A ``.yml`` file in PaddleOCR's shape.
        overrides: As after ``-o`` of PaddleOCR's tools. Values are YAML; a number in the key picks an entry
            of a list. The key must exist; ``+Key.sub=value`` adds one that does not.

    Raises:
        InputError: The file cannot be read, or an override does not fit it.

    Example:
        >>> config = load_config("configs/ocr/ch_PP-OCRv3_det.yml", ["Global.epoch_num=2"])  # doctest: +SKIP
        >>> config["Global"]["epoch_num"]  # doctest: +SKIP
        2
    """
    return override(_read(Path(path)), overrides)


def override(config: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A copy of ``config`` with the overrides applied, see `load_config`.

    Example:
        >>> override({"Global": {"epoch_num": 500}}, ["Global.epoch_num=2"])
        {'Global': {'epoch_num': 2}}
    """
    changed = deepcopy(dict(config))
    for text in overrides:
        _apply(changed, text)
    return changed


def section(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The section at a dotted ``key``.

    Raises:
        InputError: It is not there, or not a section.
    """
    here: Any = config
    for depth, name in enumerate(key.split(".")):
        if not isinstance(here, Mapping) or name not in here:
            known = here if isinstance(here, Mapping) else ()
            raise InputError(
                f'the config has no section "{".".join(key.split(".")[: depth + 1])}"{nearest(name, known)}; '
                "PaddleOCR's configs have it, so this one may be cut off or misspelt."
            )
        here = here[name]
    if not isinstance(here, dict):
        raise InputError(f'"{key}" of the config is {here!r}, but must be a section with keys of its own.')
    return here


def _read(path: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f'the config "{path}" cannot be read: {error.strerror}.') from error
    except yaml.YAMLError as error:
        raise InputError(f'the config "{path}" is not valid YAML: {error}') from error
    if not isinstance(config, dict):
        raise InputError(
            f'the config "{path}" has no sections (Global, Architecture, ...): is it a PaddleOCR config?'
        )
    return config


def _apply(config: dict[str, Any], text: str) -> None:
    key, parsed = parsed_setting(text)
    adds = key.startswith("+")
    names = key.removeprefix("+").split(".")
    if not all(names):
        raise InputError(f'the override "{text}" is not of the form Key.sub=value.')
    here: Any = config
    for name in names[:-1]:
        here = here[_existing(here, name, text)]
    last = names[-1]
    optional = OPTIONAL_GLOBAL_KEYS if names[:-1] == ["Global"] else frozenset()
    if isinstance(here, dict) and (adds or last in optional):
        here[last] = parsed
    else:
        here[_existing(here, last, text, optional)] = parsed


def _existing(here: Any, name: str, text: str, optional: frozenset[str] = frozenset()) -> str | int:
    """``name`` as a key or index that ``here`` has; ``optional`` names only help the message."""
    if isinstance(here, list) and name.isdigit() and int(name) < len(here):
        return int(name)
    if isinstance(here, dict) and name in here:
        return name
    if isinstance(here, dict):
        raise InputError(
            f'the override "{text}" names "{name}", which the config does not have at that place'
            f"{nearest(name, [str(key) for key in [*here, *optional]])} (write +{text.lstrip('+')} to add it)"
        )
    if isinstance(here, list):
        raise InputError(
            f'the override "{text}" needs a number from 0 to {len(here) - 1} where it says "{name}".'
        )
    raise InputError(f'the override "{text}" goes below a plain value ({here!r}) with "{name}".')
