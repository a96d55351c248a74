"""Pruning ratios on disk: layer path to ratio, as YAML or JSON, to be read and edited by people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import yaml

from dysens.errors import InputError


def write_ratios(path: Path, ratios: Mapping[str, float]) -> None:
    """Writes JSON if the name ends so, else YAML.

    Args:
        path: The file; folders are made.
        ratios: By layer path: automatic parameter names shift from process to process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(ratios_text(ratios, as_json=path.suffix == ".json"), encoding="utf-8")


def ratios_text(ratios: Mapping[str, float], as_json: bool = False) -> str:
    """Ratios as JSON or YAML; no cut is so fine that it needs more than six digits."""
    rounded = {name: round(float(ratio), 6) for name, ratio in ratios.items()}
    return json.dumps(rounded, indent=1) + "\n" if as_json else yaml.safe_dump(rounded, sort_keys=False)


def read_ratios(path: Path) -> dict[str, float]:
    """Reads what `write_ratios` wrote, or what somebody wrote by hand.

    Raises:
        InputError: The file is not there, or is no mapping of names to numbers.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))  # JSON is YAML too
    except OSError as error:
        raise InputError(f'the ratios "{path}" cannot be read: {error.strerror}.') from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f'the ratios "{path}" are neither YAML nor JSON: {error}') from error
    if not isinstance(content, dict) or not content:
        raise InputError(f'"{path}" holds no ratios: it must map parameters to shares between 0 and 1.')
    for name, ratio in content.items():
        if isinstance(ratio, bool) or not isinstance(ratio, (int, float)):
            raise InputError(f'the ratio of "{name}" in "{path}" is {ratio!r}, but must be a number.')
    return {str(name): float(ratio) for name, ratio in content.items()}
