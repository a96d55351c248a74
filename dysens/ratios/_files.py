"""Ratio files of every kind: one reader, one writer.

- YAML or JSON that maps layer paths (or parameter names) to ratios: what ``dysens ratios`` and the report's page write, and
  what people write by hand.
- PaddleDetection's slim config: a line ``slim: Pruner`` and a section ``Pruner`` with ``criterion``, and with two lists of
  the same length, ``pruned_params`` and ``pruned_ratios``.

The content says which kind a file is, not its name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

import yaml

from dysens.errors import InputError
from dysens.flags import flag
from dysens.ratios._target import checked_number, ratio_key

PathLike = Union[str, "os.PathLike[str]"]

KINDS = ("yaml", "json", "slim")

_MAX_BYTES = 16 * 1024 * 1024  # a network of a million groups does not need more

# What PaddleDetection calls otherwise than dysens does.
_THEIR_NAMES = {"l1": "l1_norm"}
_OUR_NAMES = {theirs: ours for ours, theirs in _THEIR_NAMES.items()}


@dataclass(frozen=True)
class RatioFile:
    """The content of a ratio file.

    Attributes:
        ratios: Layer path or parameter name to the share of its filters that goes, in the file's order.
        criterion: How filters are ranked, by dysens' name for it; None where the file does not say it. Only a slim config does.
        pretrain_weights: Where PaddleDetection's ``tools/train.py`` takes the weights from, where a slim config says it.
        source: Where this is from, for messages.
    """

    ratios: dict[str, float]
    criterion: str | None = None
    pretrain_weights: str | None = None
    source: str = field(default="The ratios", compare=False)

    def check_criterion(self, criterion: str) -> None:
        """Raise InputError for another criterion than the file's.

        Args:
            criterion: The name of the criterion that filters are to be ranked by.

        Raises:
            InputError: The file names another one.
        """
        if self.criterion is not None and self.criterion != criterion:
            raise InputError(
                f"{self.source} has ratios for the criterion {self.criterion}, but filters are to be ranked by "
                f"{criterion}: give {flag('criterion')} {self.criterion}."
            )


def read_ratio_file(path: PathLike) -> RatioFile:
    """Read a ratio file of any kind.

    Args:
        path: YAML or JSON, or a PaddleDetection slim config of the kind ``slim: Pruner``.

    Raises:
        InputError: The file cannot be read, or holds no ratios; the message says what is wrong.
    """
    content = _parsed(_text(Path(path)), str(path))
    if isinstance(content, dict) and ("slim" in content or "Pruner" in content):
        return _from_slim_config(content, str(path))
    if not isinstance(content, dict) or not content:
        raise InputError(
            f"{path} holds no ratios: it must map layer paths to shares from 0 up to 1, or be a slim config of "
            "PaddleDetection with `slim: Pruner`."
        )
    return RatioFile(_checked(content, str(path)), source=str(path))


def ratios_of_pruner(
    section: Mapping[str, Any], source: str, pretrain_weights: str | None = None
) -> RatioFile:
    """The ratios in the section ``Pruner`` of a slim config.

    Args:
        section: With PaddleDetection's keys and names.
        source: Where it is from, for messages.
        pretrain_weights: Beside the section, where the file has it.

    Raises:
        InputError: Its two lists do not fit each other, or hold what cannot be.
    """
    params, ratios = section.get("pruned_params"), section.get("pruned_ratios")
    if not isinstance(params, (list, tuple)) or not isinstance(ratios, (list, tuple)):
        raise InputError(f"{source}: Pruner.pruned_params and Pruner.pruned_ratios must both be lists.")
    if len(params) != len(ratios):
        raise InputError(
            f"{source} names {len(params)} parameters but {len(ratios)} ratios; it needs one for each."
        )
    criterion = section.get("criterion")
    if not isinstance(criterion, str) or not criterion:
        raise InputError(
            f"{source}: Pruner.criterion must be the name of a criterion, such as fpgm, not {criterion!r}."
        )
    if not params:
        raise InputError(f"{source} holds no ratios: Pruner.pruned_params is empty.")
    chosen = _unrepeated(zip(params, ratios), f"{source}, in Pruner.pruned_params,")
    return RatioFile(_checked(chosen, source), _OUR_NAMES.get(criterion, criterion), pretrain_weights, source)


def write_ratio_file(
    path: PathLike,
    ratios: Mapping[str, float],
    kind: str | None = None,
    criterion: str | None = None,
    pretrain_weights: str | None = None,
) -> None:
    """Write a ratio file.

    Args:
        path: The file; folders are made.
        ratios: By layer path: automatic parameter names shift from process to process.
        kind: "yaml", "json", or "slim" for PaddleDetection's ``tools/train.py --slim_config``. If not given, JSON if the
            name ends so, else YAML.
        criterion: For a slim config: how filters are ranked.
        pretrain_weights: For a slim config: the weights that training begins with.

    Raises:
        InputError: There is nothing to write, something that cannot be, or no way to write it.
    """
    place = Path(path)
    text = ratio_file_text(
        ratios, kind or ("json" if place.suffix == ".json" else "yaml"), criterion, pretrain_weights
    )
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{place} cannot be written: {error.strerror or error}.") from error


def ratio_file_text(
    ratios: Mapping[str, float],
    kind: str = "yaml",
    criterion: str | None = None,
    pretrain_weights: str | None = None,
) -> str:
    """What `write_ratio_file` writes; its arguments are described there.

    Example:
        >>> print(ratio_file_text({"stem.weight": 0.1 + 0.2}), end="")
        stem.weight: 0.3
    """
    if kind not in KINDS:
        raise InputError(f"There is no kind of ratio file {kind!r}; there are {', '.join(KINDS)}.")
    if not ratios:
        raise InputError("There are no ratios to write.")
    tidy = {name: _tidy(ratio) for name, ratio in _checked(ratios, "What is to be written").items()}
    if kind == "slim":
        return _slim_config_text(tidy, criterion, pretrain_weights)
    if criterion is not None or pretrain_weights is not None:
        raise InputError(
            f"Only a slim config holds a criterion and weights; a ratio file of the kind {kind} cannot."
        )
    if kind == "json":
        return json.dumps(tidy, indent=1) + "\n"
    return _yaml_text(tidy, tidy)


def _slim_config_text(
    ratios: Mapping[str, float], criterion: str | None, pretrain_weights: str | None
) -> str:
    if not criterion:
        raise InputError("A slim config needs the name of its criterion, such as fpgm.")
    content: dict[str, Any] = {} if pretrain_weights is None else {"pretrain_weights": pretrain_weights}
    content["slim"] = "Pruner"
    content["Pruner"] = {
        "criterion": _THEIR_NAMES.get(criterion, criterion),
        "pruned_params": list(ratios),
        "pruned_ratios": list(ratios.values()),
        "print_params": False,
    }
    return _yaml_text(content, [*ratios, pretrain_weights or ""], flow=None)


def _yaml_text(content: Mapping[str, Any], names: Iterable[str], flow: bool | None = False) -> str:
    # Chinese stays readable; what PyYAML would write as a line break (U+0085) is escaped.
    readable = all(name.isprintable() for name in names)
    return yaml.dump(
        content,
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=flow,
        width=110,
        allow_unicode=readable,
    )


def _tidy(ratio: float) -> float:
    """Without float noise; what is all but 1 must not become 1, which would leave nothing."""
    rounded = ratio_key(ratio)
    return rounded if rounded < 1 else ratio


def _from_slim_config(content: Mapping[str, Any], source: str) -> RatioFile:
    section, weights = content.get("Pruner"), content.get("pretrain_weights")
    if content.get("slim") != "Pruner" or not isinstance(section, dict):
        raise InputError(
            f"{source} is not a pruning config; it needs `slim: Pruner` and a section `Pruner:`."
        )
    if weights is not None and not isinstance(weights, str):
        raise InputError(f"{source}: pretrain_weights must be a path or an address, not {weights!r:.80}.")
    return ratios_of_pruner(section, source, weights)


def _checked(ratios: Mapping[Any, Any], source: str) -> dict[str, float]:
    """Names to numbers that can be ratios."""
    found = {}
    for name, value in ratios.items():
        ratio = checked_number(f"{source}: the ratio of {name}", value)
        if not 0 <= ratio < 1:
            raise InputError(f"{source}: the ratio of {name} must be at least 0 and under 1, not {value}.")
        found[str(name)] = ratio
    return found


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"{path} is larger than {_MAX_BYTES} bytes, so it cannot be a ratio file.")
        return path.read_text(encoding="utf-8-sig")  # some editors mark UTF-8
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} holds no ratios: it is not UTF-8 text.") from error


def _parsed(text: str, source: str) -> Any:
    """JSON or YAML as plain values; names that come twice are refused, where both formats would drop the first."""

    def pairs(found: list[tuple[str, Any]]) -> dict[Hashable, Any]:
        return _unrepeated(found, source)

    try:
        return json.loads(text, object_pairs_hook=pairs)
    except InputError:
        raise
    except (ValueError, RecursionError):
        pass  # then it is YAML, or nothing
    try:
        loader = _Loader(text)
        loader.source = source
        return loader.get_single_data()
    except InputError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{source} is neither YAML nor JSON: {' '.join(str(error).split())}.") from error


def _unrepeated(pairs: Iterable[tuple[Any, Any]], source: str) -> dict[Hashable, Any]:
    found: dict[Hashable, Any] = {}
    for name, value in pairs:
        if not isinstance(name, Hashable):
            raise InputError(f"{source} has {name!r:.80} where the name of a parameter belongs.")
        if name in found:
            raise InputError(f"{source} names {name} more than once.")
        found[name] = value
    return found


class _Loader(yaml.SafeLoader):
    """YAML that refuses repeated names, and takes 1e-3 for a number, as YAML 1.2 does."""

    source = ""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        self.flatten_mapping(node)
        pairs = (
            (self.construct_object(key, deep=True), self.construct_object(value, deep=True))
            for key, value in node.value
        )
        return _unrepeated(pairs, self.source)


class _Dumper(yaml.SafeDumper):
    """YAML that puts names in quotes which `_Loader` would take for numbers, such as 0E0."""


for _side in (_Loader, _Dumper):
    _side.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )
