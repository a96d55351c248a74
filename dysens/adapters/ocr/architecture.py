"""What a config says about its network: sub-models, classes, input size, what the forward is called with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dysens.adapters.ocr.config import section
from dysens.errors import InputError, nearest

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
                f'the config has a single network, so there is no sub-model "{wanted}" to choose.'
            )
        return None
    models = section(config, "Architecture.Models")
    name = wanted or section(config, "Metric").get("key")
    if name not in models:
        raise InputError(
            f'the distillation config has no sub-model "{name}"{nearest(str(name), models)}; '
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
        "the config does not say which image size the network takes: give one of its transforms an "
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
