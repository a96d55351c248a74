"""PaddleOCR's YAML configs, and what they say about the network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from dysens.errors import InputError, nearest, yaml_problem
from dysens.flags import parsed_setting

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
                f'The config has no section "{".".join(key.split(".")[: depth + 1])}"{nearest(name, known)}; '
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
        raise InputError(f'The config "{path}" cannot be read: {error.strerror}.') from error
    except yaml.YAMLError as error:
        raise InputError(f'The config "{path}" is not valid YAML: {yaml_problem(error)}.') from error
    if not isinstance(config, dict):
        raise InputError(
            f'The config "{path}" has no sections (Global, Architecture, ...): is it a PaddleOCR config?'
        )
    return config


def _apply(config: dict[str, Any], text: str) -> None:
    key, parsed = parsed_setting(text)
    adds = key.startswith("+")
    names = key.removeprefix("+").split(".")
    if not all(names):
        raise InputError(f'The override "{text}" is not of the form Key.sub=value.')
    here: Any = config
    for name in names[:-1]:
        at = _existing(here, name, text)
        if adds and here[at] is None:  # such as "DetResizeForTest:" in the stock configs
            here[at] = {}
        here = here[at]
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
            f'The override "{text}" names "{name}", which the config does not have at that place'
            f"{nearest(name, [str(key) for key in [*here, *optional]])} (write +{text.lstrip('+')} to add it)"
        )
    if isinstance(here, list):
        raise InputError(
            f'The override "{text}" needs a number from 0 to {len(here) - 1} where it says "{name}".'
        )
    hint = f" (write +{text} to add it)" if here is None else ""
    raise InputError(f'The override "{text}" goes below a plain value ({here!r}) with "{name}"{hint}.')


# PaddleOCR's training loop hands the labels to the networks of these algorithms (`extra_input_models` in
# its program.py).
LABELS_IN_TRAINING = frozenset(
    {
        "CPPD",
        "DRRG",
        "NRTR",
        "ParseQ",
        "RFL",
        "RobustScanner",
        "SAR",
        "SATRN",
        "SEED",
        "SPIN",
        "SRN",
        "SVTR",
        "SVTR_HGNet",
        "SVTR_LCNet",
        "VisionLAN",
    }
)
# Of those, the ones whose heads look at the labels in training only: an image is enough to score them.
LABEL_FREE_HEADS = frozenset({"MultiHead", "CTCHead"})


def is_distillation(config: Mapping[str, Any]) -> bool:
    """Whether the config trains several networks against each other."""
    return section(config, "Architecture").get("algorithm") == "Distillation"


def network_name(config: Mapping[str, Any], wanted: str | None) -> str | None:
    """Which network of a distillation config to work on: ``wanted``, or the one that its metric is about.

    Returns:
        The key under ``Architecture.Models``; None for a config with one network only.

    Raises:
        InputError: There is no such network.
    """
    if not is_distillation(config):
        if wanted is not None:
            raise InputError(
                f'The config has a single network, so there is no sub-model "{wanted}" to choose.'
            )
        return None
    models = section(config, "Architecture.Models")
    name = wanted or section(config, "Metric").get("key")
    if name not in models:
        raise InputError(
            f'The distillation config has no sub-model "{name}"{nearest(str(name), models)}; '
            f"it has: {', '.join(models)}."
        )
    return str(name)


def network_sections(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The ``Architecture`` of each network that the config describes."""
    if is_distillation(config):
        return list(section(config, "Architecture.Models").values())
    return [section(config, "Architecture")]


def network_section(config: Mapping[str, Any], submodel: str | None) -> dict[str, Any]:
    """The ``Architecture`` of one network: the named one of a distillation config."""
    return section(config, "Architecture" if submodel is None else f"Architecture.Models.{submodel}")


def takes_labels(config: Mapping[str, Any], *, training: bool) -> bool:
    """Whether the forward is called with the labels next to the image, as in PaddleOCR's own loops."""
    networks = [net for net in network_sections(config) if net.get("algorithm") in LABELS_IN_TRAINING]
    if training:
        return bool(networks)
    return any((net.get("Head") or {}).get("name") not in LABEL_FREE_HEADS for net in networks)


def fill_out_channels(config: dict[str, Any], post_process: Any) -> None:
    """Writes the number of classes into heads and losses, as PaddleOCR's train.py does."""
    characters = getattr(post_process, "character", None)
    if characters is None:
        return
    classes = len(characters)
    decoder = str(section(config, "PostProcess")["name"]).removeprefix("Distillation")
    ctc_classes = classes - {"SARLabelDecode": 2, "NRTRLabelDecode": 3}.get(decoder, 0)
    for network in network_sections(config):
        head = network["Head"]
        if head["name"] == "MultiHead":
            head["out_channels_list"] = {
                "CTCLabelDecode": ctc_classes,
                "SARLabelDecode": ctc_classes + 2,
                "NRTRLabelDecode": ctc_classes + 3,
            }
        else:
            head["out_channels"] = classes
    loss = config.get("Loss") or {}
    for entry in loss.get("loss_config_list", []):
        for name in ("SARLoss", "DistillationSARLoss"):
            if name in entry:
                entry[name] = {**(entry[name] or {}), "ignore_index": ctc_classes + 1}
    if decoder == "SARLabelDecode":
        loss["ignore_index"] = classes - 1


def input_shape(config: Mapping[str, Any]) -> tuple[int, int, int]:
    """Channels, height and width of the images that the network is meant for.

    Taken from the transforms of ``Eval``, then ``Global.d2s_train_image_shape``, then the transforms of
    ``Train``.

    Raises:
        InputError: None of them fixes a size.

    Example:
        >>> transforms = [{"RecResizeImg": {"image_shape": [3, 48, 320]}}]
        >>> input_shape({"Eval": {"dataset": {"transforms": transforms}}})
        (3, 48, 320)
    """
    declared = (config.get("Global") or {}).get("d2s_train_image_shape")
    for shape in (_shape_of_transforms(config, "Eval"), declared, _shape_of_transforms(config, "Train")):
        if shape:
            channels, height, width = ([3, *shape] if len(shape) == 2 else shape)[:3]
            return int(channels), int(height), int(width)
    raise InputError(
        "The config does not say which image size the network takes: give one of its transforms an "
        "image_shape, or set Global.d2s_train_image_shape=[3,640,640]."
    )


def _shape_of_transforms(config: Mapping[str, Any], mode: str) -> list[int] | None:
    for name, arguments in transforms(config, mode):
        if "Resize" in name and "image_shape" in arguments:  # RecConAug has one too, in another order
            return list(arguments["image_shape"])
        if name == "EastRandomCropData" and "size" in arguments:
            width, height = arguments["size"]  # PaddleOCR reads this one as width, height
            return [height, width]
    return None


def transforms(config: Mapping[str, Any], mode: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and arguments of each transform of ``Train`` or ``Eval``."""
    for entry in ((config.get(mode) or {}).get("dataset") or {}).get("transforms") or []:
        for name, arguments in entry.items():
            yield name, arguments if isinstance(arguments, dict) else {}
