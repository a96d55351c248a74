"""Who finds the groups: the engine that a caller names, and PaddleSlim's own pruners behind the same contract.

PaddleSlim 2.6.0 runs on Paddle 2.6 only. It walks a static program operator by operator, so it knows fewer networks than
probing does; what it finds is cut by dysens, because its own cut leaves layer attributes as they were.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Union

import numpy as np
import paddle

from dysens.criteria import Criterion
from dysens.engines._analysis import Analysis, Engine, proven
from dysens.engines._native import native_engine
from dysens.errors import InputError, MissingExtraError, in_a_sentence, nearest
from dysens.groups import ALL, FILTERS, FREE, ChannelGroup, Port, Role, filters_by_path, members_of, roles_of
from dysens.model import View, isolate, preserved, tensors_by_path

_PRUNERS = {"fpgm": "FPGMFilterPruner", "l1": "L1NormFilterPruner", "l2": "L2NormFilterPruner"}


def paddleslim_engine(model: paddle.nn.Layer, views: Sequence[View]) -> Analysis:
    """Let PaddleSlim find the groups. The model is left unchanged.

    Raises:
        InputError: On Paddle 3, where PaddleSlim cannot run, or for inputs or networks that it does not take.
        MissingExtraError: If PaddleSlim is not installed.
    """
    pruner = _pruner(model, views, "FPGMFilterPruner")
    roles, tensors = roles_of(model), tensors_by_path(model)
    groups: list[ChannelGroup] = []
    covered: set[tuple[str, int]] = set()
    for collection in pruner.collections:
        group = _group(pruner, collection, roles, tensors)
        # PaddleSlim lists a group once for each of its filters; like itself, take the first.
        if group is not None and group.name not in pruner.skip_vars and not covered & set(group.members):
            groups.append(group)
            covered |= {pair for pair in group.members if pair[1] == 0}
    cut = {path for group in groups for path in group.filters}
    reasons = {
        path: f"PaddleSlim offers no group that cuts the filters of '{path}'"
        for path in filters_by_path(model)
        if path not in cut
    }
    # PaddleSlim does not check what it finds; here, too, only what is proven is offered.
    found = Analysis(groups, reasons, roles, partial(_SlimChoice, model, views))
    return proven(model, views, found)


def _pruner(model: paddle.nn.Layer, views: Sequence[View], name: str) -> Any:
    if not paddle.__version__.startswith("2."):
        raise InputError(
            f'The engine "paddleslim" needs Paddle 2.6; PaddleSlim does not run on Paddle {paddle.__version__}. '
            'Use engine="native", which gives the same numbers.'
        )
    try:
        import paddleslim.dygraph as slim
    except ImportError as error:
        raise MissingExtraError(
            'The engine "paddleslim" needs PaddleSlim: pip install "dysens[slim]".'
        ) from error
    if len(views) > 1:
        raise InputError(
            'The argument train_inputs is only known to the engine "native": PaddleSlim traces one forward.'
        )
    shapes = [list(argument.shape) for argument in views[0].arguments if isinstance(argument, paddle.Tensor)]
    if len(shapes) != len(views[0].arguments):
        raise InputError(
            'The engine "paddleslim" takes shapes and tensors only; use engine="native" for dicts and lists.'
        )
    logging.getLogger("paddleslim").setLevel(logging.WARNING)
    with preserved(model):
        model.eval()
        try:
            return getattr(slim, name)(model, shapes[0] if len(shapes) == 1 else shapes)
        except Exception as error:
            raise InputError(
                f'PaddleSlim cannot follow this network ({in_a_sentence(error)}); use engine="native".'
            ) from error


def _group(
    pruner: Any, collection: Any, roles: Mapping[str, Role], tensors: Mapping[str, paddle.Tensor]
) -> ChannelGroup | None:
    """PaddleSlim's collection as a group; None if it cuts something that no known port describes."""
    places = {
        (tensors[piece.tensor].name, piece.axis): port for port in _ports(roles) for piece in port.slices
    }
    master = collection.master_name
    size = next(int(t.shape[0]) for t in tensors.values() if t.name == master)
    units: dict[Port, np.ndarray] = {}
    names = {tensor.name for tensor in tensors.values()}
    for detail in collection.all_pruning_details():
        if detail.name not in names:
            continue  # an intermediate result of PaddleSlim's program, not a tensor of the model
        port = places.get((detail.name, detail.axis))
        if port is None:
            return None
        units[port] = np.maximum(units.get(port, -1), _units_at(pruner, detail, size, port.size))
    path = next(path for path, tensor in tensors.items() if tensor.name == master)
    scored = [
        (port, piece)
        for port in units
        for piece in port.slices
        if piece.tensor == path and port.side == "out"
    ]
    if not scored:
        return None
    return ChannelGroup(
        name=master,
        path=path,
        channels=size,
        members=members_of(units, tensors),
        units=units,
        blocks=(np.arange(size),),
        rule=FREE,
        scored=tuple(scored),
    )


