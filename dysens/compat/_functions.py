"""PaddleSlim's module functions by their names, and its arguments as the front door takes them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Union

import paddle
from paddle import nn

from dysens.errors import InputError, nearest
from dysens.groups import ChannelGroup, filters_by_path
from dysens.ratios import ratios_by_loss
from dysens.results import Sensitivities, is_slim_file, read_slim_file

logger = logging.getLogger(__name__)


def arguments(inputs: Any, dtype: str) -> Any:
    """PaddleSlim's inputs as the front door takes them: a list that holds no shapes is a list of arguments."""
    if not isinstance(inputs, (list, tuple)):
        return inputs
    shapes = [inputs] if all(isinstance(side, int) for side in inputs) else inputs
    if all(isinstance(s, (list, tuple)) and all(isinstance(side, int) for side in s) for s in shapes):
        return inputs if dtype == "float32" else tuple(paddle.ones(shape, dtype) for shape in shapes)
    return tuple(inputs)


def check_type(prune_type: str, num_head: int = -1) -> None:
    """Refuse what only PaddleSlim prunes."""
    if prune_type != "conv" or num_head != -1:
        raise InputError(
            f'The argument prune_type is "{prune_type}" and num_head is {num_head}; dysens prunes filters of '
            'convolutions: "conv" and -1.'
        )


def check_axis(axis: int | Iterable[int]) -> None:
    """Refuse any axis but that of filters."""
    if axis != 0 and list(axis if isinstance(axis, Iterable) else [axis]) != [0]:
        raise InputError(f"The axis is {axis}; dysens removes filters, and those are on axis 0.")


def is_slims(sen_file: Path) -> bool:
    """Whether a file is, or is to be, in PaddleSlim's format."""
    return sen_file.suffix != ".jsonl" and (not sen_file.exists() or is_slim_file(sen_file))


def journal_of(sen_file: Path) -> Path:
    """What to give to the front door, which goes on beside a file of PaddleSlim's."""
    return Path(f"{sen_file}.jsonl") if is_slims(sen_file) and not sen_file.exists() else sen_file


def present(names: Iterable[str], model: nn.Layer, what: str) -> list[str]:
    """The names that the model has. Scripts carry names of other networks along; PaddleSlim overlooks those."""
    filters = filters_by_path(model)
    known = {*filters, *(tensor.name for tensor in filters.values())}
    names = [names] if isinstance(names, str) else list(names)
    unknown = [name for name in names if name not in known]
    if unknown:
        logger.warning("%s: the model has no filters by the name %s.", what, ", ".join(unknown))
    return [name for name in names if name in known]


def ratios_of_groups(
    ratios: Mapping[str, float], model: nn.Layer, groups: Sequence[ChannelGroup]
) -> dict[str, float]:
    """The ratio of every group that is meant; the weight that names a group decides, then any other of its weights."""
    names = {path: tensor.name for path, tensor in filters_by_path(model).items()}
    leaders = {key: group.name for group in groups for key in (group.name, group.path)}
    members = {piece.tensor: group.name for group in groups for _, piece in group.scored}
    members.update({names[path]: name for path, name in members.items() if path in names})
    chosen = {leaders[name]: ratio for name, ratio in ratios.items() if name in leaders}
    for name, ratio in ratios.items():
        if name in members:
            chosen.setdefault(members[name], ratio)
    others = [name for name in ratios if name not in leaders and name not in members]
    parameters = {parameter.name for parameter in model.parameters()} | set(model.state_dict())
    for name in others:
        if name not in parameters:
            raise InputError(
                f'"{name}" names no parameter of this model{nearest(str(name), parameters) or "."}'
            )
    if others:
        logger.info("Passed over, as they are in no group: %s", ", ".join(others))
    return chosen


Curves = Mapping[str, Mapping[float, float]]
File = Union[str, "os.PathLike[str]"]


def load_sensitivities(sensitivities_file: File | None) -> dict[str, dict[float, float]]:
    """Loads sensitivities from a PaddleSlim pickle, or from any file that `Sensitivities.load` reads.

    Args:
        sensitivities_file: The file. Without one, or if it does not exist, the result is empty.

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
