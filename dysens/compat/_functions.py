"""PaddleSlim's module functions, by its names: the same arguments, the same results."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Union

from dysens.errors import InputError
from dysens.ratios import ratios_by_loss
from dysens.results import Sensitivities, is_slim_file, read_slim_file

Curves = Mapping[str, Mapping[float, float]]
File = Union[str, "os.PathLike[str]"]


def load_sensitivities(sensitivities_file: File | None) -> dict[str, dict[float, float]]:
    """Loads sensitivities from a PaddleSlim pickle, or from any file that `Sensitivities.load` reads.

    Args:
        sensitivities_file: The file. Without one, or if it doesn't exist, the result is empty.

    Returns:
        Name to {ratio: loss}.
    """
    if not sensitivities_file or not Path(sensitivities_file).exists():
        return {}
    if is_slim_file(sensitivities_file):
        return read_slim_file(sensitivities_file)
    return Sensitivities.load(sensitivities_file).to_dict()


def merge_sensitive(sensitivities: Sequence[Curves | File]) -> dict[str, dict[float, float]]:
    """Merges sensitivities; where two hold the same point the later one counts.

    Args:
        sensitivities: Dictionaries, or files of them.

    Returns:
        Name to {ratio: loss}. `Sensitivities.merge` is the one that finds contradictions.
    """
    if not sensitivities:
        raise InputError("There is nothing to merge: give at least one dictionary or file of sensitivities.")
    merged: dict[str, dict[float, float]] = {}
    for part in sensitivities:
        curves: Curves = part if isinstance(part, Mapping) else load_sensitivities(part)
        for name, losses in curves.items():
            merged.setdefault(name, {}).update(losses)
    return merged


def get_ratios_by_loss(sensitivities: Curves, loss: float) -> dict[str, float]:
    """PaddleSlim's choice: the ratio per parameter whose loss stays at ``loss``; 0 where every measured loss is above it.

    It goes by the points as they were measured, so that a lucky one counts; `Sensitivities.ratios_by_loss` is
    the cautious choice.

    Args:
        sensitivities: Name to {ratio: loss}.
        loss: The threshold.

    Returns:
        Name to ratio. `Sensitivities.ratios_by_loss` leaves out the zeros, as PaddleSlim's dygraph pruners
        do.
    """
    admitted = ratios_by_loss(sensitivities, loss, monotone=False)
    return {name: admitted.get(name, 0.0) for name, losses in sensitivities.items() if losses}
