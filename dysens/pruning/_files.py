"""What a pruned model's files may hold: weights without code, and a plan that is checked number by number.

A plan can only make tensors narrower and tell layers their new width. What it may set by name is in an allow-list, and a
width can only become smaller. Any other attribute has to hold a width, a share, an end or a list of sections of what the same
plan cuts inside that block, and can only be set to what is left of it: a file cannot switch anything else in a network.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import paddle
from paddle import nn
from paddle.nn.layer.conv import _ConvNd

from dysens._pickle import read_plain
from dysens.errors import InputError, UnsafePickleError, in_a_sentence
from dysens.groups import Role, may_be_share, roles_of
from dysens.model import tensors_by_path
from dysens.pruning._plan import PrunePlan, TensorCut
from dysens.pruning._widths import WIDTH_ATTRIBUTES

MAX_WEIGHTS_BYTES = 8 * 2**30

NAME_TABLE = "StructuredToParameterName@@"
"""Where ``paddle.save`` keeps the automatic name of each parameter, by its path in the network."""

_BIG_ARRAYS = "UnpackBigParamInfor@@"  # Paddle's spelling


def read_state(
    path: str | os.PathLike[str], trusted: bool = False, keep_name_table: bool = False
) -> dict[str, Any]:
    """What ``paddle.load(path, return_numpy=True)`` gives for a ``.pdparams``, ``.pdopt`` or ``.pdema`` file.

    Args:
        path: The file, with its ending.
        trusted: Let ``paddle.load`` unpickle the file, which runs whatever code its author put there.
        keep_name_table: Keep the entry `NAME_TABLE`, as with ``paddle.load``.

    Returns:
        Names to read-only NumPy arrays (bfloat16 as uint16, as Paddle does), numbers, strings, and dictionaries, lists
        and tuples of such.

    Raises:
        InputError: There is no such file, or it is damaged, too large, or no state dict.
        UnsafePickleError: It asks for a class or function that weights never need; it is named.
    """
    place = Path(path)
    if trusted:
        state = _loaded_by_paddle(place)
    else:
        try:
            state = read_plain(place, "weights", MAX_WEIGHTS_BYTES)
        except UnsafePickleError as error:
            raise UnsafePickleError(
                f"{error} If you trust its author, load it with paddle.load in Python and save its tensors alone with "
                "paddle.save (or load_pruned(..., trusted=True) lets Paddle run it)."
            ) from error
        _join_big_arrays(state, place)
    odd = next((name for name in state if not isinstance(name, str)), None)
    if odd is not None:
        raise InputError(f'"{place}" is not a state dict: it has an entry {odd!r:.80}, which is not a name.')
    if not keep_name_table:
        state.pop(NAME_TABLE, None)
    return state


def check_array(name: str, value: Any, tensor: paddle.Tensor) -> None:
    """Refuses what a file has for a tensor if it is no array, or one of another type of number.

    Raises:
        InputError: Then, with the name.
    """
    wanted = str(tensor.dtype).rpartition(".")[2]
    found = value.dtype.name if isinstance(value, np.ndarray) else type(value).__name__
    if found != {"bfloat16": "uint16"}.get(wanted, wanted):
        raise InputError(f"'{name}' is {wanted} in the network, and {found} in the file.")


def _loaded_by_paddle(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f'There is no file "{path}".')
    try:
        state = paddle.load(str(path), return_numpy=True, keep_name_table=True)
    except Exception as error:  # of any kind: the file may run anything
        raise InputError(f'"{path}" cannot be loaded by Paddle: {in_a_sentence(error)}.') from error
    if not isinstance(state, dict):
        raise InputError(f'"{path}" holds a {type(state).__name__}, not a state dict.')
    return state


def _join_big_arrays(state: dict[str, Any], path: Path) -> None:
    """Puts together the arrays of over 1 GiB that ``paddle.save`` cuts into slices with protocols 2 and 3."""
    table = state.pop(_BIG_ARRAYS, {})
    try:
        for name, about in table.items():
            # Each slice is used up, so a file cannot ask for more memory than it has itself.
            slices = [state.pop(part) for part in about["slices"]]
            (dtype,) = {part.dtype for part in slices}
            if math.prod(about["OriginShape"]) != sum(part.size for part in slices):
                raise ValueError(f"{name} lacks a part")
            state[name] = np.concatenate(slices, dtype=dtype).reshape(about["OriginShape"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f'"{path}" is damaged: its table of large arrays does not fit ({error!s:.200}).'
        ) from error


FORMAT = 2  # 2 knows "order"; a plan that needs none is written as 1, for those who have an older dysens

_NO_WIDTH = (
    "{} is refused: it sets '{:.80}' of layer '{:.80}', which is not a width of what is cut there, and a plan may set nothing "
    "else."
)

MAX_PLAN_BYTES = 64 * 2**20
"""Far more than the plan of any network needs."""


class PlanFile:
    """The content of a plan file.

    Attributes:
        stages: One plan per cut.
        parameters: The automatic name of each parameter when the plan was written, to its path.
        saved_with: The endings of the files that were saved with it; empty if somebody else saved the weights.

    Raises:
        InputError: There is no such file, or it is no plan.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        data = self._read()
        version: Any = data.get("format")
        if not _is_whole(version, 1):
            raise self._damaged("it has no format")
        if version > FORMAT:
            raise InputError(
                f"The plan {path} has format {version}, this dysens knows up to {FORMAT}; update dysens."
            )
        stages = data.get("stages")
        if not isinstance(stages, list):
            raise self._damaged("it has no stages")
        self.stages = [self._stage(stage) for stage in stages]
        self.parameters = self._texts(data.get("parameters"), "parameters")
        self.saved_with = data.get("saved_with", [])
        if not isinstance(self.saved_with, list):
            raise self._damaged("what was saved with it is not a list")

    def _read(self) -> dict[str, Any]:
        try:
            with self.path.open("rb") as handle:
                text = handle.read(MAX_PLAN_BYTES + 1)
        except FileNotFoundError:
            raise InputError(
                f"There is no plan {self.path}; save_pruned writes it beside the weights."
            ) from None
        except OSError as error:
            raise InputError(f"The plan {self.path} cannot be read: {error.strerror or error}.") from error
        if len(text) > MAX_PLAN_BYTES:
            raise self._damaged(f"it is larger than {MAX_PLAN_BYTES} bytes")
        try:
            data = json.loads(text.decode("utf-8"), parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise self._damaged(f"it is not JSON ({error!s:.80})") from error
        if not isinstance(data, dict):
            raise self._damaged("it is not a JSON object")
        return data

    def _damaged(self, why: str) -> InputError:
        return InputError(f"{self.path} is not a plan of dysens, or is damaged: {why}.")

    def _stage(self, stage: Any) -> PrunePlan:
        cuts = stage.get("cuts") if isinstance(stage, dict) else None
        attributes = stage.get("attributes") if isinstance(stage, dict) else None
        if not isinstance(cuts, list) or not isinstance(attributes, dict):
            raise self._damaged("a stage needs cuts and attributes")
        places = set()
        for item in cuts:
            self._check_cut(item)
            place = (item["tensor"], item["axis"])
            if place in places:
                raise self._damaged(f"'{place[0]}' is cut twice along axis {place[1]}")
            places.add(place)
        for path, values in attributes.items():
            if not isinstance(values, dict):
                raise self._damaged(
                    f"the attributes of layer '{path:.80}' are not a list of names and widths"
                )
            for name, value in values.items():
                if not name.isidentifier() or name.startswith("__"):
                    raise InputError(_NO_WIDTH.format(self.path, name, path))
                listed = isinstance(value, list) and 1 < len(value) <= 16 and name not in WIDTH_ATTRIBUTES
                if not (all(_is_whole(each, -(2**31)) for each in value) if listed else _is_whole(value, 1)):
                    raise self._damaged(f"'{name}' of layer '{path:.80}' is {value!r:.40}")
        return PrunePlan.from_json(stage)

    def _check_cut(self, item: Any) -> None:
        if not isinstance(item, dict) or not isinstance(item.get("tensor"), str):
            raise self._damaged("a cut needs the path of a tensor")
        tensor: str = item["tensor"]
        size: Any = item.get("size")
        blocks: Any = item.get("blocks", 1)
        if (
            not _is_whole(item.get("axis"), 0)
            or not _is_whole(size, 1)
            or not _is_whole(blocks, 1)
            or size % blocks
        ):
            raise self._damaged(f"axis, size or blocks of the cut of '{tensor:.80}' are not numbers that fit")
        removed: Any = item.get("removed")
        order: Any = item.get("order", [])
        for entries in (removed, order):
            if not isinstance(entries, list) or not all(_is_whole(entry, 0, size - 1) for entry in entries):
                raise self._damaged(f"what is cut from '{tensor:.80}' are not entries from 0 to {size - 1}")
            if len(set(entries)) != len(entries):
                raise self._damaged(f"the cut of '{tensor:.80}' names an entry twice")
        if len(removed) >= size:
            raise self._damaged(f"nothing would be left of '{tensor:.80}'")
        if order and (len(order) != size - len(removed) or set(order) & set(removed)):
            raise self._damaged(f"the order of '{tensor:.80}' does not name what stays")
        counts = Counter(entry // (size // blocks) for entry in removed)
        if blocks > 1 and removed and (len(counts) < blocks or len(set(counts.values())) > 1):
            raise self._damaged(f"the groups of '{tensor:.80}' would not be equally wide")

    def _texts(self, value: Any, what: str) -> dict[str, str]:
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            raise self._damaged(f"its {what} are not names")
        return value


def check_fits(model: nn.Layer, plan: PrunePlan) -> None:
    """Refuse a plan that is for another network.

    Raises:
        InputError: It cuts or tells something that the network does not have, or has in another width.
    """
    tensors = tensors_by_path(model)
    for item in plan.cuts:
        layer = item.tensor.rpartition(".")[0]
        if item.tensor not in tensors:
            raise InputError(
                f"The plan cuts layer '{layer}', which this network does not have; is it another network?"
            )
        shape = list(tensors[item.tensor].shape)
        expected = item.size // item.blocks
        blocks_fit = item.blocks == 1 or (item.axis == 1 and shape[0] % item.blocks == 0)
        if item.axis >= len(shape) or shape[item.axis] != expected or not blocks_fit:
            raise InputError(
                f"Layer '{layer}' differs: the plan cuts axis {item.axis} of a weight with {expected} entries there, "
                f"but '{item.tensor}' has shape {shape}; build the network as it was before pruning."
            )
    layers = dict(model.named_sublayers(include_self=True))
    roles = roles_of(model)
    for path, values in plan.attributes.items():
        if path not in layers:
            raise InputError(
                f"The plan is for a network with a layer '{path}', which this one does not have."
            )
        for name, value in values.items():
            now = _plain(layers[path].__dict__.get(name))
            if name not in WIDTH_ATTRIBUTES:
                around = [cut for cut in plan.cuts if _is_around(path, cut.tensor)]
                if path in roles or not _follows(name, now, value, around):
                    raise InputError(_NO_WIDTH.format("The plan", name, path))
                continue
            if not _is_whole(now, 1):
                raise InputError(f"The plan sets '{name}' of layer '{path}', which has no such width.")
            if value > now:
                raise InputError(
                    f"The plan sets '{name}' of layer '{path}' to {value}, and a cut cannot make it wider than {now}."
                )


def _plain(value: Any) -> Any:
    """A width that a network remembers; some count in NumPy's numbers."""
    if isinstance(value, np.integer):
        return int(value)
    return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value


def _is_around(block: str, tensor: str) -> bool:
    """Whether a tensor lies in a block, or beside it in the same block: what fills a block, or reads it, may be its neighbour."""
    parent = block.rpartition(".")[0]
    return not parent or tensor.startswith(f"{parent}.")


def _follows(name: str, now: Any, value: Any, cuts: Iterable[TensorCut]) -> bool:
    """Whether a value is what the attribute becomes by the cuts: a width, a share, an end of it, or sections."""
    cuts = list(cuts)
    if isinstance(value, int):
        return any(_is_left(name, now, value, cut) for cut in cuts)
    if not isinstance(now, (list, tuple)) or len(now) != len(value):
        return False
    # Each number for itself, by the width of a layer of its own; or all as the sections of one width.
    widths = {(cut.size, cut.size - len(cut.removed)) for cut in cuts}
    if all(before == after or (before, after) in widths for before, after in zip(now, value)):
        return True
    if not all(_is_whole(each, 1) for each in (*now, *value)):
        return False
    ends = np.cumsum([0, *now])
    return any(
        cut.size == sum(now) and np.histogram(cut.kept, ends)[0].tolist() == list(value) for cut in cuts
    )


def _is_left(name: str, now: Any, value: int, cut: TensorCut) -> bool:
    """Whether a number is what a cut leaves of another."""
    left = cut.size - len(cut.removed)
    if now == cut.size:
        return value == left
    if not may_be_share(name) or not _is_whole(now, 1, cut.size - 1):
        return False
    if cut.size % now == 0 and value * cut.size == now * left:
        return True
    return value in (int((cut.kept < now).sum()), int((cut.kept >= cut.size - now).sum()))


def check_widths(model: nn.Layer, plan: PrunePlan) -> None:
    """Refuse a plan, once it is carried out, that leaves a layer with other widths than its weights have.

    Raises:
        InputError: They differ.
    """
    touched = {item.tensor.rpartition(".")[0] for item in plan.cuts} | set(plan.attributes)
    tensors = tensors_by_path(model)
    for path, role in roles_of(model).items():
        if path not in touched:
            continue
        groups = getattr(role.layer, "_groups", 1)
        widths = {
            "_in_channels": role.inputs.size if role.inputs is not None else None,
            "_out_channels": role.outputs.size if role.outputs is not None else None,
            "_num_features": role.inputs.size if role.is_norm and role.inputs is not None else None,
        }
        wrong = [n for n, size in widths.items() if size is not None and getattr(role.layer, n, size) != size]
        vectors = role.layer._parameters.values() if role.is_norm else ()
        lengths = {vector.shape[0] for vector in vectors if vector is not None}
        uneven = isinstance(role.layer, _ConvNd) and any(side % groups for side in _sides(role))
        odd = [
            piece.tensor
            for port in role.inside
            for piece in port.slices
            if tensors[piece.tensor].shape[piece.axis] != port.size * piece.gates
        ]
        if wrong or uneven or odd or len(lengths) > 1:
            names = [*wrong, *odd, *(["the number of groups"] if uneven else [])]
            what = names[0] if names else "one of its vectors"
            raise InputError(
                f"The plan leaves layer '{path}' with widths that do not fit each other ({what}): it is damaged, or for "
                "another network."
            )


def _sides(role: Role) -> list[int]:
    return [port.size for port in (role.inputs, role.outputs) if port is not None]


def _is_whole(value: Any, least: int, most: int = 2**31) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _refuse(token: str) -> NoReturn:
    raise ValueError(f"{token} is not a JSON number")
