"""PaddleDetection's slim config: which parameters its ``Pruner`` cuts, and by how much.

The file has a line ``slim: Pruner`` and a section ``Pruner`` with ``criterion``, and with two lists of the same length:
``pruned_params`` and ``pruned_ratios``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dysens.criteria import CRITERIA
from dysens.errors import InputError, nearest

# What PaddleDetection calls otherwise than dysens.criteria does.
_THEIR_NAMES = {"l1": "l1_norm"}
_OUR_NAMES = {theirs: ours for ours, theirs in _THEIR_NAMES.items()}


@dataclass(frozen=True)
class SlimConfig:
    """What a slim config says.

    Attributes:
        criterion: How filters are ranked, by the name in `dysens.criteria`; the file has PaddleDetection's name. Its own
            ``Pruner`` knows fpgm and l1 only.
        ratios: Parameter name to the part of its filters that goes, in the file's order.
        pretrain_weights: Where ``tools/train.py`` takes the weights from, where the file says it.
    """

    criterion: str
    ratios: Mapping[str, float]
    pretrain_weights: str | None = None

    def __post_init__(self) -> None:
        if self.criterion not in CRITERIA:
            hint = nearest(str(self.criterion), CRITERIA) or f"; known are {', '.join(CRITERIA)}"
            raise InputError(f"A slim config cannot have the criterion {self.criterion!r}{hint}.")
        for name, ratio in self.ratios.items():
            if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 <= ratio < 1:
                raise InputError(
                    f"The ratio of {name} is {ratio!r}; it must be a number from 0 up to, not with, 1."
                )


def write_slim_config(path: str | Path, config: SlimConfig) -> None:
    """Writes a file for PaddleDetection's ``tools/train.py --slim_config``."""
    content: dict[str, Any] = (
        {} if config.pretrain_weights is None else {"pretrain_weights": config.pretrain_weights}
    )
    content["slim"] = "Pruner"
    content["Pruner"] = {
        "criterion": _THEIR_NAMES.get(config.criterion, config.criterion),
        "pruned_params": list(config.ratios),
        "pruned_ratios": [float(ratio) for ratio in config.ratios.values()],
        "print_params": False,
    }
    text = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=110, allow_unicode=True)
    Path(path).write_text(text, encoding="utf-8")


def read_slim_config(path: str | Path) -> SlimConfig:
    """Reads a slim config of the kind ``slim: Pruner``.

    Raises:
        InputError: The file is missing, is of another kind, or its two lists do not fit each other.
    """
    path = Path(path)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"The slim config {path} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not YAML: {error}") from error
    if (
        not isinstance(content, dict)
        or content.get("slim") != "Pruner"
        or not isinstance(content.get("Pruner"), dict)
    ):
        raise InputError(f"{path} is not a pruning config; it needs `slim: Pruner` and a section `Pruner:`.")
    return slim_config_of(str(path), content["Pruner"], content.get("pretrain_weights"))


def slim_config_of(
    source: str, section: Mapping[str, Any], pretrain_weights: str | None = None
) -> SlimConfig:
    """What a section ``Pruner`` says.

    Args:
        source: Where it is from, for messages.
        section: With PaddleDetection's keys and names.
        pretrain_weights: Beside the section, where the file has it.

    Raises:
        InputError: Its two lists do not fit each other, or hold what cannot be.
    """
    params, ratios = section.get("pruned_params"), section.get("pruned_ratios")
    if not isinstance(params, list) or not isinstance(ratios, list):
        raise InputError(f"{source}: Pruner.pruned_params and Pruner.pruned_ratios must both be lists.")
    if len(params) != len(ratios):
        raise InputError(
            f"{source} names {len(params)} parameters but {len(ratios)} ratios; it needs one for each."
        )
    repeated = sorted({name for name in params if params.count(name) > 1})
    if repeated:
        raise InputError(f"{source} names {repeated[0]} more than once in Pruner.pruned_params.")
    criterion = str(section.get("criterion"))
    return SlimConfig(_OUR_NAMES.get(criterion, criterion), dict(zip(params, ratios)), pretrain_weights)