def _ports(roles: Mapping[str, Role]) -> set[Port]:
    return {port for role in roles.values() for port in (role.inputs, role.outputs) if port is not None}


def _units_at(pruner: Any, detail: Any, size: int, width: int) -> np.ndarray:
    """Which unit each channel of a tensor belongs to: PaddleSlim only says where a mask ends up, so ask for each unit."""
    unit_of = np.full(width, -1)
    for unit in range(size):
        mask = np.ones(size, "int32")
        mask[unit] = 0
        for transform in detail.transform:
            mask = pruner._transform_mask(mask, transform)
        unit_of[np.flatnonzero(np.asarray(mask) == 0)] = unit
    return unit_of


class _SlimChoice:
    """Lets PaddleSlim compute which filters go, from the weights as they are now."""

    def __init__(
        self,
        model: paddle.nn.Layer,
        views: Sequence[View],
        tensors: Mapping[str, paddle.Tensor],
        criterion: Criterion,
    ) -> None:
        if not isinstance(criterion, str) or criterion not in _PRUNERS:
            raise InputError(
                f'The engine "paddleslim" knows the criteria {", ".join(_PRUNERS)}; use engine="native".'
            )
        self._pruner = _pruner(model, views, _PRUNERS[criterion])

    def __call__(self, group: ChannelGroup, ratio: float) -> np.ndarray:
        collection = self._pruner.collections.find_collection_by_master(group.name, 0)
        mask = np.asarray(self._pruner.cal_mask(ratio, collection))
        return np.flatnonzero(mask == 0)


EngineChoice = Union[str, Engine]

_ENGINES: dict[str, Engine] = {
    "auto": native_engine,
    "native": native_engine,
    "paddleslim": paddleslim_engine,
}


def engine_for(choice: EngineChoice, layers: str = FILTERS) -> Engine:
    """The engine that a user chose.

    Args:
        choice: "auto", "native", "paddleslim", or an engine of the user's own.
        layers: "filters" for groups of 4-D weights, "all" for those of linear layers and other convolutions too.

    Raises:
        InputError: There is no such engine.

    Example:
        >>> def wide_groups_only(model, views):
        ...     found = engine_for("native")(model, views)
        ...     return replace(found, groups=[group for group in found.groups if group.channels >= 16])
        >>> find = engine_for(wide_groups_only)
    """
    if layers not in (FILTERS, ALL):
        raise InputError(f'The argument layers is "filters" (4-D weights) or "all", not {layers!r:.80}.')
    if layers == ALL:
        if choice not in ("auto", "native"):
            raise InputError(
                'Only dysens\'s own engine looks at all layers: leave engine out, or choose layers="filters".'
            )
        return partial(native_engine, layers=ALL)
    if isinstance(choice, str):
        if choice not in _ENGINES:
            hint = nearest(choice, _ENGINES) or f"; there are {', '.join(_ENGINES)}."
            raise InputError(f'There is no engine "{choice}"{hint}')
        return _ENGINES[choice]
    if not callable(choice):
        raise InputError(
            f"The engine must be one of {', '.join(_ENGINES)}, or take a model and its views, not {choice!r:.80}."
        )
    return _OwnEngine(choice)


class _OwnEngine:
    """A user's engine. What it offers is proven, as everything is that is offered."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._name = getattr(engine, "__qualname__", type(engine).__qualname__)

    def __call__(self, model: paddle.nn.Layer, views: Sequence[View]) -> Analysis:
        with preserved(model):
            isolate(model)
            found = self._engine(model, views)
        if not isinstance(found, Analysis):
            raise InputError(
                f"The engine {self._name} has to return a dysens.engines.Analysis, not a {type(found).__name__}."
            )
        found = proven(model, views, found)
        cut = {path for group in found.groups for path in group.filters}
        unsaid = dict.fromkeys(filters_by_path(model), f"engine {self._name} offers no group for it")
        reasons = {path: reason for path, reason in {**unsaid, **found.reasons}.items() if path not in cut}
        return replace(found, reasons=reasons)
